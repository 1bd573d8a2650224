package election

import (
	"context"
	"math/rand/v2"
	"time"
)

// A backoff is a pause that doubles each time, up to a bound. Each pause is drawn at random from its upper
// half, so that candidates which failed together do not come back together.
type backoff struct{ pause, most time.Duration }

// newBackoff starts with a fiftieth of the lease's lifetime and ends at the time between two renewals. Both
// have upper bounds, for long leases.
func (e *Election) newBackoff() *backoff {
	return &backoff{pause: min(e.ttl/50, maxPause/10), most: min(e.ttl/renewalsPerTTL, maxPause)}
}

// renewalBackoff is for renewals, which have little time.
func (e *Election) renewalBackoff() *backoff {
	return &backoff{pause: min(e.ttl/50, maxPause/10), most: min(e.ttl/20, maxPause/2)}
}

// nextPause returns how long to pause now, and doubles the next one.
func (b *backoff) nextPause() time.Duration {
	pause := b.pause
	b.pause = min(2*b.pause, b.most)
	return pause/2 + rand.N(pause/2+1)
}

// waitPause pauses, and returns false when ctx ended first.
func (b *backoff) waitPause(ctx context.Context) bool { return sleepFor(ctx, b.nextPause()) }

// sleepFor waits, and returns false when ctx ended first.
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
