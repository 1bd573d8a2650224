// Package backoff waits between tries.
package backoff

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// Sleep waits, and reports false if ctx has ended before.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		// Both may have come, of which select takes either.
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// Repeat calls try again and again, in a goroutine, until stop is called, which ends the context of a try
// under way and waits for it. After a try that reports that it worked for a while the next one comes after
// first, and after each that did not, the pause doubles, up to last. Pauses are up to a half shorter, at
// random, so that servers that failed together do not come back together.
func Repeat(first, last time.Duration, try func(ctx context.Context) (worked bool)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var work sync.WaitGroup
	work.Go(func() {
		for pause := first; ctx.Err() == nil; pause = min(2*pause, last) {
			if try(ctx) {
				pause = first
			}
			Sleep(ctx, pause/2+rand.N(pause/2))
		}
	})
	return func() {
		cancel()
		work.Wait()
	}
}
