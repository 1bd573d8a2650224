// Package gate keeps the lines of those who wait in front of each controller. It is the only place
// with tickets, timers and wake-ups; the deciding is done by package control, and the keeping by a
// Store.
//
// Whoever finds a line idle serves everybody in it with one change to the store; the others only
// wait for their ticket. That one trick is fairness, batching and the absence of a lock convoy.
package gate

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"

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
	FirstTicket gatehouse.Ticket
}

// The defaults of Config. With about 3 KiB for each waiting HTTP connection they suit a container of
// 512 MiB.
const (
	DefaultWaiters = 50_000
	DefaultLine    = 20_000
)

// shards is how many locks the lines are spread over.
const shards = 64

// A Gate answers commands by a store, and lets those wait that may. Make one with New.
type Gate struct {
	ctx       context.Context // of what is asked of the store, which outlives any one caller
	store     Store
	slow      func(gatehouse.Key) bool // of a SlowStore; nil for any other
	asker     AsyncStore               // the store, if it is one
	config    Config
	seed      maphash.Seed
	shards    [shards]shard
	calls     sync.Pool
	queues    sync.Pool
	questions sync.Pool
	tickets   atomic.Uint64
	waiting   atomic.Int64
	lines     atomic.Int64 // at all names together
	closed    atomic.Bool
	errands   errands
}

var _ gatehouse.Gate = (*Gate)(nil)

// A shard is one part of the lines. A line is in it for as long as somebody stands in it.
type shard struct {
	mu    sync.Mutex
	lines map[gatehouse.Key]*line
	count atomic.Int32 // of lines, to be read without the lock
}

// A call is what a command that need not wait passes to the store, kept for the next one.
type call struct {
	cmd   gatehouse.Command
	turns [1]control.Turn
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
	g.asker, _ = store.(AsyncStore)
	g.tickets.Store(uint64(max(config.FirstTicket, 1) - 1))
	g.calls.New = func() any { return new(call) }
	g.queues.New = func() any { return new(queue) }
	g.questions.New = func() any { return newQuestion(g) }
	return g
}

// Do implements [gatehouse.Gate].
func (g *Gate) Do(
	ctx context.Context, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, error) {
	if err := ctx.Err(); err != nil {
		return gatehouse.Decision{}, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", key, err)
	}
	if g.slow != nil && ctx.Done() != nil && g.slow(key) { // ctx may end while the store works
		if g.goesPast(key, &cmd) {
			return g.ask(ctx, key, &cmd)
		}
	} else {
		c := g.calls.Get().(*call)
		c.cmd = cmd // which does not escape this way
		d, settled, err := g.try(key, &c.cmd, c)
		cmd = c.cmd
		g.calls.Put(c)
		if settled {
			return d, err
		}
	}
	type answer struct {
		d   gatehouse.Decision
		err error
	}
	answers := make(chan answer, 1)
	cancel := g.Submit(key, cmd, func(d gatehouse.Decision, err error) { answers <- answer{d, err} })
	select {
	case a := <-answers:
		return a.d, a.err
	case <-ctx.Done():
		cancel()
		return gatehouse.Decision{}, timedOut(ctx, key, &cmd)
	}
}

// timedOut is the error of a command whose context has ended.
func timedOut(ctx context.Context, key gatehouse.Key, cmd *gatehouse.Command) error {
	return gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %s: %w", key, cmd.Op, ctx.Err())
}

// Try answers cmd if that takes no waiting in line; a slow store keeps the caller waiting for its answer.
// When settled is false nothing was granted, and cmd, which Try has made a note in, is to be given to
// Submit. At a slow store that is so for all that may wait: they are to stand in line before the store is
// asked, so that whoever comes first is first.
func (g *Gate) Try(
	key gatehouse.Key, cmd *gatehouse.Command,
) (d gatehouse.Decision, settled bool, err error) {
	c := g.calls.Get().(*call)
	d, settled, err = g.try(key, cmd, c)
	g.calls.Put(c)
	return d, settled, err
}

// try is Try, by way of a call.
func (g *Gate) try(
	key gatehouse.Key, cmd *gatehouse.Command, c *call,
) (d gatehouse.Decision, settled bool, err error) {
	if err := cmd.Check(key); err != nil {
		return gatehouse.Decision{}, true, err
	}
	if g.slow != nil && mayWait(cmd) && g.slow(key) {
		return gatehouse.Decision{}, false, nil
	}
	// A delete goes by the line even if there is none yet: who is about to wait must hear of it.
	if g.line(key) != nil || cmd.Op == gatehouse.OpDelete {
		if mayWait(cmd) {
			return gatehouse.Decision{}, false, nil
		}
		turns := []control.Turn{{Command: cmd}}
		g.through(key, turns)
		return turns[0].Decision, true, turns[0].Err
	}
	d, err = g.apply(key, cmd, c)
	if err == nil && d.Outcome == gatehouse.Refused && mayWait(cmd) {
		cmd.Again, cmd.Since = true, d.At
		return d, false, nil
	}
	if l := g.line(key); l != nil { // somebody has begun to wait meanwhile
		l.serve()
	}
	if cmd.Op == gatehouse.OpStats {
		g.addWaiting(key, &d)
	}
	return d, true, err
}

// TakeBack takes back what Try granted to cmd, because its answer could not be delivered. It does not wait
// for a slow store.
func (g *Gate) TakeBack(key gatehouse.Key, cmd gatehouse.Command, granted gatehouse.Decision) {
	if t := (&ticket{cmd: cmd}); t.took(&granted) {
		g.takeBack(key, undo(t, &granted))
	}
}

// mayWait reports whether a command stays in line when it is refused.
func mayWait(cmd *gatehouse.Command) bool { return cmd.MaxWait != 0 && cmd.Op.Waits() }

// apply puts one command to the store, past any line.
func (g *Gate) apply(
	key gatehouse.Key, cmd *gatehouse.Command, c *call,
) (gatehouse.Decision, error) {
	c.turns[0].Command = cmd
	err := g.store.Apply(g.ctx, key, c.turns[:])
	if c.turns[0].Err != nil {
		err, c.turns[0].Err = c.turns[0].Err, nil
	}
	c.turns[0].Command = nil
	if err != nil {
		return gatehouse.Decision{}, err
	}
	return c.turns[0].Decision, nil
}

// takeBack puts an undo to the store.
func (g *Gate) takeBack(key gatehouse.Key, undo *ticket) {
	if g.line(key) != nil {
		g.join(key, undo)
		return
	}
	if g.Slow(key) {
		g.errands.run(func() { g.giveBack(key, undo) })
		return
	}
	g.giveBack(key, undo)
}

// giveBack is takeBack past any line.
func (g *Gate) giveBack(key gatehouse.Key, undo *ticket) {
	// That it failed is nobody's to hear: a hold that could not be taken back ends when it expires.
	_, _ = g.apply(key, &undo.cmd, new(call))
	if l := g.line(key); l != nil {
		l.serve()
	}
}

// Submit is Do without a goroutine of the caller's: done is called once, possibly before Submit returns and
// never under a lock. It must not block. Once cancel was called, done may still be called or not.
//
// cancel takes the command out of line. When it was granted already, the grant is taken back: call
// it when the answer could not be delivered, and do not call it when it was.
//
// Neither of them waits for a slow store. Commands that may not wait come to it in any order there, while
// nobody stands in line.
func (g *Gate) Submit(
	key gatehouse.Key, cmd gatehouse.Command, done func(gatehouse.Decision, error),
) (cancel func()) {
	if !cmd.Again {
		if err := cmd.Check(key); err != nil {
			done(gatehouse.Decision{}, err)
			return func() {}
		}
	}
	if g.Slow(key) {
		return g.submitSlow(key, &cmd, done)
	}
	t := &ticket{cmd: cmd, done: done}
	g.join(key, t)
	return t.cancel
}

// Waiting returns how many commands wait at all names together.
func (g *Gate) Waiting() int { return int(g.waiting.Load()) }

// Names returns the names of one kind that come after the given one, in order, at most so many.
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

// Close ends all waiting: those in line, and those who come later and would have to wait, get a
// CodeUnavailable error. What can be decided without waiting still is. With a slow store Close returns
// before they have got it; see Drain.
func (g *Gate) Close() {
	g.closed.Store(true)
	for i := range g.shards {
		sh := &g.shards[i]
		sh.mu.Lock()
		lines := make([]*line, 0, len(sh.lines))
		for _, l := range sh.lines {
			lines = append(lines, l)
		}
		sh.mu.Unlock()
		for _, l := range lines {
			l.mu.Lock()
			l.whole = true
			l.mu.Unlock()
			l.serve()
		}
	}
}

func (g *Gate) addWaiting(key gatehouse.Key, d *gatehouse.Decision) {
	if d.Outcome != gatehouse.Granted {
		return
	}
	waiting := int64(0)
	if l := g.line(key); l != nil {
		waiting = int64(l.len())
	}
	d.Stats = append(d.Stats, gatehouse.Stat{Name: "waiting", Value: waiting})
}

func (g *Gate) shard(key gatehouse.Key) *shard {
	h := maphash.String(g.seed, key.Name) + uint64(key.Kind)
	return &g.shards[h%shards]
}

// line returns the line at key, nil when nobody stands there.
func (g *Gate) line(key gatehouse.Key) *line {
	if g.lines.Load() == 0 {
		return nil
	}
	sh := g.shard(key)
	if sh.count.Load() == 0 {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.lines[key]
}
