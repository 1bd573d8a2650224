package storetest

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// Chunks judges what passed a token bucket or a fixed window that servers take in chunks: in each window,
// counted from the last reset or delete, no more than the limit and what was refunded of it. It is told of
// all calls and of all changes of the record. All calls have the same limit, of one interval.
//
// What was drawn from a chunk passed between the call and its answer, by the true time; most of it at one
// instant, as the store was not asked. What the store decided passed by the time of the record. Where it
// cannot be told on which side of a reset a grant was it counts on neither.
type Chunks struct {
	Kind     gatehouse.Kind
	Size     int64
	Interval time.Duration

	mu    sync.Mutex
	lives []limiterLife
	calls []ChunkCall
}

// A ChunkCall is a command to the limiter and what came of it.
type ChunkCall struct {
	Cmd        gatehouse.Command
	Decision   gatehouse.Decision
	Err        error
	Begin, End time.Time // the true time
}

// A limiterLife is the time from one reset or delete to the next.
type limiterLife struct {
	from    time.Time // the true time
	record  int64     // the time of the record
	created int64     // when the limiter in it was used first; 0 when it was not
	end     int64     // of its first window; 0 while it is not known
}

// Changed notes a change of the record at its true time. state is nil when there is no limiter; it is used.
func (c *Chunks) Changed(now time.Time, record int64, state control.State) {
	created, end := int64(0), int64(0)
	if state != nil {
		turn := control.Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}}
		state.Step(time.Unix(0, record), &turn)
		d := turn.Decision
		i := slices.IndexFunc(d.Stats, func(s gatehouse.Stat) bool { return s.Name == "created_at" })
		created = d.Stats[i].Value.(time.Time).UnixNano()
		end = d.At.Add(d.ResetAfter).UnixNano()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.lives) == 0 {
		c.lives = append(c.lives, limiterLife{})
	}
	// A limiter that was created at another time is another one: it was reset or deleted in between.
	last := &c.lives[len(c.lives)-1]
	// 0 is a life whose limiter was not used yet. The first use gives it a window.
	switch last.created {
	case created:
	case 0:
		last.created, last.end = created, end
	default:
		c.lives = append(c.lives, limiterLife{now, record, created, end})
	}
}

// Done notes a call that has ended.
func (c *Chunks) Done(call *ChunkCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, *call)
}

// A lifeWindow is a window in a life.
type lifeWindow struct {
	life int
	end  int64
}

// windowAt is the slot around an instant of the record's time in a life.
func (c *Chunks) windowAt(n int, at int64) lifeWindow {
	l, interval := c.lives[n], int64(c.Interval)
	if c.Kind == gatehouse.FixedWindow {
		return lifeWindow{n, time.Unix(0, at).Truncate(c.Interval).Add(c.Interval).UnixNano()}
	}
	if at < l.end || l.end == 0 {
		return lifeWindow{n, l.end}
	}
	return lifeWindow{n, l.end + ((at-l.end)/interval+1)*interval}
}

// lifeAt is the number of the life in which something was decided by the record's time; ok is false when that
// cannot be told.
func (c *Chunks) lifeAt(at int64) (n int, ok bool) {
	n, exact := slices.BinarySearchFunc(c.lives, at, func(l limiterLife, at int64) int {
		return cmp.Compare(l.record, at)
	})
	return n - 1, !exact && n > 0
}

// windowOf finds the slot that a grant counts in.
func (c *Chunks) windowOf(call *ChunkCall) (s lifeWindow, ok bool) {
	d := &call.Decision
	at := d.At.Add(d.Delay).UnixNano()
	// The store decided itself: the time of the record is the true one for it.
	if d.Drawn == 0 {
		n, ok := c.lifeAt(d.At.UnixNano())
		if later, sure := c.lifeAt(at); !ok || !sure || later != n {
			return s, false // a reset has dropped the reservation
		}
		return c.windowAt(n, at), true
	}
	// Drawn from a chunk: the call must lie within one life from begin to end, or it counts in none.
	n, exact := slices.BinarySearchFunc(c.lives, call.End, func(l limiterLife, at time.Time) int {
		return l.from.Compare(at)
	})
	if exact || n == 0 || !call.Begin.After(c.lives[n-1].from) {
		return s, false
	}
	// The chunk may be one of the life before, and is used within the first window of this one then.
	return lifeWindow{n - 1, max(d.At.Add(d.ResetAfter).UnixNano(), c.windowAt(n-1, 0).end)}, true
}

// Check returns what is wrong, nil when nothing is.
func (c *Chunks) Check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Calls that failed are left out, so that what was undone of them need not be subtracted.
	grants := make(map[lifeWindow][]*ChunkCall)
	for i := range c.calls {
		if call := &c.calls[i]; c.letThrough(call) {
			if s, ok := c.windowOf(call); ok {
				grants[s] = append(grants[s], call)
			}
		}
	}
	for s, calls := range grants {
		passed := int64(0)
		for _, call := range calls {
			passed += call.Cmd.Cost
		}
		// What was refunded may have been taken again in the same window.
		if back := c.refundedIn(s, calls); passed > c.Size+back {
			return fmt.Errorf("%d passed in the window until %s, number %d since a reset or delete, "+
				"want at most %d and %d that were refunded",
				passed, time.Unix(0, s.end).UTC(), s.life, c.Size, back)
		}
	}
	return nil
}

// letThrough reports whether a call was granted something that counts. A reservation with a holder does not:
// it may have been cancelled.
func (c *Chunks) letThrough(call *ChunkCall) bool {
	op := call.Cmd.Op
	return call.Err == nil && call.Decision.Outcome == gatehouse.Granted &&
		(op == gatehouse.OpAcquire || op == gatehouse.OpReserve && call.Cmd.Holder == "")
}

// late is how long after its end a call that failed may still take effect.
const late = 5 * time.Second

// possiblyUndone is what calls may have had at the time of a refund that failed and gave it back later.
func (c *Chunks) possiblyUndone(r *ChunkCall) (n int64) {
	for i := range c.calls {
		call := &c.calls[i]
		if call.Err != nil && call.Cmd.Op == gatehouse.OpAcquire && !call.Begin.After(r.End) &&
			call.End.Add(late).After(r.Begin) {
			n += call.Cmd.Cost
		}
	}
	return n
}

// refundedIn is how much was given back in a slot: of each refund no more than had passed until then, and had
// not been refunded before.
func (c *Chunks) refundedIn(s lifeWindow, grants []*ChunkCall) (back int64) {
	// A refund that failed stays in the list: it may have taken effect all the same.
	refunds := slices.DeleteFunc(slices.Clone(c.calls), func(r ChunkCall) bool {
		return r.Cmd.Op != gatehouse.OpRefund || r.Err == nil && r.Decision.Outcome != gatehouse.Granted
	})
	slices.SortStableFunc(refunds, func(a, b ChunkCall) int { return a.Decision.At.Compare(b.Decision.At) })
	for _, r := range refunds {
		at := r.Decision.At.UnixNano()
		// A refund that failed may have taken effect late. The check must not report what it may explain.
		if r.Err != nil {
			if r.Begin.UnixNano() < s.end && r.End.Add(late+c.Interval).UnixNano() > s.end {
				back += r.Cmd.Cost
			}
			continue
		}
		// If the life is uncertain the refund counts, since the check must not report a right store.
		if n, ok := c.lifeAt(at); ok && c.windowAt(n, at) != s {
			continue
		}
		passed := c.possiblyUndone(&r)
		for _, g := range grants {
			// A grant from a chunk carries the time of the chunk, so that its end by the true time counts.
			before := !g.Decision.At.After(r.Decision.At)
			if g.Decision.Drawn != 0 {
				before = !g.End.After(r.End)
			}
			if before {
				passed += g.Cmd.Cost
			}
		}
		// The limiter never gives back more than was taken: a refund of an idle window adds nothing.
		back += max(0, min(r.Cmd.Cost, passed-back))
	}
	return back
}
