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
		cmd.Op, cmd.Cost, cmd.Interval = gatehouse.OpAcquire, 1, window
		if cmd.Size == 0 {
			cmd.Size = size
		}
		return candidate{name, kind, cmd}
	}
	return []candidate{
		of("tokenbucket", gatehouse.TokenBucket, gatehouse.Command{}),
		of("fixedwindow", gatehouse.FixedWindow, gatehouse.Command{}),
		of("gcra", gatehouse.GCRA, gatehouse.Command{Burst: size - 1}),
		of("gcra, halves", gatehouse.GCRA, gatehouse.Command{Size: size / 2, Burst: size/2 - 1}),
		of("slidingwindow", gatehouse.SlidingWindow, gatehouse.Command{}),
		of("slidingwindow fine", gatehouse.SlidingWindow, gatehouse.Command{Mode: gatehouse.ModeFine}),
		of("slidingwindow strict", gatehouse.SlidingWindow, gatehouse.Command{Mode: gatehouse.ModeStrict}),
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
	v.worst = max(v.worst, other.worst)
}

// judge tries a limiter on the requests of one key. It is held to what it let through itself: one wrong
// decision is one error, however different everything after it becomes.
func (v *verdict) judge(l *limiter, requests []int64) {
	let := history{}
	for _, at := range requests {
		inside := let.count(at)
		passes := inside < size
		if l.kind != 0 {
			passes = l.ask(at).Outcome == gatehouse.Granted
		}
		v.offered++
		switch {
		case passes:
			let.add(at)
			v.passed++
			v.worst = max(v.worst, inside+1)
			if inside >= size {
				v.falseAllows++
				v.excess += inside + 1 - size
			}
		case inside < size:
			v.falseDenies++
		}
	}
}
