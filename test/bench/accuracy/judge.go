package main

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A candidate is one limiter, as it is tried: the limit of 100 a second in its own words.
type candidate struct {
	name string
	kind gatehouse.Kind
	cmd  gatehouse.Command
}

// candidates are all limiters, those that err first.
func candidates() []candidate {
	of := func(name string, kind gatehouse.Kind, cmd gatehouse.Command) candidate {
		// One request takes one and never waits (MaxWait is 0), so that a refusal is the limiter's own
		// decision.
		cmd.Op, cmd.Cost, cmd.Interval = gatehouse.OpAcquire, 1, window
		if cmd.Size == 0 {
			cmd.Size = size
		}
		return candidate{name, kind, cmd}
	}
	return []candidate{
		of("tokenbucket", gatehouse.TokenBucket, gatehouse.Command{}),
		of("fixedwindow", gatehouse.FixedWindow, gatehouse.Command{}),
		// L at once: the first needs no burst, the other 99 do.
		of("gcra", gatehouse.GCRA, gatehouse.Command{Rule: gatehouse.Rule{Burst: size - 1}}),
		// A burst of L/2, and L/2 that come back within a W, are L together: half the rate buys that no W
		// holds more than L.
		of("gcra, halves", gatehouse.GCRA, gatehouse.Command{
			Rule: gatehouse.Rule{Size: size / 2, Burst: size/2 - 1},
		}),
		of("slidingwindow", gatehouse.SlidingWindow, gatehouse.Command{}),
		of("slidingwindow fine", gatehouse.SlidingWindow, gatehouse.Command{
			Rule: gatehouse.Rule{Mode: gatehouse.ModeFine},
		}),
		of("slidingwindow strict", gatehouse.SlidingWindow, gatehouse.Command{
			Rule: gatehouse.Rule{Mode: gatehouse.ModeStrict},
		}),
		of("slidinglog", gatehouse.SlidingLog, gatehouse.Command{}),
		of("pace", gatehouse.Pace, gatehouse.Command{}),
	}
}

// A limiter is one key of a candidate, or of the exact log when kind is 0.
type limiter struct {
	candidate
	state control.State
	turns [1]control.Turn
}

// ask puts one request to the limiter.
func (l *limiter) ask(at int64) gatehouse.Decision {
	// Serve writes the decision into the turn, so each request needs a fresh one. The array lives in the
	// limiter: a slice made here would be garbage for each of millions of requests.
	l.turns[0] = control.Turn{Command: &l.cmd}
	l.state = control.Serve(time.Unix(0, origin+at), l.kind, l.state, l.turns[:])
	return l.turns[0].Decision
}

// A history is an exact log of instants.
type history struct {
	instants []int64
	first    int // of those that lie within a window
}

// add notes an instant.
func (h *history) add(at int64) { h.instants = append(h.instants, at) }

// count is how many lie in the window that ends at an instant: later than at-window, up to at.
func (h *history) count(at int64) int {
	// Requests come in order of time, so what has left the window never returns: moving first forward makes
	// a whole traffic linear.
	for h.first < len(h.instants) && h.instants[h.first] <= at-int64(window) {
		h.first++
	}
	return len(h.instants) - h.first
}

// A verdict is how a limiter did on one traffic.
type verdict struct {
	offered, passed int
	falseAllows     int // let through although the window was full of what it had let through
	falseDenies     int // refused although the window had room
	excess          int // by how many the window was then too full, summed up over the false allows
	worst           int // the most in any window
}

// add adds the verdict on other requests.
func (v *verdict) add(other verdict) {
	v.offered += other.offered
	v.passed += other.passed
	v.falseAllows += other.falseAllows
	v.falseDenies += other.falseDenies
	v.excess += other.excess
	// Each key has a window of its own, so windows of several keys are compared, never added.
	v.worst = max(v.worst, other.worst)
}

// judge tries a limiter on the requests of one key. It is held to what it let through itself: one wrong
// decision is one error, however different everything after it becomes.
func (v *verdict) judge(l *limiter, requests []int64) {
	// The log holds what this limiter let through, not what an exact log would have: otherwise one early
	// error would count again and again.
	let := history{}
	for _, at := range requests {
		// Counted before the request is added: there is room when fewer than size are inside.
		inside := let.count(at)
		// A limiter of kind 0 is the exact log, which decides by the true count alone.
		passes := inside < size
		if l.kind != 0 {
			passes = l.ask(at).Outcome == gatehouse.Granted
		}
		v.offered++
		switch {
		// A refused request does not enter the log: it takes no room from later ones.
		case passes:
			let.add(at)
			v.passed++
			// The fullest window always ends at a request that passed, so it is enough to look here.
			v.worst = max(v.worst, inside+1)
			if inside >= size {
				v.falseAllows++
				// This request counts as part of the excess: the first one too many is an excess of 1.
				v.excess += inside + 1 - size
			}
		case inside < size:
			v.falseDenies++
		}
	}
}
