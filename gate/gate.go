// Package gate keeps a line of waiting commands in front of each controller. It is the only package with
// tickets, timers and wake-ups: package control decides, and a Store keeps the state.
//
// The caller that finds a line idle serves all tickets in it with one change to the store; the other callers
// only wait for their ticket. This one rule makes lines fair, batches commands and avoids a lock convoy. A
// store that does not answer at once keeps no caller: the goroutine that brings its answer goes on.
package gate

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Config sets the limits of a gate. The zero value works.
type Config struct {
	// Waiters is the most commands in line at all names together; 0 means DefaultWaiters.
	Waiters int
	// Line is the most commands in line at one name; 0 means DefaultLine.
	Line int
	// FirstTicket is the ticket of the first command that gets one; the others count up from it. Gates
	// that share a store must be given numbers that are far apart, so that no two of their tickets are
	// the same. 0 means 1.
	FirstTicket control.Ticket
	// MaxPause is the longest pause of a limiter that feedback leads to; 0 means gatehouse.DefaultMaxPause.
	MaxPause time.Duration
	// Observer is told of each decision; nil tells nothing.
	Observer Observer
}

// The defaults of Config. With about 2.5 KiB for each waiting HTTP connection they suit a container of
// 512 MiB.
const (
	DefaultWaiters = 50_000
	DefaultLine    = 20_000
)

// shards is how many locks the lines are spread over.
const shards = 64

// A Gate answers commands from a store, and keeps those waiting that may wait. Make one with New.
type Gate struct {
	store  Store
	atOnce atOnceStore // the store, if commands may be put to it without a change; otherwise nil
	config Config
	seed   maphash.Seed
	shards [shards]shard
	rounds sync.Pool
	calls  sync.Pool

	grants     grantOrder
	grantCalls sync.Pool

	tickets atomic.Uint64
	waiting atomic.Int64
	lines   atomic.Int64 // at all names together
	closed  atomic.Bool
	follow  followers
	work    workGroup // what is under way at the store, or goes on in a goroutine
}

var _ gatehouse.Gate = (*Gate)(nil)

// A shard is one part of the lines. A line is in it as long as it has tickets.
type shard struct {
	mu    sync.Mutex
	lines map[gatehouse.Key]*line
	count atomic.Int32 // of lines, to be read without the lock
}

// New returns a gate in front of store, which no other gate of this process may use.
func New(store Store, config Config) *Gate {
	if config.Waiters == 0 {
		config.Waiters = DefaultWaiters
	}
	if config.Line == 0 {
		config.Line = DefaultLine
	}
	g := &Gate{store: store, config: config, seed: maphash.MakeSeed()}
	// An observer is given requests, and a command that is decided at once has none.
	if s, ok := store.(atOnceStore); ok && config.Observer == nil && s.ServesAtOnce(store) {
		g.atOnce = s
	}
	for i := range g.shards {
		g.shards[i].lines = make(map[gatehouse.Key]*line)
	}
	// One less, since nextTicket counts before it returns.
	g.tickets.Store(uint64(max(config.FirstTicket, 1) - 1))
	g.rounds.New = func() any { return makeRound(g) }
	g.calls.New = func() any { return newCall() }
	g.grantCalls.New = func() any { return newGrantCall() }
	return g
}

// MaxTogether is the most requests for one Submit.
const MaxTogether = 16

// Submit decides requests, and calls the Decided of each. Several must be for one key, and are one change to
// the store if there is no line, which costs little more than one of them. Those that may not wait are
// decided in their order. A request that must wait gets in line. Submit does not block, and the slice is not
// kept.
//
// A request that may wait is served behind all that were submitted before it and may wait, too. Any other is
// applied at once if there is no line, and passes through the line otherwise. After an error of the store
// it is not known whether a request took effect.
func (g *Gate) Submit(requests ...*Request) {
	if !g.prepareRequests(requests) {
		requests = g.answerInvalid(requests)
	}
	if len(requests) == 0 {
		return
	}
	rd := g.newRound()
	if !g.begin(requests, rd) {
		return
	}
	for i, r := range requests {
		r.setDecision(rd.answeredTurn(i))
		g.addWaiting(r, r.Decision)
	}
	rd.release()
	g.deliver(requests)
}

// prepareRequests makes requests ready for begin, and reports whether all of them are valid: others have an
// error.
func (g *Gate) prepareRequests(requests []*Request) (valid bool) {
	valid = true
	for _, r := range requests {
		// A request may be used again, and nothing of the wait before may be left.
		r.Err, r.ticket = nil, ticket{}
		if !r.Checked {
			r.Err = r.Command.Check(r.Key)
			valid = valid && r.Err == nil
		}
		// After the check: only a valid command is sure to have a feedback that can be completed.
		if r.Command.Op == gatehouse.OpFeedback && r.Err == nil {
			g.completeFeedback(r)
		}
	}
	return valid
}

// answerInvalid answers the requests that have an error, and returns the others.
func (g *Gate) answerInvalid(requests []*Request) (valid []*Request) {
	for _, r := range requests {
		if r.Err == nil {
			valid = append(valid, r)
			continue
		}
		r.setError(r.Err)
		r.atOnce = true
		g.deliver([]*Request{r})
	}
	return valid
}

// begin puts requests that were prepared to the store, in a round, or into the line of their key if there is
// one. It reports whether all were decided at once: then it has not called Decided, and the round is the
// caller's again, with its answeredTurns, and the caller clears it.
func (g *Gate) begin(requests []*Request, rd *round) (done bool) {
	key := requests[0].Key
	// A delete joins the line even if there is none yet: a command that is about to wait must be told of it.
	if g.lineOf(key) != nil || hasDelete(requests) {
		// In a line all requests are served by the rounds of the line.
		rd.release()
		for _, r := range requests {
			g.joinLine(r)
		}
		return false
	}
	mayStay := false
	for _, r := range requests {
		// The store may note who waits, so that a request that may wait is named from its first look on.
		if mayWait(&r.Command) {
			mayStay = true
			r.number = g.nextTicket()
		}
		rd.addRequest(r, 0)
	}
	switch {
	case rd.start(key):
		return g.finishAtOnce(rd, mayStay)
	case mayStay:
		// In line before this returns, so that nothing that is submitted later can overtake.
		g.enterLook(rd)
	default:
		for _, r := range requests {
			r.Decision = nil // its room is the caller's again
		}
	}
	if rd.leaveToAnswer() {
		return false
	}
	// The answer has come since Apply returned. It is this goroutine, not that of Done, which goes on.
	if rd.line != nil {
		rd.line.finishLook(rd)
	} else {
		g.finishDirect(rd)
	}
	return false
}

// hasDelete reports whether one of some requests is a delete.
func hasDelete(requests []*Request) bool {
	for _, r := range requests {
		if r.Command.Op == gatehouse.OpDelete {
			return true
		}
	}
	return false
}

// nextTicket returns a number that no other request of this gate has.
func (g *Gate) nextTicket() control.Ticket { return control.Ticket(g.tickets.Add(1)) }

// finishAtOnce works off a round whose answer has come before Apply returned. It returns what begin does;
// those that must wait are in line otherwise.
func (g *Gate) finishAtOnce(rd *round, mayStay bool) (done bool) {
	key := rd.change.Key
	if mayStay && rd.err == nil && rd.hasWaiting() {
		g.waitAfterLook(rd)
		return false
	}
	// Cancel sees by this that the store is done with the request, and that it has to undo the grant.
	for _, r := range rd.requests {
		r.atOnce = true
	}
	g.serveLineOf(key)
	return true
}

// finishDirect works off a round of requests that are in no line, whose answer has come after Apply returned.
func (g *Gate) finishDirect(rd *round) {
	// This may be the goroutine of the store, which rounds of a line would hold up.
	if key := rd.change.Key; g.lineOf(key) != nil {
		g.work.begin()
		go func() { // ends when the line is idle or its next round is left
			defer g.work.end()
			g.serveLineOf(key)
		}()
	}
	// A caller that keeps the round reads the decision there, and uses the round again from Decided on.
	kept := rd.kept
	for i, r := range rd.requests {
		turn := rd.answeredTurn(i)
		if kept {
			r.Decision = &turn.Decision
		}
		r.setDecision(turn)
		// Cancel was first. It did not know what was granted, so that the undo is left to this goroutine.
		if !r.state.CompareAndSwap(undecided, decided) {
			g.undoGrant(r)
			r.setError(errCanceled)
		}
		g.addWaiting(r, r.Decision)
	}
	g.deliver(rd.requests)
	if !kept {
		rd.release()
	}
}

// serveLineOf serves the line of a key, if there is one: a request may have joined it while others were in
// the store, and wait for what they gave back.
func (g *Gate) serveLineOf(key gatehouse.Key) {
	if l := g.lineOf(key); l != nil {
		l.onMoved()
	}
}

// Waiting returns how many commands wait at all names together.
func (g *Gate) Waiting() int { return int(g.waiting.Load()) }

// Names returns the names of one kind that come after the given one, in order, at most the given number.
func (g *Gate) Names(
	ctx context.Context, kind gatehouse.Kind, after string, most int,
) (names []string, err error) {
	if most < 1 {
		return nil, nil
	}
	err = g.store.Range(ctx, kind, after, func(key gatehouse.Key, _ control.State) bool {
		names = append(names, key.Name)
		return len(names) < most
	})
	return names, err
}

// Close ends all waiting: tickets in line, and later commands that would have to wait, get a
// CodeUnavailable error. Commands that need not wait are still decided. Close does not wait for the store:
// the errors may be sent later; see Drain.
func (g *Gate) Close() {
	// First of all: a command that begins to wait from here on is
	// refused, and those before it are in the lines.
	g.closed.Store(true)
	for i := range g.shards {
		sh := &g.shards[i]
		// The lines are copied, because serving one may drop it, which takes the lock of the shard.
		sh.mu.Lock()
		lines := make([]*line, 0, len(sh.lines))
		for _, l := range sh.lines {
			lines = append(lines, l)
		}
		sh.mu.Unlock()
		// Every ticket is offered once more: what can be granted is, the rest gets the error.
		for _, l := range lines {
			l.mu.Lock()
			l.offerAll = true
			l.offerGrants()
			l.mu.Unlock()
			l.serveLine()
		}
	}
	g.serveGrants()
}

// shardOf returns the shard that has the line of a key.
func (g *Gate) shardOf(key gatehouse.Key) *shard {
	h := maphash.String(g.seed, key.Name) + uint64(key.Kind)
	return &g.shards[h%shards]
}
