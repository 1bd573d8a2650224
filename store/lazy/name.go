package lazy

import (
	"context"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A name is one limiter as this server knows it.
type name struct {
	store *Store
	key   gatehouse.Key

	exchanging sync.Mutex // held for a round trip, and before mu

	mu      sync.Mutex
	entered bool          // it is in a round
	state   control.State // as of the last exchange, and what was let through here since; nil: not known
	learnt  time.Time     // when an exchange succeeded last
	failure error         // of the exchanges since
	limits  gatehouse.Command
	untold  int64 // how many were let through since the last exchange began
	quiet   int   // rounds in which nobody asked

	chunk chunk
}

// idleRounds is after how many rounds in which nobody asked a name is forgotten.
const idleRounds = 16

// local reports whether a queue can be decided about here.
func local(queue []control.Turn) bool {
	for i := range queue {
		switch queue[i].Command.Op {
		case gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay:
		default:
			return false
		}
	}
	return true
}

// atOnce decides by the state that is known here.
func (n *name) atOnce(ctx context.Context, rule Rule, queue []control.Turn) error {
	if !local(queue) {
		return n.through(ctx, queue)
	}
	n.mu.Lock()
	if n.state == nil {
		n.mu.Unlock()
		return n.through(ctx, queue)
	}
	defer n.mu.Unlock()
	now := n.store.shared.Now()
	if n.failure != nil && now.Sub(n.learnt) > max(stale, maxStale*rule.Interval) {
		n.store.enter(n, rule.Interval)
		return n.failure
	}
	n.state = control.Serve(now, n.key.Kind, n.state, queue)
	n.quiet = 0
	for i := range queue {
		cmd := queue[i].Command
		if cmd.Op != gatehouse.OpAcquire {
			continue
		}
		if !cmd.Again {
			n.limits = *cmd
		}
		if queue[i].Decision.Outcome == gatehouse.Granted {
			n.untold += cmd.Cost
		}
	}
	n.store.enter(n, rule.Interval)
	return nil
}

// through has the store decide, after it was told what was let through here, and learns what it knows.
func (n *name) through(ctx context.Context, queue []control.Turn) error {
	n.exchanging.Lock()
	defer n.exchanging.Unlock()
	n.mu.Lock()
	if n.state != nil && local(queue) { // another has asked meanwhile
		n.mu.Unlock()
		return n.store.shared.Apply(ctx, n.key, queue)
	}
	turns, told := n.report()
	n.mu.Unlock()
	turns = append(turns, queue...)
	form, err := n.ask(ctx, turns)
	n.settle(form, told, err)
	if err != nil {
		return err
	}
	copy(queue, turns[len(turns)-len(queue):])
	n.mu.Lock()
	for i := range queue {
		if cmd := queue[i].Command; cmd.Op == gatehouse.OpAcquire && !cmd.Again {
			n.limits = *cmd
		}
	}
	n.mu.Unlock()
	return nil
}

// report is what the store is to be told. It is called with the lock held.
func (n *name) report() (turns []control.Turn, told int64) {
	told = n.untold
	n.untold = 0
	if told == 0 {
		return nil, 0
	}
	cmd := n.limits
	cmd.Cost, cmd.Forced, cmd.Again, cmd.MaxWait, cmd.Ticket = told, true, false, 0, 0
	cmd.Since = time.Time{}
	return []control.Turn{{Command: &cmd}}, told
}

// ask applies turns to the store, and returns the form of the state after them.
func (n *name) ask(ctx context.Context, turns []control.Turn) (form []byte, err error) {
	err = n.store.shared.View(ctx, n.key, turns, func(_ time.Time, state control.State) {
		if state != nil {
			form = control.Encode(nil, state)
		}
	})
	return form, err
}

// settle works the answer to an exchange in. What was let through during it is counted once more on top.
func (n *name) settle(form []byte, told int64, err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err != nil {
		// Whether the store has heard is not known: rather too much is counted than too little.
		n.untold += told
		n.failure = err
		return
	}
	now := n.store.shared.Now()
	n.failure, n.learnt, n.state = nil, now, nil
	if form == nil {
		return // deleted
	}
	state, err := control.Decode(n.key.Kind, form)
	if err != nil {
		return // the store has written it itself, so this is not the place to find out
	}
	n.state = state
	if n.untold > 0 {
		cmd := n.limits
		cmd.Cost, cmd.Forced, cmd.Again, cmd.MaxWait = n.untold, true, false, 0
		n.state.Step(now, &cmd)
	}
}

// exchange tells the store what was let through here, and learns what the others have.
func (n *name) exchange(last bool) {
	n.exchanging.Lock()
	defer n.exchanging.Unlock()
	rule := n.store.rule(n.key)
	if rule.Chunk > 0 {
		idle := rule.Interval
		if last {
			idle = 0
		}
		n.exchangeChunk(rule, idle)
		return
	}
	n.mu.Lock()
	n.entered = false
	turns, told := n.report()
	if turns == nil {
		stats := gatehouse.Command{Op: gatehouse.OpStats}
		turns = []control.Turn{{Command: &stats}}
	}
	n.quiet++
	quiet := n.quiet
	n.mu.Unlock()
	form, err := n.ask(context.Background(), turns)
	n.settle(form, told, err)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.untold > 0 || quiet < idleRounds && err == nil:
		n.store.enter(n, rule.Interval)
	case n.untold == 0 && !n.entered:
		n.store.forget(n)
	}
}

// forget drops a name that nobody asks about. It is called with the name's lock held.
func (s *Store) forget(n *name) {
	n.state = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names[n.key] == n {
		delete(s.names, n.key)
	}
}
