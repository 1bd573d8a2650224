package lazy

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A name is one limiter as this server knows it. Locks are taken in this order: exchanging, mu, and those of
// the store.
type name struct {
	store *Store
	key   gatehouse.Key
	rule  SyncRule
	fast  atomic.Bool // commands are answered from memory
	asked atomic.Bool // somebody was told so since the last round, and may rely on it

	exchanging chan struct{} // has room for one: whoever makes a round trip

	mu      sync.Mutex
	gone    bool // it was forgotten
	entered bool // it is in a round
	now     time.Time
	used    bool // it has saved a round trip since the last round

	// Of names that are taken in chunks.
	chunk     *chunk   // nil when there is none
	refused   *refusal // nil when there is none
	rest      rest
	exchanges uint64 // the number of the last exchange about chunks
	limit     int64  // that was in force at the last one; 0 when it is not known

	// The rest is of names that are not taken in chunks.
	state   control.State // as of the last exchange, and what was let through here since; nil: not known
	learnt  time.Time     // when an exchange succeeded last
	failure error         // of the last exchange
	errands []*errand     // queues that the store has to serve
	taking  bool          // the store may take for them at present, so that nothing may be taken here
	foreign int           // for how many rounds it counts as slow, because the store was needed
	untold  untold
}

// Untold is what the store is still to be told.
type untold struct {
	limits   gatehouse.Command   // the last command that came with limits
	changed  bool                // those are others than the store was told
	cost     int64               // how much was let through
	commands int64               // in how many commands
	undone   []gatehouse.Command // undos of what the store was told already
	since    time.Time           // what was let through later is in none of the reports so far
}

const (
	// maxStale is for how many intervals exchanges may fail until the store counts as away; at least stale.
	maxStale = 3
	stale    = time.Second

	// foreignRounds is for how many intervals a name counts as slow after a command that the store served.
	foreignRounds = 100

	// maxBackwards is how far the store's time may go back while it is taken to stand still, as store/cas
	// does. After more than that all is learnt anew.
	maxBackwards = 10 * time.Second

	// maxUndone is how many undos wait for the next exchange. What more are about comes back with time.
	maxUndone = 1000
)

// apply serves a queue. errGone says that it did nothing.
func (n *name) apply(ctx context.Context, queue []control.Turn) error {
	if n.rule.Chunk > 0 {
		return n.fromChunk(ctx, queue)
	}
	answered, err := n.atOnce(queue)
	if answered || err != nil {
		return err
	}
	return n.through(ctx, queue)
}

// clock is the store's time, which does not go back by little. It is called with the lock held.
func (n *name) clock() time.Time {
	now := n.store.shared.Now()
	if now.Before(n.now) && n.now.Sub(now) <= maxBackwards {
		return n.now
	}
	n.now = now
	return now
}

// own reports whether a queue can be served here.
func own(queue []control.Turn) bool {
	for i := range queue {
		switch queue[i].Command.Op {
		case gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpUndo:
		default:
			return false
		}
	}
	return true
}

// takes reports whether a queue may take something.
func takes(queue []control.Turn) bool {
	return slices.ContainsFunc(queue, func(turn control.Turn) bool {
		switch turn.Command.Op {
		case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
			return true
		}
		return false
	})
}

// atOnce serves a queue by the state that is known here, if it is, and if that is enough.
func (n *name) atOnce(queue []control.Turn) (answered bool, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.gone:
		return false, errGone
	case n.state == nil || n.taking || !own(queue):
		return false, nil
	}
	now := n.clock()
	age, patience := now.Sub(n.learnt), max(stale, maxStale*n.rule.Interval)
	switch {
	case age > patience && n.failure != nil:
		n.store.enter(n)
		return false, n.failure
	case age > patience+maxBackwards || age < -maxBackwards: // the time was set
		return false, nil
	}
	n.state = control.Serve(now, n.key.Kind, n.state, queue)
	n.used = true
	for i := range queue {
		n.untold.note(&queue[i])
	}
	n.store.enter(n)
	return true, nil
}

// none reports whether there is nothing to tell.
func (u *untold) none() bool { return u.cost == 0 && !u.changed && len(u.undone) == 0 }

// note notes what a turn that was served here means for the store.
func (u *untold) note(turn *control.Turn) {
	cmd := turn.Command
	switch {
	case cmd.Op == gatehouse.OpUndo:
		u.undo(cmd)
	case cmd.Op != gatehouse.OpAcquire || turn.Decision.Outcome == gatehouse.Invalid:
		return
	case !cmd.Again && cmd.HasLimit() && !sameLimits(cmd, &u.limits):
		u.limit(cmd)
		u.changed = true
	}
	if cmd.Op == gatehouse.OpAcquire && turn.Decision.Outcome == gatehouse.Granted {
		u.cost = min(u.cost+cmd.Cost, gatehouse.MaxSize)
		u.commands++
	}
}

// undo notes that something is taken back.
func (u *untold) undo(cmd *gatehouse.Command) {
	switch {
	case cmd.Granted == nil:
	case cmd.Granted.At.After(u.since) && u.cost >= cmd.Cost && u.commands > 0:
		u.cost, u.commands = u.cost-cmd.Cost, u.commands-1
	case len(u.undone) < maxUndone:
		undone := *cmd
		undone.Ticket = 0
		u.undone = append(u.undone, undone)
	}
}

// limit keeps the limits of a command.
func (u *untold) limit(cmd *gatehouse.Command) {
	u.limits = gatehouse.Command{
		Op: gatehouse.OpAcquire, Mode: cmd.Mode, Calendar: cmd.Calendar, Size: cmd.Size,
		Interval: cmd.Interval, Zone: cmd.Zone, Limits: slices.Clone(cmd.Limits), Burst: cmd.Burst,
		Guard: cmd.Guard,
	}
}

// sameLimits reports whether two commands come with the same limits.
func sameLimits(a, b *gatehouse.Command) bool {
	return a.Size == b.Size && a.Interval == b.Interval && a.Burst == b.Burst && a.Mode == b.Mode &&
		a.Calendar == b.Calendar && a.Guard == b.Guard && a.Zone == b.Zone && slices.Equal(a.Limits, b.Limits)
}
