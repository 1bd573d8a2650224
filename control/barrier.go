package control

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Barrier opens when as many wait at it as its size says; the size is that of the first who waits. Once
// open it stays so: whoever comes after the last that it waited for gets a conflict, until it is
// deleted or has been kept long enough. A waiter that leaves does not count any more.
type Barrier struct {
	commandCounts
	size         int64
	arrivals     map[gatehouse.Ticket]struct{} // who waits; when open, who has not been told yet
	peakArrivals int                           // how many there were at once since the map was made
	open         bool
	until        time.Time // how long an open barrier is kept, or when a closed one was used last
}

// Step implements [State].
func (b *Barrier) Step(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	if cmd.Op == gatehouse.OpWait {
		return b.waitAtBarrier(now, cmd)
	}
	d := b.barrierDecision(now, gatehouse.Granted)
	d.Stats = b.commandStats("total_waited",
		gatehouse.Stat{Name: "size", Value: b.size},
		gatehouse.Stat{Name: "triggered", Value: boolToInt(b.open && now.Before(b.until))})
	return d
}

func (b *Barrier) waitAtBarrier(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	if b.created == 0 {
		b.noteFirstUse(now)
	}
	// It was kept long enough. Those who waited when it opened are still let through, each by its ticket.
	if b.open && !now.Before(b.until) && len(b.arrivals) == 0 {
		b.open = false
	}
	if !b.open {
		b.until = now
		if len(b.arrivals) == 0 {
			b.size = cmd.Size
		}
	}
	_, counted := b.arrivals[cmd.Ticket]
	if b.open {
		if !counted {
			return failedWith(now, gatehouse.Conflict, "has opened already")
		}
		return b.passBarrier(now, cmd)
	}
	arrived := int64(len(b.arrivals))
	if !counted {
		arrived++
	}
	if b.size > 0 && arrived >= b.size {
		b.open, b.until = true, now.Add(keepTime(cmd))
		return b.passBarrier(now, cmd)
	}
	if cmd.MaxWait == 0 {
		b.forgetWaiter(cmd.Ticket)
		b.countRefused(cmd)
	} else if cmd.Ticket != 0 {
		if b.arrivals == nil {
			b.arrivals = make(map[gatehouse.Ticket]struct{})
		}
		b.arrivals[cmd.Ticket] = struct{}{}
		b.peakArrivals = max(b.peakArrivals, len(b.arrivals))
	}
	d := b.barrierDecision(now, gatehouse.Refused)
	d.RetryAfter = gatehouse.Forever
	return d
}

// passBarrier lets a waiter through the open barrier.
func (b *Barrier) passBarrier(now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	b.forgetWaiter(cmd.Ticket)
	b.countPassed(now, cmd)
	return b.barrierDecision(now, gatehouse.Granted)
}

// forgetWaiter forgets a waiter.
func (b *Barrier) forgetWaiter(ticket gatehouse.Ticket) {
	delete(b.arrivals, ticket)
	b.arrivals = trimMap(b.arrivals, &b.peakArrivals)
}

func (b *Barrier) barrierDecision(now time.Time, outcome gatehouse.Outcome) gatehouse.Decision {
	d := gatehouse.Decision{Outcome: outcome, At: now, Limit: b.size}
	if !b.open {
		d.Remaining = max(0, b.size-int64(len(b.arrivals)))
	}
	return d
}

// Undo implements [State].
func (b *Barrier) Undo(_ time.Time, cmd *gatehouse.Command) { b.forgetWaiter(cmd.Ticket) }

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
		tickets = make([]gatehouse.Ticket, n)
		b.arrivals = make(map[gatehouse.Ticket]struct{}, n)
	}
	last := gatehouse.Ticket(0)
	for _, ticket := range tickets {
		more := uint64(ticket - last) // than the one before
		c.codeUint64(&more)
		if more > uint64(math.MaxUint64-last) || more == 0 {
			c.failDecoding("tickets out of order")
		}
		last += gatehouse.Ticket(more)
		if c.reading {
			b.arrivals[last] = struct{}{}
			b.peakArrivals = len(b.arrivals)
		}
	}
}

// ForgetWaiters makes a state forget those who waited and are gone, without an undo of theirs: at a barrier
// they do not count any more, other states remember nobody. It reports whether it changed the state.
func ForgetWaiters(s State, gone func(gatehouse.Ticket) bool) (changed bool) {
	b, ok := s.(*Barrier)
	if !ok {
		return false
	}
	before := len(b.arrivals)
	maps.DeleteFunc(b.arrivals, func(ticket gatehouse.Ticket, _ struct{}) bool { return gone(ticket) })
	b.arrivals = trimMap(b.arrivals, &b.peakArrivals)
	return len(b.arrivals) < before
}
