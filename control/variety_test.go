package control

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A variety is a way to limit: a kind in one of its modes.
type variety struct {
	kind gatehouse.Kind
	mode gatehouse.Mode
}

// varieties are all ways to limit.
func varieties() []variety {
	return []variety{
		{kind: gatehouse.TokenBucket}, {kind: gatehouse.GCRA}, {kind: gatehouse.FixedWindow},
		{kind: gatehouse.SlidingWindow},
		{gatehouse.SlidingWindow, gatehouse.ModeFine}, {gatehouse.SlidingWindow, gatehouse.ModeStrict},
		{kind: gatehouse.SlidingLog},
		{kind: gatehouse.Pace},
		{gatehouse.Pace, gatehouse.ModePaced}, {gatehouse.Pace, gatehouse.ModeClassic},
	}
}

func (v variety) String() string { return fmt.Sprint(v.kind, v.mode) }

// exact reports whether the variety never lets one too many through in any interval.
func (v variety) exact() bool {
	return v.kind == gatehouse.SlidingLog || v.kind == gatehouse.Pace || v.mode == gatehouse.ModeStrict
}

// draw returns an acquire of one under some limit. Intervals are from a few nanoseconds, where every
// rounding shows, to some milliseconds.
func (v variety) draw(t *rapid.T) gatehouse.Command {
	unit := rapid.SampledFrom([]int64{1, 1000, 142_857}).Draw(t, "unit")
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{
			Mode:     v.mode,
			Size:     rapid.Int64Range(1, 12).Draw(t, "size"),
			Interval: time.Duration(rapid.Int64Range(1, 300).Draw(t, "interval") * unit),
		}, Cost: 1,
	}
	switch v.kind {
	case gatehouse.GCRA:
		cmd.Interval = max(cmd.Interval, time.Duration(cmd.Size))
		cmd.Burst = rapid.Int64Range(0, 12).Draw(t, "burst")
	case gatehouse.Pace:
		cmd.Guard = time.Duration(rapid.Int64Range(0, 1).Draw(t, "guard")) * cmd.Interval / 5
	}
	return cmd
}

// capacity is the most that cmd's limit lets through at once.
func capacity(v variety, cmd *gatehouse.Command) int64 {
	if v.kind == gatehouse.GCRA {
		return cmd.Burst + 1
	}
	return cmd.Size
}

// origin is an instant that no window begins with, but by chance.
func origin(t *rapid.T) time.Time {
	return epoch().Add(time.Duration(rapid.Int64Range(0, 1e9).Draw(t, "origin")))
}

// later draws how long it is until the next command: often nothing, a nanosecond, or the interval.
func later(t *rapid.T, interval time.Duration) time.Duration {
	switch rapid.IntRange(0, 6).Draw(t, "pause") {
	case 0:
		return 0
	case 1:
		return 1
	case 2:
		return interval
	case 3:
		return interval + interval/2
	default:
		return time.Duration(rapid.Int64Range(0, int64(interval)/3).Draw(t, "later"))
	}
}

// A record is an exact log of what started.
type record []startRun

// within is how many started after one instant and up to another.
func (r record) within(after, upTo int64) int64 {
	sum := int64(0)
	for _, s := range r {
		if s.at > after && s.at <= upTo {
			sum += s.n
		}
	}
	return sum
}

// aligned is how many started in the window of time.Truncate around an instant.
func (r record) aligned(at int64, interval time.Duration) int64 {
	start := time.Unix(0, at).UTC().Truncate(interval).UnixNano()
	return r.within(start-1, start+int64(interval)-1)
}

// with asks the state something else than an acquire, under the limit in force.
func (s *subject) with(now time.Time, op gatehouse.Op, cost int64) gatehouse.Decision {
	return s.step(now, gatehouse.Command{Op: op, Cost: cost})
}
