package lease

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// A Gauge lets as many callers hold something at once as its source has capacity, rounded down: connections,
// jobs, seats. When the capacity shrinks, holders keep what they hold; no other caller gets in until enough
// have released. Make one with NewGauge. It is safe for use by many goroutines, and starts none itself.
type Gauge struct {
	line *line
	held atomic.Int64
}

// NewGauge returns a gauge that no caller holds anything of.
func NewGauge(source Source) *Gauge { return &Gauge{line: newLine(source)} }

// holdLimit returns how many callers may hold at once.
func (g *Gauge) holdLimit() int64 {
	const rounding = 1e-9 // 3 of 10 shares of 10 may come out as 2.9999999999
	capacity := validCapacity(g.line.source.Capacity())
	if capacity == -1 || capacity >= math.MaxInt64/2 {
		return math.MaxInt64
	}
	return int64(capacity + rounding)
}

// TryAcquire reports whether the caller may hold one now, and counts it if so. While other callers wait it
// returns false.
func (g *Gauge) TryAcquire() bool {
	return !g.line.closed.Load() && g.line.waiting.Load() == 0 && g.takeHold()
}

func (g *Gauge) takeHold() bool {
	// Compare and swap, not Add: an Add beyond the limit would have to be taken back, and could refuse
	// another caller meanwhile.
	size := g.holdLimit()
	for {
		held := g.held.Load()
		if held >= size {
			return false
		}
		if g.held.CompareAndSwap(held, held+1) {
			return true
		}
	}
}

// Acquire returns nil as soon as the caller holds one, to be given back by Release; callers that wait get
// theirs in order of arrival. The error has the code [gatehouse.CodeTimeout] when ctx ends before, and is
// ErrClosed when the gauge or its source has ended. With an error the caller holds nothing.
func (g *Gauge) Acquire(ctx context.Context) error {
	if err := g.line.checkOpen(ctx); err != nil {
		return err
	}
	if g.TryAcquire() {
		return nil
	}
	return g.line.waitInLine(ctx, g)
}

// Release gives one back. It works after Close too. It panics if none is held.
func (g *Gauge) Release() {
	if held := g.held.Add(-1); held < 0 {
		g.held.Add(1) // a program that recovers has no more room than before
		panic("gauge: Release without an Acquire before")
	}
	g.line.wakeFirst()
}

// Held returns how many are held. It exceeds the capacity for a while when that has shrunk.
func (g *Gauge) Held() int { return int(g.held.Load()) }

// Waiting returns how many callers wait.
func (g *Gauge) Waiting() int { return int(g.line.waiting.Load()) }

// Close ends the gauge: no caller gets anything any more, and those that wait get ErrClosed. Callers keep
// what they hold until their Release. A second Close does nothing.
func (g *Gauge) Close() { g.line.close() }

// tryAdmit implements admitter. Time alone brings no place back; a Release or a change of capacity does.
func (g *Gauge) tryAdmit(time.Time) (ok bool, again time.Duration) { return g.takeHold(), forever }

// stopWaiting implements admitter. A gauge reserves nothing for the first in line.
func (g *Gauge) stopWaiting() {}
