package gate

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A round is one change on its way to the store and back, with the requests whose turns it has. A gate pools
// them. The goroutine that starts a round and the one that brings its answer settle which of them goes on:
//
//	          Done is called first
//	       ┌──────────────────────────▶ answered: the goroutine that has started it goes on
//	started
//	       └──────────────────────────▶ left ── Done ──▶ answered: the goroutine of Done goes on
//	          leaveToAnswer is first
//
// So a store that answers at once is served in a loop, by one goroutine, and no goroutine waits for one that
// does not.
type round struct {
	gate     *Gate
	line     *line // that the requests are in; nil if they are in none
	change   control.Change
	requests []*Request // one for each turn
	replies  []*Request // to be told of their decisions once the line's lock is released
	err      error      // of the change
	late     bool       // the answer has not come before Apply returned
	serving  bool       // it is a round of the goroutine that serves the line
	kept     bool       // the caller of its request keeps it
	state    atomic.Int32
	onDone   func(error) // noteAnswer, bound once
}

// The states of a round.
const (
	started = iota
	answered
	left
)

func makeRound(g *Gate) *round {
	rd := &round{gate: g}
	rd.onDone = rd.noteAnswer
	return rd
}

// newRound returns a round from the pool, which release gives back.
func (g *Gate) newRound() *round { return g.rounds.Get().(*round) }

// addRequest adds a request to the change. ahead is how much is wanted in front of it by requests that are
// not in this round.
func (rd *round) addRequest(r *Request, ahead int64) {
	rd.requests = append(rd.requests, r)
	n := len(rd.requests)
	// The turns keep what is zero in each of them, so that few fields are written.
	if n > cap(rd.change.Turns) {
		rd.change.Turns = append(rd.change.Turns, control.Turn{})
	}
	rd.change.Turns = rd.change.Turns[:n]
	r.fillTurn(&rd.change.Turns[n-1], ahead)
}

// mustWait reports whether the store has refused a request that may wait.
func mustWait(turn *control.Turn) bool {
	return turn.Err == nil && control.KeepsWaiting(turn.Command, &turn.Decision)
}

// hasWaiting reports whether one of the requests must wait.
func (rd *round) hasWaiting() bool {
	for i := range rd.change.Turns {
		if mustWait(&rd.change.Turns[i]) {
			return true
		}
	}
	return false
}

// answeredTurn returns a turn after its answer: what it was decided, or its error, which may be that of the
// whole change.
func (rd *round) answeredTurn(i int) *control.Turn {
	turn := &rd.change.Turns[i]
	if rd.err != nil {
		turn.Err = rd.err
	}
	return turn
}

// start puts the change to the store, and reports whether the answer is there already. If it is not, the
// caller must call leaveToAnswer.
func (rd *round) start(key gatehouse.Key) bool {
	rd.state = atomic.Int32{} // no other goroutine has the round yet
	rd.change.Key, rd.change.Done = key, rd.onDone
	rd.gate.store.Apply(&rd.change)
	rd.late = rd.state.Load() != answered
	return !rd.late
}

// leaveToAnswer leaves the round to the goroutine that brings the answer. It reports false if the answer has
// come in the meantime, so that the caller has to go on.
func (rd *round) leaveToAnswer() bool {
	// Counted before the round is left: the one who goes on ends the count.
	rd.gate.work.begin()
	if rd.state.CompareAndSwap(started, left) {
		return true
	}
	rd.gate.work.end()
	return false
}

// noteAnswer is the Done of the change.
func (rd *round) noteAnswer(err error) {
	rd.err = err
	if rd.state.Swap(answered) != left {
		return
	}
	g := rd.gate
	if rd.line == nil {
		// Few steps, so that the store's goroutine can take them.
		g.finishDirect(rd)
		g.work.end()
		return
	}
	// To serve a line may take many rounds, which must not hold up the store and all other answers that it
	// brings.
	go func() { // ends when the line is idle or its next round is left
		defer g.work.end()
		rd.goOn()
	}()
}

// goOn goes on with an answered round of requests that are in a line.
func (rd *round) goOn() {
	if rd.serving {
		rd.line.serveRounds(rd, true)
	} else {
		rd.line.finishLook(rd)
	}
}

// sendReplies calls the Decided of the requests that are out of the line. It is called without the lock.
func (rd *round) sendReplies() {
	for _, r := range rd.replies {
		rd.gate.addWaiting(r, r.Decision)
	}
	rd.gate.deliver(rd.replies)
	clear(rd.replies)
	rd.replies = rd.replies[:0]
}

// clearRequests drops the requests of a round that was worked off, and what their turns refer to.
func (rd *round) clearRequests() {
	for i := range rd.requests {
		turn := &rd.change.Turns[i]
		turn.Command, turn.Granted, turn.Err, turn.Line = nil, nil, nil, nil
		rd.requests[i] = nil
	}
	rd.requests, rd.change.Turns, rd.err = rd.requests[:0], rd.change.Turns[:0], nil
}

// release gives the round back, unless a caller keeps it. A large one is dropped: few need so much room.
func (rd *round) release() {
	rd.clearRequests()
	if rd.kept {
		return
	}
	rd.line, rd.serving = nil, false
	if cap(rd.change.Turns) <= 2*MaxTogether && cap(rd.replies) <= 2*MaxTogether {
		rd.gate.rounds.Put(rd)
	}
}

// A workGroup counts the rounds and the goroutines that are under way. Unlike a sync.WaitGroup it may be
// waited for while more work starts, and the wait can be given up. The zero value is an empty group.
type workGroup struct {
	count      atomic.Int64
	mu         sync.Mutex
	idleSignal chan struct{} // closed when count is 0; nil while no caller waits for that
}

// begin notes that some work begins.
func (e *workGroup) begin() { e.count.Add(1) }

// end notes that some work has ended.
func (e *workGroup) end() {
	// The lock is taken only by the last one: this is on the way of every command at a shared store.
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

// Drain waits until the store has nothing in hand. Call it after Close, when no more commands come, before
// the store is closed: then every request was answered, and every undo was applied. It returns an error if
// ctx ends first.
func (g *Gate) Drain(ctx context.Context) error {
	idle := g.work.whenIdle()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
	}
	// Listeners that are closed before may have used up the time. A store that is idle is no failure then.
	select {
	case <-idle:
		return nil
	default:
		return fmt.Errorf("waiting for the store to finish: %w", ctx.Err())
	}
}
