// Package gate keeps a line of waiting commands in front of each controller. It is the only package with
// tickets, timers and wake-ups: package control decides, and a Store keeps the state.
//
// The caller that finds a line idle serves all tickets in it with one change to the store; the other callers
// only wait for their ticket. This one rule makes lines fair, batches commands and avoids a lock convoy.
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
}

// The defaults of Config. With about 3 KiB for each waiting HTTP connection they suit a container of
// 512 MiB.
const (
	DefaultWaiters = 50_000
	DefaultLine    = 20_000
)

// shards is how many locks the lines are spread over.
const shards = 64

// A Gate answers commands from a store, and keeps those waiting that may wait. Make one with New.
type Gate struct {
	ctx           context.Context // for calls of the store, which serve several callers and outlive each
	store         Store
	slow          func(gatehouse.Key) bool // Slow of a SlowStore; nil for any other
	async         AsyncStore               // the store, if it is one; otherwise nil
	config        Config
	seed          maphash.Seed
	shards        [shards]shard
	singleTurns   sync.Pool
	turnBatches   sync.Pool
	blockingCalls sync.Pool
	tickets       atomic.Uint64
	waiting       atomic.Int64
	lines         atomic.Int64 // at all names together
	closed        atomic.Bool
	slowWork      workGroup
}

var _ gatehouse.Gate = (*Gate)(nil)

// A shard is one part of the lines. A line is in it as long as it has tickets.
type shard struct {
	mu    sync.Mutex
	lines map[gatehouse.Key]*line
	count atomic.Int32 // of lines, to be read without the lock
}

// A singleTurn is the queue of a command that is applied alone. Gates pool them to save an allocation.
type singleTurn struct {
	request Request
	turns   [1]control.Turn
}

// New returns a gate in front of store, which no other gate of this process may use.
func New(store Store, config Config) *Gate {
	if config.Waiters == 0 {
		config.Waiters = DefaultWaiters
	}
	if config.Line == 0 {
		config.Line = DefaultLine
	}
	g := &Gate{
		ctx: context.Background(), store: store, config: config, seed: maphash.MakeSeed(),
	}
	for i := range g.shards {
		g.shards[i].lines = make(map[gatehouse.Key]*line)
	}
	if slow, ok := store.(SlowStore); ok {
		g.slow = slow.Slow
	}
	g.async, _ = store.(AsyncStore)
	g.tickets.Store(uint64(max(config.FirstTicket, 1) - 1))
	g.singleTurns.New = func() any { return new(singleTurn) }
	g.turnBatches.New = func() any { return new(turnBatch) }
	g.blockingCalls.New = func() any { return newBlockingCall(g) }
	return g
}

// Do implements [gatehouse.Gate].
func (g *Gate) Do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	if err := ctx.Err(); err != nil {
		return gatehouse.Decision{}, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", key, err)
	}
	r := Request{Key: key, Command: cmd}
	// At a slow store ctx may end while the store works, so that the caller must not be in Apply. A context
	// that never ends has no such need.
	if g.slow != nil && ctx.Done() != nil && g.slow(key) {
		if g.bypassesLine(key, &r.Command) {
			return g.callSlowStore(ctx, key, &r.Command)
		}
	} else {
		c := g.singleTurns.Get().(*singleTurn)
		c.request = r // which does not escape this way
		d, settled, err := g.tryRequest(&c.request, c)
		r = c.request
		g.singleTurns.Put(c)
		if settled {
			return d, err
		}
	}
	// The command must wait. The channel has room for the answer, so that the callback never blocks the
	// goroutine that serves the line, not even after ctx has ended.
	type result struct {
		d   gatehouse.Decision
		err error
	}
	results := make(chan result, 1)
	cancel := g.Submit(r, func(d gatehouse.Decision, err error) { results <- result{d, err} })
	select {
	case answer := <-results:
		return answer.d, answer.err
	case <-ctx.Done():
		cancel()
		return gatehouse.Decision{}, timeoutError(ctx, key, &r.Command)
	}
}

// timeoutError returns the error of a command whose context has ended.
func timeoutError(ctx context.Context, key gatehouse.Key, cmd *gatehouse.Command) error {
	return gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %s: %w", key, cmd.Op, ctx.Err())
}

// A Request is a command for the controller of a key. Try notes in it that the store has seen the command, so
// that Submit goes on from there.
type Request struct {
	Key     gatehouse.Key
	Command gatehouse.Command

	since time.Time // when the store has refused it; the zero time if it has not
}

// Try answers a request if it need not wait in line; it may block on a slow store. If settled is false,
// nothing was granted, and the caller must pass the same request to Submit. At a slow store this holds for
// every command that may wait: it must be in the line before the store is asked, so that commands are served
// in order of arrival.
func (g *Gate) Try(r *Request) (d gatehouse.Decision, settled bool, err error) {
	c := g.singleTurns.Get().(*singleTurn)
	d, settled, err = g.tryRequest(r, c)
	g.singleTurns.Put(c)
	return d, settled, err
}

// tryRequest does the work of Try, with a singleTurn of the caller's.
func (g *Gate) tryRequest(r *Request, c *singleTurn) (d gatehouse.Decision, settled bool, err error) {
	key, cmd := r.Key, &r.Command
	r.since = time.Time{}
	if err := cmd.Check(key); err != nil {
		return gatehouse.Decision{}, true, err
	}
	if g.slow != nil && mayWait(cmd) && g.slow(key) {
		return gatehouse.Decision{}, false, nil
	}
	// A delete joins the line even if there is none yet: a command that is about to wait must be told of it.
	if g.lineOf(key) != nil || cmd.Op == gatehouse.OpDelete {
		if mayWait(cmd) {
			return gatehouse.Decision{}, false, nil
		}
		turns := []control.Turn{{Command: cmd}}
		g.applyThroughLine(key, turns)
		return turns[0].Decision, true, turns[0].Err
	}
	c.turns[0].Command = cmd
	d, err = g.applyTurn(key, c)
	// The refusal counts as the command's first look, which keeps it from setting parameters twice, and by
	// which it has its place.
	if err == nil && d.Outcome == gatehouse.Refused && mayWait(cmd) {
		r.since = d.At
		return d, false, nil
	}
	// A ticket may have joined while the command was in the store, and this command may have released what
	// that ticket waits for.
	if l := g.lineOf(key); l != nil {
		l.serveLine()
	}
	if cmd.Op == gatehouse.OpStats {
		g.addWaiting(key, &d)
	}
	return d, true, err
}

// TakeBack undoes what Try granted to a request, because the answer could not be delivered. It does not wait
// for a slow store.
func (g *Gate) TakeBack(r Request, granted gatehouse.Decision) {
	if t := (&ticket{cmd: r.Command}); t.needsUndo(&granted) {
		g.submitUndo(r.Key, newUndo(t, &granted))
	}
}

// mayWait reports whether a command waits in line when it is refused.
func mayWait(cmd *gatehouse.Command) bool { return cmd.MaxWait != 0 && cmd.Op.Waits() }

// applyTurn applies the one turn of c to the store, past any line.
func (g *Gate) applyTurn(key gatehouse.Key, c *singleTurn) (gatehouse.Decision, error) {
	err := g.store.Apply(g.ctx, key, c.turns[:])
	// The turn goes back to a pool: it must keep neither the error nor the command.
	if c.turns[0].Err != nil {
		err, c.turns[0].Err = c.turns[0].Err, nil
	}
	c.turns[0].Command = nil
	if err != nil {
		return gatehouse.Decision{}, err
	}
	return c.turns[0].Decision, nil
}

// submitUndo applies an undo, through the line if there is one.
func (g *Gate) submitUndo(key gatehouse.Key, undo *ticket) {
	if g.lineOf(key) != nil {
		g.joinLine(key, undo)
		return
	}
	if g.Slow(key) {
		g.slowWork.startWork(func() { g.applyUndo(key, undo) })
		return
	}
	g.applyUndo(key, undo)
}

// applyUndo applies an undo past any line.
func (g *Gate) applyUndo(key gatehouse.Key, undo *ticket) {
	// No caller is left who could be told of an error. A hold that was not undone ends when it expires.
	_, _ = g.applyTurn(key, &singleTurn{turns: [1]control.Turn{undo.newTurn()}})
	if l := g.lineOf(key); l != nil {
		l.serveLine()
	}
}

// Submit is Do with a callback instead of a blocked goroutine. done is called once, possibly before Submit
// returns and never under a lock. It must not block. After a call of cancel, done may or may not be called.
//
// cancel takes the command out of the line. If the command was granted already, the grant is undone: call
// cancel when the answer could not be delivered, and do not call it when it was.
//
// Neither Submit nor cancel waits for a slow store. While there is no line, commands that may not wait reach
// a slow store in any order.
func (g *Gate) Submit(r Request, done func(gatehouse.Decision, error)) (cancel func()) {
	// A command that Try has refused was checked there.
	if r.since.IsZero() {
		if err := r.Command.Check(r.Key); err != nil {
			done(gatehouse.Decision{}, err)
			return func() {}
		}
	}
	if g.Slow(r.Key) {
		return g.submitSlow(&r, done)
	}
	t := &ticket{cmd: r.Command, since: r.since, done: done}
	g.joinLine(r.Key, t)
	return t.cancel
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
// CodeUnavailable error. Commands that need not wait are still decided. With a slow store Close returns
// before the errors are sent; see Drain.
func (g *Gate) Close() {
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
			l.mu.Unlock()
			l.serveLine()
		}
	}
}

// addWaiting adds the number of waiting commands to statistics. The store does not know it.
func (g *Gate) addWaiting(key gatehouse.Key, d *gatehouse.Decision) {
	if d.Outcome != gatehouse.Granted {
		return
	}
	waiting := int64(0)
	if l := g.lineOf(key); l != nil {
		waiting = int64(l.len())
	}
	d.Stats = append(d.Stats, gatehouse.Stat{Name: "waiting", Value: waiting})
}

// shardOf returns the shard that has the line of a key.
func (g *Gate) shardOf(key gatehouse.Key) *shard {
	h := maphash.String(g.seed, key.Name) + uint64(key.Kind)
	return &g.shards[h%shards]
}

// lineOf returns the line of key, nil if there is none.
func (g *Gate) lineOf(key gatehouse.Key) *line {
	// Both counts are read without a lock: most commands find no line, and must not contend for the shard.
	if g.lines.Load() == 0 {
		return nil
	}
	sh := g.shardOf(key)
	if sh.count.Load() == 0 {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.lines[key]
}
