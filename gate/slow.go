package gate

import (
	"context"
	"fmt"
	"sync"

	"github.com/gatehousehq/gatehouse"
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

// An attempt is a submitted command that does not wait in line, on its way to a slow store.
type attempt struct {
	gate   *Gate
	key    gatehouse.Key
	ticket *ticket

	mu      sync.Mutex
	left    bool                // nobody waits for the answer any more
	granted *gatehouse.Decision // what cancel has to take back
}

// submitSlow submits a command for a slow store. One that may wait stands in line from the start, so that
// whoever comes first is first. Others, as long as nobody stands in line, go to the store by themselves: a
// store that is asked several things at once can answer them together.
func (g *Gate) submitSlow(key gatehouse.Key, t *ticket) (cancel func()) {
	if !mayWait(&t.cmd) && t.cmd.Op != gatehouse.OpDelete && g.line(key) == nil {
		a := &attempt{gate: g, key: key, ticket: t}
		g.errands.run(a.run)
		return a.cancel
	}
	if done := t.done; t.cmd.Op == gatehouse.OpStats {
		t.done = func(d gatehouse.Decision, err error) {
			g.addWaiting(key, &d)
			done(d, err)
		}
	}
	g.join(key, t)
	return t.cancel
}

// run has the store decide, and answers.
func (a *attempt) run() {
	t := a.ticket
	d, _, err := a.gate.Try(a.key, &t.cmd)
	took := err == nil && t.took(&d)
	a.mu.Lock()
	left := a.left
	if took && !left {
		a.granted = &d
	}
	a.mu.Unlock()
	switch {
	case !left:
		t.done(d, err)
	case took:
		a.gate.giveBack(a.key, undo(t, &d))
	}
}

// cancel is what Submit returns.
func (a *attempt) cancel() {
	a.mu.Lock()
	granted := a.granted
	a.left, a.granted = true, nil
	a.mu.Unlock()
	if granted != nil {
		a.gate.takeBack(a.key, undo(a.ticket, granted))
	}
}

// SubmitAll is TryAll without a goroutine of the caller's, for a slow store: done is called once, as
// Submit's is, and the decisions are there then. The commands and decisions are the gate's until done was
// called, and for ever when cancel was. cancel takes back what was granted to all of them.
func (g *Gate) SubmitAll(
	key gatehouse.Key, cmds []gatehouse.Command, decisions []gatehouse.Decision, done func(error),
) (cancel func()) {
	var mu sync.Mutex
	var left, over bool
	giveBack := func() {
		for i := range cmds {
			if t := (&ticket{cmd: cmds[i]}); t.took(&decisions[i]) {
				g.takeBack(key, undo(t, &decisions[i]))
			}
		}
	}
	g.errands.run(func() {
		err := g.TryAll(key, cmds, decisions)
		mu.Lock()
		over = err == nil
		unheard := left
		mu.Unlock()
		switch {
		case !unheard:
			done(err)
		case err == nil:
			giveBack()
		}
	})
	return func() {
		mu.Lock()
		again, granted := left, over
		left = true
		mu.Unlock()
		if granted && !again {
			giveBack()
		}
	}
}

// errands are the goroutines in which a slow store is asked. Each ends when its work is done.
type errands struct {
	mu    sync.Mutex
	count int
	none  chan struct{} // closed when count is 0; nil while nobody wants to know
}

func (e *errands) run(work func()) {
	e.mu.Lock()
	e.count++
	e.mu.Unlock()
	go func() {
		defer e.done()
		work()
	}()
}

func (e *errands) done() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.count--; e.count == 0 && e.none != nil {
		close(e.none)
		e.none = nil
	}
}

// idle is closed when there are no errands.
func (e *errands) idle() <-chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.none == nil {
		e.none = make(chan struct{})
	}
	none := e.none
	if e.count == 0 {
		close(none)
		e.none = nil
	}
	return none
}
