package gate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// This file has what a gate does differently with a store that may block.

// Slow reports whether the store may block on commands for this key. Do, Try and TryAll may block then, and
// Submit does not.
func (g *Gate) Slow(key gatehouse.Key) bool { return g.slow != nil && g.slow(key) }

// Drain waits until no work for a slow store is under way. Call it after Close, when no more commands come,
// before the store is closed: then every command was answered, and every undo was applied. It returns an
// error if ctx ends first.
func (g *Gate) Drain(ctx context.Context) error {
	select {
	case <-g.slowWork.whenIdle():
		return nil
	case <-ctx.Done():
		return fmt.Errorf("waiting for the store to finish: %w", ctx.Err())
	}
}

// bypassesLine reports whether a command goes to a slow store past the line. A command that may wait joins
// the line at once, so that commands are served in order of arrival.
func (g *Gate) bypassesLine(key gatehouse.Key, cmd *gatehouse.Command) bool {
	return !mayWait(cmd) && cmd.Op != gatehouse.OpDelete && g.lineOf(key) == nil
}

// submitSlow submits a command for a slow store.
func (g *Gate) submitSlow(r *Request, done func(gatehouse.Decision, error)) (cancel func()) {
	key := r.Key
	if g.bypassesLine(key, &r.Command) {
		e := &slowCall{gate: g, key: key, cmd: r.Command}
		e.turns, e.single[0].Command = e.single[:], &e.cmd
		e.done = func() { done(e.single[0].Decision, e.single[0].Err) }
		g.startCall(e)
		return e.cancel
	}
	// The line's own answer does not have the number of waiting commands; slowCall adds it above.
	t := &ticket{cmd: r.Command, since: r.since, done: done}
	if r.Command.Op == gatehouse.OpStats {
		t.done = func(d gatehouse.Decision, err error) {
			g.addWaiting(key, &d)
			done(d, err)
		}
	}
	g.joinLine(key, t)
	return t.cancel
}

// A blockingCall is a slowCall whose caller waits for the answer. Gates pool them.
type blockingCall struct {
	slowCall
	answered chan struct{}
}

func newBlockingCall(g *Gate) *blockingCall {
	q := &blockingCall{slowCall: slowCall{gate: g}, answered: make(chan struct{}, 1)}
	q.turns, q.single[0].Command = q.single[:], &q.cmd
	q.done = func() { q.answered <- struct{}{} }
	q.onReply = q.handleReply
	return q
}

// callSlowStore applies one command past the line, and returns early when ctx ends.
func (g *Gate) callSlowStore(
	ctx context.Context, key gatehouse.Key, cmd *gatehouse.Command,
) (gatehouse.Decision, error) {
	if err := cmd.Check(key); err != nil {
		return gatehouse.Decision{}, err
	}
	q := g.blockingCalls.Get().(*blockingCall)
	q.key, q.cmd = key, *cmd
	g.startCall(&q.slowCall)
	select {
	case <-q.answered:
		d, err := q.single[0].Decision, q.single[0].Err
		q.finished, q.cmd, q.single[0] = false, gatehouse.Command{}, control.Turn{Command: &q.cmd}
		g.blockingCalls.Put(q)
		return d, err
	case <-ctx.Done():
		// q does not go back to the pool: the store still writes its answer there.
		q.cancel()
		return gatehouse.Decision{}, timeoutError(ctx, key, cmd)
	}
}

// SubmitAll is TryAll with a callback, for a slow store: done is called once, as that of Submit, after the
// decisions were filled in. The commands and decisions belong to the gate until done was called, and forever
// if cancel was. cancel undoes what was granted to any of the commands.
func (g *Gate) SubmitAll(
	key gatehouse.Key, cmds []gatehouse.Command, decisions []gatehouse.Decision, done func(error),
) (cancel func()) {
	e := &slowCall{gate: g, key: key, turns: make([]control.Turn, len(cmds))}
	for i := range cmds {
		e.turns[i].Command = &cmds[i]
	}
	e.done = func() { done(copyDecisions(e.turns, decisions)) }
	g.startCall(e)
	return e.cancel
}

// A slowCall is one caller's commands for one key of a slow store that do not wait in line.
//
//	startCall ──▶ running ──────────────▶ finished: the caller is answered, and may still cancel: undo
//	                 │ cancel
//	                 ▼
//	              abandoned ────────────▶ finished: every grant is undone
type slowCall struct {
	gate    *Gate
	key     gatehouse.Key
	turns   []control.Turn
	cmd     gatehouse.Command // of a call with one command
	single  [1]control.Turn   // its turn
	done    func()
	onReply func(error) // handleReply, bound in advance by a pooled call; nil otherwise

	mu        sync.Mutex
	abandoned bool // its caller has left
	finished  bool // the answer is there
}

// startCall runs a call: in line, by the store itself, or in a goroutine.
func (g *Gate) startCall(e *slowCall) {
	g.slowWork.count.Add(1)
	told := e.onReply
	if told == nil {
		told = e.handleReply
	}
	switch {
	case g.lineOf(e.key) != nil:
		g.joinLineTogether(e.key, e.turns, e.finishCall)
	case g.async != nil:
		g.async.ApplyAsync(e.key, e.turns, told)
	default:
		go func() { e.handleReply(g.store.Apply(g.ctx, e.key, e.turns)) }()
	}
}

// handleReply is called by the store with its answer. It must not block.
func (e *slowCall) handleReply(err error) {
	g := e.gate
	setErrors(e.turns, err)
	// A ticket may have joined while the commands were in the store, and wait for what they released.
	if l := g.lineOf(e.key); l != nil {
		g.slowWork.startWork(l.serveLine)
	}
	g.addWaitingAll(e.key, e.turns)
	e.finishCall()
}

// finishCall answers the caller, or undoes the grants if the caller has left.
func (e *slowCall) finishCall() {
	defer e.gate.slowWork.endWork()
	e.mu.Lock()
	e.finished = true
	left := e.abandoned
	e.mu.Unlock()
	if left {
		e.gate.slowWork.startWork(e.undoGrants)
	} else {
		e.done()
	}
}

// cancel is the function that Submit and SubmitAll return.
func (e *slowCall) cancel() {
	e.mu.Lock()
	first := !e.abandoned
	e.abandoned = true
	finished := e.finished
	e.mu.Unlock()
	// Exactly one of cancel and finishCall undoes: the later of the two, and only once.
	if first && finished {
		e.undoGrants()
	}
}

// undoGrants undoes what was granted to the commands.
func (e *slowCall) undoGrants() {
	for i := range e.turns {
		turn := &e.turns[i]
		if t := (&ticket{cmd: *turn.Command}); turn.Err == nil && t.needsUndo(&turn.Decision) {
			e.gate.submitUndo(e.key, newUndo(t, &turn.Decision))
		}
	}
}

// A workGroup counts the work that is under way at a slow store. Unlike a sync.WaitGroup it may be waited
// for while more work starts, and the wait can be given up. The zero value is an empty group.
type workGroup struct {
	count      atomic.Int64
	mu         sync.Mutex
	idleSignal chan struct{} // closed when count is 0; nil while no caller waits for that
}

// startWork runs work in a goroutine, and counts it until it returns.
func (e *workGroup) startWork(work func()) {
	e.count.Add(1)
	go func() {
		defer e.endWork()
		work()
	}()
}

// endWork notes that some work has ended.
func (e *workGroup) endWork() {
	// The lock is taken only by the last one: this is on the way of every command.
	if e.count.Add(-1) > 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.signalIdle()
}

// whenIdle returns a channel that is closed once no work is under way.
func (e *workGroup) whenIdle() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.idleSignal == nil {
		e.idleSignal = make(chan struct{})
	}
	// signalIdle may close the channel at once and forget it, hence the copy.
	idle := e.idleSignal
	e.signalIdle()
	return idle
}

// signalIdle closes the channel of whenIdle if no work is under way. It is called with the lock held.
func (e *workGroup) signalIdle() {
	if e.idleSignal != nil && e.count.Load() == 0 {
		close(e.idleSignal)
		e.idleSignal = nil
	}
}
