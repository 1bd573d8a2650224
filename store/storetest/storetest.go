// Package storetest is what every store promises, as tests: one body that runs on each of them.
package storetest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// A Setup says what a store is like, as far as the tests must know.
type Setup struct {
	// Start makes an empty place for data. Everything it opens ends with the test, by t.Cleanup or, in
	// virtual time, by Place.End.
	Start func(t T) Place

	// Virtual runs each test in a bubble of virtual time.
	Virtual bool

	// Servers is how many servers may share the data at one time, at least 1.
	Servers int

	// Unit is the length of the shortest hold that ends in time, and Slack is how much later it may end.
	Unit, Slack time.Duration

	// Linger is after how long a name is forgotten that is worth nothing any more; 0 if that is not to be
	// tested.
	Linger time.Duration

	// Holders is the most holds under one name; 0 if there are too many to be tested.
	Holders int

	// Lasts says that what was answered is still there when all servers have been closed.
	Lasts bool

	// Leases says that the store ends holds itself, so that a refusal does not tell when one will end.
	Leases bool
}

// A Place is where data is.
type Place interface {
	// Open opens another server on the data.
	Open() Server
	// End ends what Start began. No server is open any more.
	End()
}

// A Server is one server's store.
type Server struct {
	Store gate.Store
	// FirstTicket is that of the server's gate.
	FirstTicket gatehouse.Ticket
	// Close ends the server in good order.
	Close func()
	// Kill ends it as kill -9 would; nil if that cannot be done here.
	Kill func()
}

// T is what the tests need of a *testing.T.
type T interface {
	Helper()
	Context() context.Context
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Run runs all tests on a store.
func Run(t *testing.T, setup Setup) {
	t.Helper()
	for _, test := range tests {
		if !test.applies(&setup) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			b := &bench{T: t, Setup: &setup}
			if setup.Virtual {
				synctest.Test(t, func(t *testing.T) { b.play(t, test.body) })
			} else {
				b.play(t, test.body)
			}
			b.explain(t)
		})
	}
}

// A test is one promise.
type test struct {
	name    string
	servers int  // that it needs
	needs   need // of the store
	body    func(b *bench)
}

// A need is something that not all stores have.
type need uint8

const (
	needsLinger need = 1 << iota
	needsHolders
	needsLasting
)

func (t *test) applies(s *Setup) bool {
	return t.servers <= s.Servers && (t.needs&needsLinger == 0 || s.Linger > 0) &&
		(t.needs&needsHolders == 0 || s.Holders > 0) && (t.needs&needsLasting == 0 || s.Lasts)
}

// A bench is a place with servers on it, for one test.
type bench struct {
	T
	*Setup
	place Place
	nodes []*node
	dead  []*node // that were killed

	history History // to be explained at the end
}

// A node is a server with its gate.
type node struct {
	bench *bench
	store *spy
	gate  *gate.Gate
	kill  func()
	close func()
}

// play runs one test with as many servers as there may be, up to three.
func (b *bench) play(t T, body func(b *bench)) {
	b.T = t
	b.place = b.Start(t)
	defer b.place.End()
	defer b.closeAll()
	for range min(b.Servers, 3) {
		b.open()
	}
	body(b)
}

// explain looks for an order that explains what was answered. That takes time of its own, and so is done
// where time is not virtual.
func (b *bench) explain(t T) {
	t.Helper()
	if err := b.history.Check(patience); err != nil {
		t.Errorf("%v", err)
	}
}

// open opens another server.
func (b *bench) open() *node {
	server := b.place.Open()
	n := &node{
		bench: b, kill: server.Kill, close: server.Close, store: &spy{
			Store: server.Store, first: server.FirstTicket, seen: make(map[gatehouse.Ticket]bool),
		},
	}
	var store gate.Store = n.store
	switch slow := server.Store.(type) {
	case gate.AsyncStore:
		store = askedSpy{slowSpy{n.store, slow}, slow}
	case gate.SlowStore:
		store = slowSpy{n.store, slow}
	}
	n.gate = gate.New(store, gate.Config{FirstTicket: server.FirstTicket})
	b.nodes = append(b.nodes, n)
	return n
}

// closeAll closes the servers that are open.
func (b *bench) closeAll() {
	for _, n := range append(b.nodes, b.dead...) {
		n.gate.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		if err := n.gate.Drain(ctx); err != nil {
			b.Errorf("a gate has not ended after %s: %v", patience, err)
		}
		cancel()
		n.close()
	}
	b.nodes, b.dead = nil, nil
}

// at returns one of the servers, in turn.
func (b *bench) at(i int) *node { return b.nodes[i%len(b.nodes)] }

// patience is how long something may take that has no time of its own.
const patience = time.Minute

// eventually waits until something is so.
func (b *bench) eventually(what string, is func() bool) {
	b.Helper()
	await.True(b, what, is)
}

// passes returns when so much time has passed by the clock of the servers: it waits for an event that is not
// sent.
func (b *bench) passes(d time.Duration) {
	b.Helper()
	if d <= 0 {
		return
	}
	cmd := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: d}
	if got, err := b.at(0).gate.Do(b.Context(), named(gatehouse.Event, "time"), cmd); err != nil ||
		got.Outcome != gatehouse.Refused {
		b.Fatalf("an event that is not sent: %s, %v, want it refused", got.Outcome, err)
	}
}

// apply puts a queue to a store, which must not fail.
func (n *node) apply(key gatehouse.Key, cmds ...*gatehouse.Command) []gatehouse.Decision {
	n.bench.Helper()
	queue := make([]control.Turn, len(cmds))
	for i, cmd := range cmds {
		queue[i].Command = cmd
	}
	if err := n.store.Apply(context.Background(), key, queue); err != nil {
		n.bench.Fatalf("%s: %v", key, err)
	}
	decisions := make([]gatehouse.Decision, len(queue))
	for i := range queue {
		if queue[i].Err != nil {
			n.bench.Fatalf("%s: %v", key, queue[i].Err)
		}
		decisions[i] = queue[i].Decision
	}
	return decisions
}

// one puts one command to a store.
func (n *node) one(key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	n.bench.Helper()
	return n.apply(key, &cmd)[0]
}

// want puts one command to a store, which must have an outcome.
func (n *node) want(
	key gatehouse.Key, cmd gatehouse.Command, outcome gatehouse.Outcome,
) gatehouse.Decision {
	n.bench.Helper()
	d := n.one(key, cmd)
	if d.Outcome != outcome {
		n.bench.Errorf("%s: %s by %q is %s, want %s: %+v", key, cmd.Op, cmd.Holder, d.Outcome, outcome, d)
	}
	return d
}

// do puts one command to a gate, which must grant it.
func (n *node) do(key gatehouse.Key, cmd gatehouse.Command) {
	n.bench.Helper()
	if d, err := n.gate.Do(n.bench.Context(), key, cmd); err != nil || d.Outcome != gatehouse.Granted {
		n.bench.Errorf("%s: %s by %q is %s, %v, want it granted", key, cmd.Op, cmd.Holder, d.Outcome, err)
	}
}

// A heard is what a gate said in the end.
type heard struct {
	gatehouse.Decision
	err error
	at  time.Time
}

// wait has a gate answer in the background, and returns when the command has been looked at and waits.
func (n *node) wait(key gatehouse.Key, cmd gatehouse.Command) (answered chan heard, cancel func()) {
	n.bench.Helper()
	answered = make(chan heard, 1)
	before := n.store.waited()
	cancel = n.gate.Submit(key, cmd, func(d gatehouse.Decision, err error) {
		answered <- heard{d, err, time.Now()}
	})
	n.bench.eventually(fmt.Sprintf("%s: %s by %q waits", key, cmd.Op, cmd.Holder), func() bool {
		return n.store.waited() > before || len(answered) > 0
	})
	return answered, cancel
}

// hear waits for an answer.
func (b *bench) hear(what string, answered chan heard, outcome gatehouse.Outcome) heard {
	b.Helper()
	select {
	case a := <-answered:
		if a.err != nil || a.Outcome != outcome {
			b.Errorf("%s: %s, %v, want %s", what, a.Outcome, a.err, outcome)
		}
		return a
	case <-time.After(patience):
		b.Fatalf("%s: no answer after %s", what, patience)
		panic("unreachable")
	}
}

// silent sees that there is no answer yet.
func (b *bench) silent(what string, answered chan heard) {
	b.Helper()
	select {
	case a := <-answered:
		b.Fatalf("%s: answered too soon: %s, %v", what, a.Outcome, a.err)
	default:
	}
}

// A spy is a store that knows who has been looked at and had to wait.
type spy struct {
	gate.Store
	first gatehouse.Ticket
	mu    sync.Mutex
	seen  map[gatehouse.Ticket]bool
}

// Apply implements gate.Store.
func (s *spy) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	err := s.Store.Apply(ctx, key, queue)
	s.note(queue, err)
	return err
}

// note notes who has to wait.
func (s *spy) note(queue []control.Turn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range queue {
		cmd, d := queue[i].Command, &queue[i].Decision
		if err == nil && d.Outcome == gatehouse.Refused && cmd.Op.Waits() && cmd.MaxWait != 0 {
			s.seen[cmd.Ticket] = true
		}
	}
}

// waited is how many tickets have been looked at and had to wait, so far.
func (s *spy) waited() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.seen, 0)
	return len(s.seen)
}

// A slowSpy is a spy of a slow store.
type slowSpy struct {
	*spy
	slow gate.SlowStore
}

// Slow implements gate.SlowStore.
func (s slowSpy) Slow(key gatehouse.Key) bool { return s.slow.Slow(key) }

// An askedSpy is a spy of a store that is asked without waiting.
type askedSpy struct {
	slowSpy
	asker gate.AsyncStore
}

// ApplyAsync implements gate.AsyncStore.
func (s askedSpy) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
	s.asker.ApplyAsync(key, queue, func(err error) {
		s.note(queue, err)
		done(err)
	})
}

// A recorder is a T that notes what is wrong. It shows that a test can fail.
type recorder struct {
	ctx context.Context

	mu    sync.Mutex
	wrong []string
}

func (*recorder) Helper() {}

func (r *recorder) Context() context.Context { return r.ctx }

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
