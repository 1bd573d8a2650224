package lazy

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// An errand is a queue that the store has to serve.
type errand struct {
	queue []control.Turn
	done  bool // guarded by exchanging
	err   error
}

// maxErrand is the most turns of errands in one round trip, unless one of them alone has more.
const maxErrand = 4096

// through has the store serve a queue, after it was told what was let through here, and learns what it knows.
// Those that come while another exchange is under way go together in the next one.
func (n *name) through(ctx context.Context, queue []control.Turn) error {
	e := &errand{queue: queue}
	n.mu.Lock()
	if n.gone {
		n.mu.Unlock()
		return errGone
	}
	n.errands = append(n.errands, e)
	n.mu.Unlock()
	n.exchanging <- struct{}{}
	defer func() { <-n.exchanging }()
	for !e.done {
		_ = n.trade(ctx) // which the errand is told
	}
	n.mu.Lock()
	n.store.enter(n)
	n.mu.Unlock()
	return e.err
}

// A trade is one round trip: a report, the queues of errands behind it, and what came of it.
type trade struct {
	untold  untold
	errands []*errand
	turns   []control.Turn
	now     time.Time
	form    []byte // of the state; nil when there is none
}

// trade tells the store what is untold, has it serve errands, and learns the state. It is called with
// exchanging held.
func (n *name) trade(ctx context.Context) error {
	n.mu.Lock()
	t := n.begin()
	n.mu.Unlock()
	err := n.store.shared.View(ctx, n.key, t.turns, func(now time.Time, state control.State) {
		t.now = now
		if state != nil {
			t.form = control.Encode(nil, state)
		}
	})
	n.mu.Lock()
	n.settle(t, err)
	n.mu.Unlock()
	t.deliver(err)
	return err
}

// begin makes the turns of a trade. It is called with the lock held.
func (n *name) begin() *trade {
	t := &trade{untold: n.untold}
	n.untold = untold{limits: t.untold.limits, since: n.clock()}
	t.report()
	i := 0
	for ; i < len(n.errands) && (i == 0 || len(t.turns) < maxErrand); i++ {
		if takes(n.errands[i].queue) {
			n.taking = true
			n.fast.Store(false)
		}
		for j := range n.errands[i].queue {
			t.add(n.errands[i].queue[j].Command)
		}
	}
	t.errands = n.errands[:i:i]
	n.errands = n.errands[i:]
	if len(n.errands) == 0 {
		n.errands = nil
	}
	if len(t.turns) == 0 {
		t.add(&gatehouse.Command{Op: gatehouse.OpStats})
	}
	return t
}

// command takes what was let through from a limiter that has not heard of it; nil when nothing was.
func (u *untold) command() *gatehouse.Command {
	if u.cost == 0 && !u.changed {
		return nil
	}
	cmd := u.limits
	cmd.Cost, cmd.Amount, cmd.Forced, cmd.Again = u.cost, u.commands, true, !u.changed
	return &cmd
}

// report adds the turns that tell what was let through here.
func (t *trade) report() {
	u := &t.untold
	if cmd := u.command(); cmd != nil {
		t.turns = append(t.turns, control.Turn{Command: cmd})
	}
	for i := range u.undone {
		t.turns = append(t.turns, control.Turn{Command: &u.undone[i]})
	}
}

// add adds a command without its ticket: who waits here is served here, and the store must not wait for them.
func (t *trade) add(cmd *gatehouse.Command) {
	c := *cmd
	c.Ticket = 0
	t.turns = append(t.turns, control.Turn{Command: &c})
}

// settle works what came of a trade in. It is called with the lock held.
func (n *name) settle(t *trade, err error) {
	n.taking = false
	defer func() { n.fast.Store(n.state != nil && n.foreign == 0) }()
	if err != nil {
		// Whether the store has heard is not known: rather too much is counted than too little.
		u := &n.untold
		u.cost = min(u.cost+t.untold.cost, gatehouse.MaxSize)
		u.commands += t.untold.commands
		u.changed = u.changed || t.untold.changed
		n.failure = err
		return
	}
	if t.now.After(n.now) || n.now.Sub(t.now) > maxBackwards {
		n.now = t.now
	}
	now := n.clock()
	n.failure, n.learnt, n.state = nil, now, nil
	if t.form != nil {
		n.state, _ = control.Decode(n.key.Kind, t.form) // if it cannot be, the store says so when asked
	}
	n.foreign--
	for _, e := range t.errands {
		if !own(e.queue) {
			n.foreign = foreignRounds
		}
	}
	n.foreign = max(0, n.foreign)
	t.learn(&n.untold)
	if n.state != nil {
		n.onTop(now)
	}
}

// learn notes the limits that errands came with, which the store knows now.
func (t *trade) learn(u *untold) {
	for _, e := range t.errands {
		for i := range e.queue {
			cmd := e.queue[i].Command
			if cmd.Op == gatehouse.OpAcquire && !cmd.Again && cmd.HasLimit() && !u.changed {
				u.limit(cmd)
			}
		}
	}
}

// onTop counts what happened here during the exchange on top of the state that was learnt by it.
func (n *name) onTop(now time.Time) {
	u := &n.untold
	if cmd := u.command(); cmd != nil {
		n.state.Step(now, cmd)
	}
	for i := range u.undone {
		n.state.Undo(now, &u.undone[i])
	}
}

// deliver hands the decisions of errands out.
func (t *trade) deliver(err error) {
	at := len(t.turns)
	for _, e := range t.errands {
		at -= len(e.queue)
	}
	for _, e := range t.errands {
		for i := range e.queue {
			e.queue[i].Decision = t.turns[at].Decision
			at++
		}
		e.done, e.err = true, err
	}
}

// exchange tells the store what was let through here, and learns what the others have. A name that was not
// used since the last time is forgotten instead: to learn of it each interval would cost more round trips
// than it saves.
func (n *name) exchange() {
	n.exchanging <- struct{}{}
	defer func() { <-n.exchanging }()
	n.mu.Lock()
	n.entered = false
	idle := !n.used && n.untold.none() && len(n.errands) == 0 && n.chunk == nil && n.rest.until.IsZero()
	if idle && n.hasAsker() {
		idle = false
	}
	n.used = false
	if idle {
		n.store.forget(n)
	}
	n.mu.Unlock()
	if idle {
		return
	}
	if n.rule.Chunk > 0 {
		n.giveBackUnused()
	} else {
		_ = n.trade(context.Background()) // who asks while it fails is told so
	}
	n.mu.Lock()
	n.store.enter(n)
	n.mu.Unlock()
}

// hasAsker reports whether a caller was told since the last round that this name is not slow: its command may
// be about to come, where a wait for the store would hold up others. If not, the name is slow from now on.
func (n *name) hasAsker() bool {
	if n.asked.Swap(false) {
		return true
	}
	fast := n.fast.Swap(false)
	if !n.asked.Load() {
		return false
	}
	n.fast.Store(fast) // somebody asked just now
	return true
}

// finish is the last exchange.
func (n *name) finish() {
	n.exchanging <- struct{}{}
	defer func() { <-n.exchanging }()
	n.mu.Lock()
	nothing := n.untold.none()
	n.mu.Unlock()
	if n.rule.Chunk > 0 {
		n.giveBack()
	} else if !nothing {
		_ = n.trade(context.Background()) // nobody is left who could be told that it failed
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.store.forget(n)
}
