// Package storetest is what every store promises, as tests: one body that runs on each of them.
package storetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/test/oracle"
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

	// Calling, unless it is nil, is called before each call of GrantHistories, perhaps by several at once.
	Calling func()

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
	FirstTicket control.Ticket
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
	for _, test := range slices.Concat(tests, jointTests) {
		if !test.appliesTo(&setup) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			b := &testBench{T: t, Setup: &setup}
			if setup.Virtual {
				synctest.Test(t, func(t *testing.T) { b.runOnPlace(t, test.body) })
			} else {
				b.runOnPlace(t, test.body)
			}
			// Outside the bubble: virtual time stands still while the search computes.
			b.checkHistory(t)
		})
	}
}

// A contractTest is one promise.
type contractTest struct {
	name    string
	servers int       // that it needs
	needs   storeNeed // of the store
	body    func(b *testBench)
}

// A storeNeed is something that not all stores have.
type storeNeed uint8

const (
	needsLinger storeNeed = 1 << iota
	needsHolders
	needsLasting
)

func (t *contractTest) appliesTo(s *Setup) bool {
	return t.servers <= s.Servers && (t.needs&needsLinger == 0 || s.Linger > 0) &&
		(t.needs&needsHolders == 0 || s.Holders > 0) && (t.needs&needsLasting == 0 || s.Lasts)
}

// A testBench is a place with servers on it, for one test.
type testBench struct {
	T
	*Setup
	place   Place
	nodes   []*benchServer
	dead    []*benchServer // that were killed
	history oracle.History // to be explained at the end
}

// A benchServer is a server with its gate.
type benchServer struct {
	bench *testBench
	store *waitSpy
	gate  *gate.Gate
	kill  func()
	close func()
}

// runOnPlace runs one test with as many servers as there may be, up to three.
func (b *testBench) runOnPlace(t T, body func(b *testBench)) {
	b.T = t
	b.place = b.Start(t)
	defer b.place.End()
	defer b.closeAll()
	for range min(b.Servers, 3) {
		b.openServer()
	}
	body(b)
}

// checkHistory looks for an order that explains what was answered. That takes time of its own, and so is done
// where time is not virtual.
func (b *testBench) checkHistory(t T) {
	t.Helper()
	if err := b.history.Check(patience); err != nil {
		t.Errorf("%v", err)
	}
}

// openServer opens another server.
func (b *testBench) openServer() *benchServer {
	server := b.place.Open()
	n := &benchServer{
		bench: b, kill: server.Kill, close: server.Close, store: &waitSpy{
			Store: server.Store, first: server.FirstTicket, seen: make(map[control.Ticket]bool),
		},
	}
	n.gate = gate.New(n.store, gate.Config{FirstTicket: server.FirstTicket})
	b.nodes = append(b.nodes, n)
	return n
}

// closeAll closes the servers that are open.
func (b *testBench) closeAll() {
	for _, n := range append(b.nodes, b.dead...) {
		// The gate ends before its store, because its waiters still call that.
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
func (b *testBench) at(i int) *benchServer { return b.nodes[i%len(b.nodes)] }

// patience is how long something may take that has no time of its own.
const patience = time.Minute

// eventually waits until something is so.
func (b *testBench) eventually(what string, is func() bool) {
	b.Helper()
	await.True(b, what, is)
}

// passTime waits until time d has passed by the clock of the servers: it waits for an event that is not sent.
func (b *testBench) passTime(d time.Duration) {
	b.Helper()
	if d <= 0 {
		return
	}
	// The servers' clock need not be that of the test, so that it does not simply sleep.
	cmd := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: d}
	if got, err := b.at(0).gate.Do(b.Context(), keyOf(gatehouse.Event, "time"), cmd); err != nil ||
		got.Outcome != gatehouse.Refused {
		b.Fatalf("an event that is not sent: %s, %v, want it refused", got.Outcome, err)
	}
}

// applyQueue puts a queue to a store, which must not fail.
func (n *benchServer) applyQueue(key gatehouse.Key, queue ...control.Turn) []gatehouse.Decision {
	n.bench.Helper()
	err := (&control.Change{Key: key, Turns: queue}).ApplyTo(n.store)
	decisions := make([]gatehouse.Decision, len(queue))
	for i := range queue {
		if err = cmp.Or(err, queue[i].Err); err != nil {
			n.bench.Fatalf("%s: %v", key, err)
		}
		decisions[i] = queue[i].Decision
	}
	return decisions
}

// applyOne puts one command to a store.
func (n *benchServer) applyOne(key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	n.bench.Helper()
	return n.applyQueue(key, control.Turn{Command: &cmd})[0]
}

// want puts one command to a store, which must have an outcome.
func (n *benchServer) want(
	key gatehouse.Key, cmd gatehouse.Command, outcome gatehouse.Outcome,
) gatehouse.Decision {
	n.bench.Helper()
	return n.wantTurn(key, control.Turn{Command: &cmd}, outcome)
}

// wantTurn is want with what a gate adds.
func (n *benchServer) wantTurn(
	key gatehouse.Key, turn control.Turn, outcome gatehouse.Outcome,
) gatehouse.Decision {
	n.bench.Helper()
	d := n.applyQueue(key, turn)[0]
	if d.Outcome != outcome {
		n.bench.Errorf("%s: %s by %q is %s, want %s: %+v", key, turn.Op, turn.Holder, d.Outcome, outcome, d)
	}
	return d
}

// wantGranted puts one command to a gate, which must grant it.
func (n *benchServer) wantGranted(key gatehouse.Key, cmd gatehouse.Command) {
	n.bench.Helper()
	if d, err := n.gate.Do(n.bench.Context(), key, cmd); err != nil || d.Outcome != gatehouse.Granted {
		n.bench.Errorf("%s: %s by %q is %s, %v, want it granted", key, cmd.Op, cmd.Holder, d.Outcome, err)
	}
}

// A gateReply is what a gate said in the end.
type gateReply struct {
	gatehouse.Decision
	err error
	at  time.Time
}

// startWaiting submits a command to a gate, and returns when the store has seen it and it waits.
func (n *benchServer) startWaiting(
	key gatehouse.Key, cmd gatehouse.Command,
) (answered chan gateReply, cancel func()) {
	n.bench.Helper()
	answered = make(chan gateReply, 1)
	before := n.store.countWaited()
	r := &gate.Request{Key: key, Command: cmd, Decided: func(r *gate.Request) {
		// Who cancels is told so, which is no answer of the store's.
		if !errors.Is(r.Err, context.Canceled) {
			answered <- gateReply{*r.Decision, r.Err, time.Now()}
		}
	}}
	n.gate.Submit(r)
	n.bench.eventually(fmt.Sprintf("%s: %s by %q waits", key, cmd.Op, cmd.Holder), func() bool {
		// An answer ends the waiting too: a command that does not wait must fail the test, not block it.
		return n.store.countWaited() > before || len(answered) > 0
	})
	return answered, func() { n.gate.Cancel(r) }
}

// waitReply waits for an answer.
func (b *testBench) waitReply(what string, answered chan gateReply, outcome gatehouse.Outcome) gateReply {
	b.Helper()
	select {
	case a := <-answered:
		if a.err != nil || a.Outcome != outcome {
			b.Errorf("%s: %s, %v, want %s", what, a.Outcome, a.err, outcome)
		}
		return a
	// In a bubble this is virtual time, and costs none.
	case <-time.After(patience):
		b.Fatalf("%s: no answer after %s", what, patience)
		panic("unreachable")
	}
}

// wantNoReply sees that there is no answer yet.
func (b *testBench) wantNoReply(what string, answered chan gateReply) {
	b.Helper()
	select {
	case a := <-answered:
		b.Fatalf("%s: answered too soon: %s, %v", what, a.Outcome, a.err)
	default:
	}
}

// A waitSpy is a store that knows which commands were looked at and had to wait.
type waitSpy struct {
	gate.Store
	first control.Ticket
	mu    sync.Mutex
	seen  map[control.Ticket]bool
}

// Apply implements gate.Store.
func (s *waitSpy) Apply(c *control.Change) {
	turns, done := c.Turns, c.Done
	c.Done = func(err error) {
		s.noteWaiting(turns, err)
		done(err)
	}
	s.Store.Apply(c)
}

// noteWaiting notes a command that has to wait.
func (s *waitSpy) noteWaiting(queue []control.Turn, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range queue {
		turn, d := &queue[i], &queue[i].Decision
		// A ticket without a wait is refused for good, and one of a failed call may come again.
		if err == nil && d.Outcome == gatehouse.Refused && turn.Op.Waits() && turn.MaxWait != 0 {
			s.seen[turn.Ticket] = true
		}
	}
}

// countWaited is how many tickets have been looked at and had to wait, so far.
func (s *waitSpy) countWaited() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	// A command that a test applies directly may have no ticket, and then no caller waits for it.
	delete(s.seen, 0)
	return len(s.seen)
}

// A failureRecorder is a T that notes what is wrong. It shows that a test can fail.
type failureRecorder struct {
	ctx context.Context

	mu    sync.Mutex
	wrong []string
}

func (*failureRecorder) Helper() {}

func (r *failureRecorder) Context() context.Context { return r.ctx }

func (r *failureRecorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *failureRecorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}
