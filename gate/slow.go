package gate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file is how a gate works with a store that takes longer than a moment.

// Slow reports whether the store may take longer than a moment to answer commands for this key. Then Do,
// Try and TryAll may keep their callers waiting for it, and Submit does not.
func (g *Gate) Slow(key gatehouse.Key) bool { return g.slow != nil && g.slow(key) }

// Drain waits until nothing is under way at a slow store. After Close, and when no more commands come, it
// is what to wait for before the store is closed: then all have been answered, and what had to be taken
// back has been.
func (g *Gate) Drain(ctx context.Context) error {
	select {
	case <-g.errands.idle():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the store to finish: %w", ctx.Err())
	}
}

// goesPast reports whether a command for a slow store goes to it past those who stand in line. One that may
// wait stands in line from the start, so that whoever comes first is first.
func (g *Gate) goesPast(key gatehouse.Key, cmd *gatehouse.Command) bool {
	return !mayWait(cmd) && cmd.Op != gatehouse.OpDelete && g.line(key) == nil
}

// submitSlow submits a command for a slow store.
func (g *Gate) submitSlow(
	key gatehouse.Key, cmd *gatehouse.Command, done func(gatehouse.Decision, error),
) (cancel func()) {
	if g.goesPast(key, cmd) {
		e := &errand{gate: g, key: key, cmd: *cmd}
		e.turns, e.one[0].Command = e.one[:], &e.cmd
		e.done = func() { done(e.one[0].Decision, e.one[0].Err) }
		g.begin(e)
		return e.cancel
	}
	t := &ticket{cmd: *cmd, done: done}
	if cmd.Op == gatehouse.OpStats {
		t.done = func(d gatehouse.Decision, err error) {
			g.addWaiting(key, &d)
			done(d, err)
		}
	}
	g.join(key, t)
	return t.cancel
}

// A question is an errand for somebody who waits for the answer, kept for the next one.
type question struct {
	errand
	heard chan struct{}
}

func newQuestion(g *Gate) *question {
	q := &question{errand: errand{gate: g}, heard: make(chan struct{}, 1)}
	q.turns, q.one[0].Command = q.one[:], &q.cmd
	q.done = func() { q.heard <- struct{}{} }
	q.told = q.answered
	return q
}

// ask has a slow store asked, for a caller who leaves when ctx ends.
func (g *Gate) ask(
	ctx context.Context, key gatehouse.Key, cmd *gatehouse.Command,
) (gatehouse.Decision, error) {
	if err := cmd.Check(key); err != nil {
		return gatehouse.Decision{}, err
	}
	q := g.questions.Get().(*question)
	q.key, q.cmd = key, *cmd
	g.begin(&q.errand)
	select {
	case <-q.heard:
		d, err := q.one[0].Decision, q.one[0].Err
		q.over, q.cmd, q.one[0] = false, gatehouse.Command{}, control.Turn{Command: &q.cmd}
		g.questions.Put(q)
		return d, err
	case <-ctx.Done():
		q.cancel()
		return gatehouse.Decision{}, timedOut(ctx, key, cmd)
	}
}

// SubmitAll is TryAll without a goroutine of the caller's, for a slow store: done is called once, as
// Submit's is, and the decisions are there then. The commands and decisions are the gate's until done was
// called, and for ever when cancel was. cancel takes back what was granted to all of them.
func (g *Gate) SubmitAll(
	key gatehouse.Key, cmds []gatehouse.Command, decisions []gatehouse.Decision, done func(error),
) (cancel func()) {
	e := &errand{gate: g, key: key, turns: make([]control.Turn, len(cmds))}
	for i := range cmds {
		e.turns[i].Command = &cmds[i]
	}
	e.done = func() { done(hand(e.turns, decisions)) }
	g.begin(e)
	return e.cancel
}

// An errand is what one caller has a slow store asked for: commands for one key that do not stand in line.
type errand struct {
	gate  *Gate
	key   gatehouse.Key
	turns []control.Turn
	cmd   gatehouse.Command // room for one of them
	one   [1]control.Turn
	done  func()
	told  func(error) // is answered, if that was made before

	mu   sync.Mutex
	left bool // nobody waits for the answer any more
	over bool // it is there
}

// begin has an errand run: by the store, or in a goroutine.
func (g *Gate) begin(e *errand) {
	g.errands.count.Add(1)
	told := e.told
	if told == nil {
		told = e.answered
	}
	switch {
	case g.line(e.key) != nil:
		g.joinAll(e.key, e.turns, e.settle)
	case g.asker != nil:
		g.asker.ApplyAsync(e.key, e.turns, told)
	default:
		go func() { e.answered(g.store.Apply(g.ctx, e.key, e.turns)) }()
	}
}

// answered is called when the store has answered, by the store: it leaves to others what may take long.
func (e *errand) answered(err error) {
	g := e.gate
	fail(e.turns, err)
	if l := g.line(e.key); l != nil { // somebody has begun to wait meanwhile
		g.errands.run(l.serve)
	}
	g.addWaitingAll(e.key, e.turns)
	e.settle()
}

// settle tells the caller, or gives back what nobody wants any more.
func (e *errand) settle() {
	defer e.gate.errands.done()
	e.mu.Lock()
	e.over = true
	left := e.left
	e.mu.Unlock()
	if left {
		e.gate.errands.run(e.giveBack)
	} else {
		e.done()
	}
}

// cancel is what Submit and SubmitAll return.
func (e *errand) cancel() {
	e.mu.Lock()
	first := !e.left
	e.left = true
	over := e.over
	e.mu.Unlock()
	if first && over {
		e.giveBack()
	}
}

// giveBack takes back what was granted.
func (e *errand) giveBack() {
	for i := range e.turns {
		turn := &e.turns[i]
		if t := (&ticket{cmd: *turn.Command}); turn.Err == nil && t.took(&turn.Decision) {
			e.gate.takeBack(e.key, undo(t, &turn.Decision))
		}
	}
}

// errands are what a slow store is asked for, some of it in goroutines. Each ends when its work is done.
type errands struct {
	count atomic.Int64
	mu    sync.Mutex
	none  chan struct{} // closed when count is 0; nil while nobody wants to know
}

func (e *errands) run(work func()) {
	e.count.Add(1)
	go func() {
		defer e.done()
		work()
	}()
}

func (e *errands) done() {
	if e.count.Add(-1) > 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tell()
}

// idle is closed when there are no errands.
func (e *errands) idle() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.none == nil {
		e.none = make(chan struct{})
	}
	none := e.none
	e.tell()
	return none
}

// tell tells those who want to know, if there are no errands. It is called with the lock held.
func (e *errands) tell() {
	if e.none != nil && e.count.Load() == 0 {
		close(e.none)
		e.none = nil
	}
}
