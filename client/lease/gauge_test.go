package lease_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
)

// holds makes so many acquire, and returns where their errors come.
func holds(ctx context.Context, n int, g *lease.Gauge) chan error {
	results := make(chan error, n)
	for range n {
		go func() { results <- g.Acquire(ctx) }()
	}
	synctest.Wait()
	return results
}

// TestGaugeFollowsItsCapacity: it grows at once, and shrinks as those inside leave.
func TestGaugeFollowsItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(2.9999999999) // is 3
		g := lease.NewGauge(k)
		defer g.Close()
		results := holds(t.Context(), 20, g)
		check := func(step string, in, held int) {
			t.Helper()
			synctest.Wait()
			if len(results) != in || g.Held() != held || g.Waiting() != 20-in {
				t.Errorf("%s: %d got in, %d held, %d wait, want %d, %d and %d",
					step, len(results), g.Held(), g.Waiting(), in, held, 20-in)
			}
		}
		check("three at once", 3, 3)
		k.turn(5.5)
		check("it grows", 5, 5)
		k.turn(2)
		check("it shrinks: nobody loses", 5, 5)
		g.Release()
		g.Release()
		g.Release()
		check("those who leave are not replaced", 5, 2)
		g.Release()
		check("from here on they are", 6, 2)
		k.turn(0)
		g.Release()
		check("nothing", 6, 1)
		k.turn(-1)
		check("no limit", 20, 15)
		k.turn(-200)
		if g.TryAcquire() {
			t.Error("TryAcquire at -200 = true, want false")
		}
	})
}

// TestAcquireEnds: with its context, and with the gauge or its source.
func TestAcquireEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKnob(1)
		g := lease.NewGauge(k)
		if !g.TryAcquire() || g.TryAcquire() {
			t.Fatal("TryAcquire of one, want true once")
		}
		gone, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := holds(gone, 1, g)
		second := holds(t.Context(), 1, g)
		if err := <-first; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire = %v, want a timeout", err)
		}
		g.Release()
		if err := <-second; err != nil || g.Held() != 1 {
			t.Errorf("Acquire after the first gave up = %v, held %d, want nil and 1", err, g.Held())
		}
		if err := g.Acquire(gone); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Acquire with a context that ended = %v, want a timeout", err)
		}
		left := holds(t.Context(), 3, g)
		g.Close()
		g.Close()
		for range 3 {
			if err := <-left; !errors.Is(err, lease.ErrClosed) {
				t.Errorf("Acquire when the gauge closes = %v, want ErrClosed", err)
			}
		}
		g.Release()
		if g.TryAcquire() || g.Held() != 0 {
			t.Errorf("held after the end = %d, want 0 and no more", g.Held())
		}
		other := lease.NewGauge(k)
		other.TryAcquire()
		left = holds(t.Context(), 1, other)
		close(k.done)
		if err := <-left; !errors.Is(err, lease.ErrClosed) {
			t.Errorf("Acquire when the source ends = %v, want ErrClosed", err)
		}
	})
}

// TestReleaseOfNothing is a panic, after which there is no more room than before.
func TestReleaseOfNothing(t *testing.T) {
	g := lease.NewGauge(newKnob(1))
	defer func() {
		if recover() == nil {
			t.Error("Release of nothing returned, want a panic")
		}
		if !g.TryAcquire() || g.TryAcquire() {
			t.Error("TryAcquire of one after the panic, want true once")
		}
	}()
	g.Release()
}

// TestGaugeNeverHoldsTooMany: many at once, with a capacity that is fixed; nobody is forgotten.
func TestGaugeNeverHoldsTooMany(t *testing.T) {
	const size, workers, rounds = 3, 50, 200
	g := lease.NewGauge(newKnob(size))
	defer g.Close()
	var inside atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for range rounds {
				limit := patience
				if rand.IntN(10) == 0 {
					limit = time.Microsecond
				}
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				if g.Acquire(ctx) == nil {
					if now := inside.Add(1); now > size {
						t.Errorf("%d inside, want at most %d", now, size)
					}
					inside.Add(-1)
					g.Release()
				} else if limit == patience {
					t.Errorf("Acquire timed out, want it within %s", patience)
				}
				cancel()
			}
		})
	}
	all.Wait()
	if g.Held() != 0 || g.Waiting() != 0 {
		t.Errorf("at last held %d, waiting %d; want 0, 0", g.Held(), g.Waiting())
	}
}
