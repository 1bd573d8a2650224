package lease

import (
	"context"
	"math"
	"sync/atomic"
	"time"
)

// A Gauge lets as many callers hold something at once as its source has capacity, cut to a whole number:
// connections, jobs, seats. When the capacity shrinks nobody loses what they hold; nobody else gets in until
// enough have left. Make one with NewGauge. It is safe for use by many goroutines, and has none itself.
type Gauge struct {
	line *line
	held atomic.Int64
}

// NewGauge returns a gauge that nobody holds anything of.
func NewGauge(source Source) *Gauge { return &Gauge{line: newLine(source)} }

// holdLimit is how many may hold at once.
func (g *Gauge) holdLimit() int64 {
	const rounding = 1e-9 // 3 of 10 shares of 10 may come out as 2.9999999999
	capacity := validCapacity(g.line.source.Capacity())
	if capacity == -1 || capacity >= math.MaxInt64/2 {
		return math.MaxInt64
	}
	return int64(capacity + rounding)
}

// TryAcquire reports whether the caller may hold one now, and counts it if so. While others wait it may not.
func (g *Gauge) TryAcquire() bool {
	return !g.line.closed.Load() && g.line.waiting.Load() == 0 && g.takeHold()
}

func (g *Gauge) takeHold() bool {
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

// Acquire returns nil as soon as the caller holds one, to be given back by Release; those who wait get
// theirs in order of arrival. The error is of code [gatehouse.CodeTimeout] when ctx ends before, and
// ErrClosed when the gauge or its source does. With an error the caller holds nothing.
func (g *Gauge) Acquire(ctx context.Context) error {
	if err := g.line.checkOpen(ctx); err != nil {
		return err
	}
	if g.TryAcquire() {
		return nil
	}
	return g.line.waitInLine(ctx, g)
}

// Release gives one back. It works after Close too. To give back what nobody holds is a panic.
func (g *Gauge) Release() {
	if held := g.held.Add(-1); held < 0 {
		g.held.Add(1) // who recovers has no more room than before
		panic("gauge: Release without an Acquire before")
	}
	g.line.wakeFirst()
}

// Held returns how many are held. It is more than the capacity for a while when that has shrunk.
func (g *Gauge) Held() int { return int(g.held.Load()) }

// Waiting returns how many callers wait.
func (g *Gauge) Waiting() int { return int(g.line.waiting.Load()) }

// Close ends the gauge: nobody gets anything any more, and those who wait get ErrClosed. What is held stays
// so until its Release. A second Close does nothing.
func (g *Gauge) Close() { g.line.close() }

// tryAdmit implements door.
func (g *Gauge) tryAdmit(time.Time) (ok bool, again time.Duration) { return g.takeHold(), forever }

// stopWaiting implements door.
func (g *Gauge) stopWaiting() {}
