package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// This file estimates how long requests may have to wait: from how long the last holds lasted, and by the
// arithmetic of limiters. It changes nothing.

// maxForecast is how many requests of a line have an estimate: further back it would be a guess.
const maxForecast = 1000

// forecastWaits is how long each of a line waits from now on if so many percent of holds are as long as some
// of the last were, Forever where nothing is known.
func forecastWaits(now time.Time, s State, line []LineEntry, percent int) []time.Duration {
	waits := make([]time.Duration, len(line))
	for i := range waits {
		waits[i] = gatehouse.Forever
	}
	// The line is played through, which takes as long as the line is.
	line = line[:min(len(line), maxForecast)]
	switch s := s.(type) {
	case *Semaphore:
		f := slotForecast{semaphore: s, now: now.UnixNano(), percent: percent}
		f.fillWaits(line, waits)
	// It fires for all of them at once.
	case *Watchdog:
		for i := range line {
			waits[i] = max(0, s.deadline.Sub(now))
		}
	case anyLimiter:
		step := s.stepAt(now.UnixNano(), nil)
		step.forecastTakes(line, waits)
	}
	return waits
}

// A slotForecast plays how slots come free.
type slotForecast struct {
	semaphore *Semaphore
	now       int64
	percent   int
	ends      minheap.Heap[slotEnd]
}

// A slotEnd is when slots come free, from now on.
type slotEnd struct {
	after time.Duration
	cost  int64
}

// Before implements [minheap.Item].
func (e slotEnd) Before(other slotEnd) bool { return e.after < other.after }

// fillWaits lets one waiter after the other in, as soon as enough slots are free for it.
func (f *slotForecast) fillWaits(line []LineEntry, waits []time.Duration) {
	s := f.semaphore
	if s.closing() != nil || s.size == 0 {
		return
	}
	for _, h := range s.holds.heap {
		if after, known := f.holdLeft(h); known {
			f.ends.Push(slotEnd{after, h.cost})
		}
	}
	free, at := s.size-s.heldCost, time.Duration(0)
	for i := range line {
		for free < line[i].Cost {
			// What is held without an end that could be guessed comes never free, here.
			if len(f.ends) == 0 {
				return
			}
			end := f.ends.Pop()
			at, free = max(at, end.after), free+end.cost
		}
		waits[i] = at
		free -= line[i].Cost
		// Those behind wait for what this one will hold, too.
		if length, known := f.holdLength(line[i].Expires); known {
			f.ends.Push(slotEnd{at + length, line[i].Cost})
		}
	}
}

// holdLeft is how long a hold lasts from now on: as others did that lasted longer than it has so far.
func (f *slotForecast) holdLeft(h *hold) (left time.Duration, known bool) {
	left = h.timeLeft(f.now)
	ends := left != gatehouse.Forever
	if age := time.Duration(f.now - h.acquired); h.acquired != 0 {
		if length, ok := f.semaphore.lengths.quantile(f.percent, age); ok {
			// One that is renewed does not end when its present term does.
			length -= age
			if ends && h.renewals == 0 {
				length = min(length, left)
			}
			return length, true
		}
	}
	return left, ends
}

// holdLength is how long a new hold lasts that may last as long as expires; 0 is without an end.
func (f *slotForecast) holdLength(expires time.Duration) (length time.Duration, known bool) {
	if length, ok := f.semaphore.lengths.quantile(f.percent, -1); ok {
		return length, true
	}
	return expires, expires > 0
}

// forecastTakes takes what each of a line wants on a copy of the limiter, as early as its limits allow.
func (l *limiterStep) forecastTakes(line []LineEntry, waits []time.Duration) {
	if l.extra.closing() != nil {
		return
	}
	trial := l.copyForTrial()
	if trial.extra != nil {
		// The grants that have ended are still to be settled at the limiter itself.
		if trial.extra.shares != nil {
			trial.extra.shares = trial.extra.shares.copyShares()
		}
		trial.passTime()
	}
	cmd := gatehouse.Command{Op: gatehouse.OpReserve, Rule: gatehouse.Rule{Size: gatehouse.InForce}}
	for i := range line {
		cmd.Cost = max(1, line[i].Cost)
		d := gatehouse.Decision{At: time.Unix(0, l.now)}
		trial.turn, trial.d = &Turn{Command: &cmd}, &d
		trial.reserveTokens()
		// Those behind it are granted later still, so that nothing is known of them either.
		if d.Outcome != gatehouse.Granted {
			return
		}
		waits[i] = d.Delay
	}
}
