package control

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Barrier opens when as many commands wait at it as its size says; the first one sets the size. Once
// open it stays so: a command that comes after the last that it waited for gets a conflict, until it is
// deleted or has been kept long enough. A waiter that leaves does not count any more.
type Barrier struct {
	commandCounts
	size         int64
	arrivals     map[Ticket]struct{} // waiting commands; when open, those not answered yet
	peakArrivals int                 // how many there were at once since the map was made
	open         bool
	until        time.Time // how long an open barrier is kept, or when a closed one was used last
}

// Step implements [State].
func (b *Barrier) Step(now time.Time, turn *Turn) { turn.Decision = b.applyCommand(now, turn) }

func (b *Barrier) applyCommand(now time.Time, turn *Turn) gatehouse.Decision {
	if turn.Op == gatehouse.OpWait {
		return b.waitAtBarrier(now, turn)
	}
	d := b.barrierDecision(now, gatehouse.Granted)
	d.Stats = b.commandStats("total_waited",
		gatehouse.Stat{Name: "size", Value: b.size},
		gatehouse.Stat{Name: "triggered", Value: boolToInt(b.open && now.Before(b.until))})
	return d
}

func (b *Barrier) waitAtBarrier(now time.Time, turn *Turn) gatehouse.Decision {
	if b.created == 0 {
		b.noteFirstUse(now)
	}
	// It was kept long enough. Those who waited when it opened are still let through, each by its ticket.
	if b.open && !now.Before(b.until) && len(b.arrivals) == 0 {
		b.open = false
	}
	// A closed barrier is refreshed by every look, so that it does not expire under those who wait. Only
	// the first arrival chooses the size: later ones cannot change what the others wait for.
	if !b.open {
		b.until = now
		if len(b.arrivals) == 0 {
			b.size = turn.Size
		}
	}
	_, counted := b.arrivals[turn.Ticket]
	if b.open {
		// It is a latecomer: the barrier has opened without it.
		if !counted {
			return failedWith(now, gatehouse.Conflict, "has opened already")
		}
		return b.passBarrier(now, turn)
	}
	// The command itself counts, but only once: it is looked at again with every change.
	arrived := int64(len(b.arrivals))
	if !counted {
		arrived++
	}
	if b.size > 0 && arrived >= b.size {
		b.open, b.until = true, now.Add(keepTime(turn.Command))
		return b.passBarrier(now, turn)
	}
	if turn.MaxWait == 0 {
		// It gives up at once, so it must not count as waiting.
		b.forgetWaiter(turn.Ticket)
		b.countRefused(turn)
	} else if turn.Ticket != 0 {
		if b.arrivals == nil {
			b.arrivals = make(map[Ticket]struct{})
		}
		b.arrivals[turn.Ticket] = struct{}{}
		b.peakArrivals = max(b.peakArrivals, len(b.arrivals))
	}
	d := b.barrierDecision(now, gatehouse.Refused)
	// Only another arrival can open a barrier, and no time is known for that.
	d.RetryAfter = gatehouse.Forever
	return d
}

// passBarrier lets a waiter through the open barrier.
func (b *Barrier) passBarrier(now time.Time, turn *Turn) gatehouse.Decision {
	b.forgetWaiter(turn.Ticket)
	b.countPassed(now, turn)
	return b.barrierDecision(now, gatehouse.Granted)
}

// forgetWaiter forgets a waiter.
func (b *Barrier) forgetWaiter(ticket Ticket) {
	delete(b.arrivals, ticket)
	b.arrivals = trimMap(b.arrivals, &b.peakArrivals)
}

func (b *Barrier) barrierDecision(now time.Time, outcome gatehouse.Outcome) gatehouse.Decision {
	d := gatehouse.Decision{Outcome: outcome, At: now, Limit: b.size}
	// An open barrier waits for no more arrivals: Remaining stays 0.
	if !b.open {
		d.Remaining = max(0, b.size-int64(len(b.arrivals)))
	}
	return d
}

// Undo implements [State].
func (b *Barrier) Undo(_ time.Time, turn *Turn) { b.forgetWaiter(turn.Ticket) }

// Expiry implements [State]. A closed barrier without waiters is like a new one.
func (b *Barrier) Expiry() time.Time { return b.until }

func (b *Barrier) codeFields(c *stateCodec) {
	c.codeVersion(1)
	b.commandCounts.codeFields(c)
	c.codeSize(&b.size)
	c.codeBool(&b.open)
	c.codeTime(&b.until)
	tickets := slices.Sorted(maps.Keys(b.arrivals))
	n := c.codeLength(len(tickets), 1)
	if c.reading && n > 0 {
		tickets = make([]Ticket, n)
		b.arrivals = make(map[Ticket]struct{}, n)
	}
	// Tickets are written in order, each as the difference to the one before: small numbers take one byte.
	// A difference of 0 or one that overflows cannot have been written.
	last := Ticket(0)
	for _, ticket := range tickets {
		more := uint64(ticket - last) // than the one before
		c.codeUint64(&more)
		if more > uint64(math.MaxUint64-last) || more == 0 {
			c.failDecoding("tickets out of order")
		}
		last += Ticket(more)
		if c.reading {
			b.arrivals[last] = struct{}{}
			b.peakArrivals = len(b.arrivals)
		}
	}
}

// ForgetWaiters makes a state forget waiting commands whose clients are gone and sent no undo: a barrier
// does not count them any more, other states remember no waiting command. It reports whether it changed the
// state.
func ForgetWaiters(s State, gone func(Ticket) bool) (changed bool) {
	b, ok := s.(*Barrier)
	if !ok {
		return false
	}
	// The waiters' servers have failed, so no undo will come. The caller stores the state only if it
	// changed.
	before := len(b.arrivals)
	maps.DeleteFunc(b.arrivals, func(ticket Ticket, _ struct{}) bool { return gone(ticket) })
	b.arrivals = trimMap(b.arrivals, &b.peakArrivals)
	return len(b.arrivals) < before
}
