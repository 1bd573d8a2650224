package election

import (
	"context"
	"math/rand/v2"
	"time"
)

// A backoff is a pause that doubles each time, up to a bound. It is drawn at random from its upper half, so
// that candidates who failed together do not come back together.
type backoff struct{ pause, most time.Duration }

// newBackoff begins with a fiftieth of the time of a lease and ends at the time between two renewals, both
// within bounds that a long lease does not move.
func (e *Election) newBackoff() *backoff {
	return &backoff{pause: min(e.ttl/50, maxPause/10), most: min(e.ttl/renewalsPerTTL, maxPause)}
}

// renewalBackoff is for renewals, which have little time.
func (e *Election) renewalBackoff() *backoff {
	return &backoff{pause: min(e.ttl/50, maxPause/10), most: min(e.ttl/20, maxPause/2)}
}

// nextPause is how long to wait now.
func (b *backoff) nextPause() time.Duration {
	pause := b.pause
	b.pause = min(2*b.pause, b.most)
	return pause/2 + rand.N(pause/2+1)
}

// waitPause is false when ctx ended first.
func (b *backoff) waitPause(ctx context.Context) bool { return sleepFor(ctx, b.nextPause()) }

// sleepFor waits, and is false when ctx ended first.
func sleepFor(ctx context.Context, wait time.Duration) bool {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
