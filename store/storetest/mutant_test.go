package storetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A mutant is a store that breaks one promise, which the test of that name must notice.
type mutant struct {
	name, test string
	config     cas.Config // that it has in place of the usual one
	forgets    bool       // all, when it is opened again
	survives   bool       // being killed

	before func(key *gatehouse.Key, cmd *control.Turn) // what it makes of commands
	after  func(cmd *control.Turn, d *gatehouse.Decision)
	split  bool // queues are applied turn by turn
	watch  func(store gate.Store, key gatehouse.Key, wake func()) (stop func())
	list   func(store gate.Store, kind gatehouse.Kind, after string, visit visitor) error
}

// A visitor is what Range calls.
type visitor = func(gatehouse.Key, control.State) bool

// seventh makes a change to every seventh of the commands for which it is called.
func seventh(change func(d *gatehouse.Decision)) func(d *gatehouse.Decision) {
	var n atomic.Int64
	return func(d *gatehouse.Decision) {
		if n.Add(1)%7 == 0 {
			change(d)
		}
	}
}

// on makes a change to the decisions about one operation.
func on(op gatehouse.Op, change func(d *gatehouse.Decision)) func(*control.Turn, *gatehouse.Decision) {
	return func(cmd *control.Turn, d *gatehouse.Decision) {
		if cmd.Op == op {
			change(d)
		}
	}
}

func mutants() []mutant {
	return append(append(decidingMutants(), holdingMutants()...), []mutant{
		{name: "keeps any number of holders", test: "as many holders as allowed",
			config: cas.Config{Holders: 1 << 20}},
		{name: "forgets no name", test: "what is worth nothing is forgotten",
			config: cas.Config{Linger: 1000 * time.Hour}},
		{name: "forgets all at the end", test: "what was answered lasts", forgets: true},
		{name: "lives on when killed", test: "a dead server leaves nothing behind", survives: true},
		{name: "lists from the beginning", test: "lists names in order",
			list: func(s gate.Store, kind gatehouse.Kind, _ string, visit visitor) error {
				return s.Range(context.Background(), kind, "", visit)
			}},
		{name: "lists on when told to stop", test: "lists names in order",
			list: func(s gate.Store, kind gatehouse.Kind, after string, visit visitor) error {
				on := func(key gatehouse.Key, state control.State) bool {
					visit(key, state)
					return true
				}
				return s.Range(context.Background(), kind, after, on)
			}},
		{name: "lists another kind too", test: "lists names in order",
			list: func(s gate.Store, kind gatehouse.Kind, after string, visit visitor) error {
				_ = s.Range(context.Background(), kind, after, visit)
				return s.Range(context.Background(), gatehouse.Event, after, visit)
			}},
		{name: "lists for a caller who has gone", test: "lists names in order",
			list: func(s gate.Store, kind gatehouse.Kind, after string, visit visitor) error {
				return s.Range(context.Background(), kind, after, visit)
			}},
		{name: "is deaf", test: "a release elsewhere wakes",
			watch: func(s gate.Store, key gatehouse.Key, _ func()) func() { return s.Watch(key, func() {}) }},
		{name: "wakes when stopped", test: "watches wake, and are silent when stopped",
			watch: func(s gate.Store, key gatehouse.Key, wake func()) func() {
				s.Watch(key, wake)
				return func() {}
			}},
	}...)
}

// What mutants change.
type (
	key      = *gatehouse.Key
	command  = *control.Turn
	decision = *gatehouse.Decision
)

func decidingMutants() []mutant {
	return []mutant{
		{name: "grants what it has not", test: "changes are atomic",
			after: on(gatehouse.OpAcquire, seventh(func(d decision) { d.Outcome = gatehouse.Granted }))},
		{name: "knows no longest delay", test: "a delay beyond the longest takes nothing",
			before: func(_ key, cmd command) { cmd.MaxDelay = 0 }},
		{name: "takes no charge", test: "a charge counts everywhere",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpCharge {
					cmd.Op = gatehouse.OpPeek
				}
			}},
		{name: "hears no report", test: "what a third party reports holds everywhere",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpFeedback {
					cmd.Op = gatehouse.OpPeek
				}
			}},
		{name: "tells of no holder", test: "holders are told exactly",
			after: on(gatehouse.OpHolders, func(d decision) { d.Report = new(gatehouse.Report) })},
		{name: "renews what was evicted", test: "an evicted hold is not renewed",
			after: on(gatehouse.OpRenew, func(d decision) { d.Outcome = gatehouse.Granted })},
		{name: "closes nothing", test: "a closed name grants nothing",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpClose {
					cmd.Op = gatehouse.OpOpen
				}
			}},
		{name: "tells of no other server", test: "who waits elsewhere is told",
			after: on(gatehouse.OpWaiters, func(d decision) { d.Report = new(gatehouse.Report) })},
		{name: "knows no limit in force", test: "a limit is in force everywhere",
			before: func(_ key, cmd command) {
				if cmd.Size == gatehouse.InForce {
					cmd.Size, cmd.Interval = gatehouse.DefaultSize, gatehouse.DefaultInterval
				}
			}},
		{name: "loses counts", test: "changes are atomic",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpCount && rand.IntN(7) == 0 {
					cmd.Op = gatehouse.OpValue
				}
			}},
		{name: "decides otherwise", test: "decides by the rules of control",
			before: func(_ key, cmd command) { cmd.Size++ }},
		{name: "takes a queue apart", test: "a queue is one change", split: true},
		{name: "takes parameters twice", test: "parameters count once",
			before: func(_ key, cmd command) { cmd.Again = false }},
		{name: "takes back anything", test: "an undo takes back what it names",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpUndo && cmd.Granted != nil {
					cmd.Op = gatehouse.OpRelease
				}
			}},
		{name: "takes nothing back", test: "who gives up leaves nothing behind",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpUndo {
					cmd.Op = gatehouse.OpStats
				}
			}},
	}
}

func holdingMutants() []mutant {
	return []mutant{
		{name: "has tokens that fall", test: "fencing tokens rise",
			after: func(_ command, d decision) {
				if d.Fence != 0 {
					d.Fence = ^d.Fence
				}
			}},
		{name: "gives a token at each look", test: "fencing tokens rise",
			after: func(_ command, d decision) {
				if d.Fence != 0 {
					d.Fence = uint64(d.At.UnixNano())
				}
			}},
		{name: "ends holds early", test: "a hold ends in time",
			before: func(_ key, cmd command) { cmd.Expires /= 2 }},
		{name: "never ends holds", test: "a hold ends in time",
			before: func(_ key, cmd command) { cmd.Expires = 0 }},
		{name: "keeps those waiting whose turn it is", test: "a hold that ends lets the next one in",
			before: func(_ key, cmd command) { cmd.Expires = 0 }},
		{name: "does not renew", test: "a renewed hold lasts",
			before: func(_ key, cmd command) {
				if cmd.Op == gatehouse.OpRenew {
					cmd.Op = gatehouse.OpAcquire
				}
			}},
		{name: "counts each look", test: "a ticket counts once",
			before: func(_ key, cmd command) { cmd.Ticket += control.Ticket(rand.IntN(1 << 20)) }},
		{name: "goes back in time", test: "time does not go back",
			after: on(gatehouse.OpCount, seventh(func(d decision) { d.At = d.At.Add(-time.Minute) }))},
		{name: "takes names for the same", test: "names are told apart",
			before: func(k key, _ command) { k.Name = strings.ToLower(k.Name) }},
		{name: "knows no line", test: "nobody overtakes at another server",
			before: func(_ key, cmd command) { cmd.Ticket = 0 }},
		{name: "deletes in silence", test: "a delete is told to all who wait",
			before: func(_ key, cmd command) { cmd.Since = cmd.Since.Add(time.Hour) }},
		{name: "opens for the last one only", test: "a barrier opens for all",
			after: func(cmd command, d decision) {
				if cmd.Again && d.Outcome == gatehouse.Granted && cmd.Op == gatehouse.OpWait {
					d.Outcome = gatehouse.Conflict
				}
			}},
		{name: "forgets what an event says", test: "an event reaches all",
			before: func(_ key, cmd command) { cmd.Message = "" }},
		{name: "lets somebody else go first", test: "those who wait go in order",
			after: on(gatehouse.OpAcquire, seventh(func(d decision) { d.Outcome = gatehouse.Granted }))},
		{name: "answers old values", test: "many at once",
			after: on(gatehouse.OpValue, func(d decision) { d.Value = max(0, d.Value-1) })},
	}
}

// A mutated store does what its mutant says.
type mutated struct {
	gate.Store
	*mutant
}

// Apply implements gate.Store.
func (m *mutated) Apply(c *control.Change) {
	go func() { c.Done(m.applyMutated(c.Key, c.Turns)) }() // ends with the store's answer
}

// applyMutated applies a queue as the mutant does.
func (m *mutated) applyMutated(key gatehouse.Key, queue []control.Turn) (err error) {
	changed := make([]control.Turn, len(queue))
	for i := range queue {
		cmd := *queue[i].Command
		changed[i] = queue[i]
		if changed[i].Command = &cmd; m.before != nil {
			m.before(&key, &changed[i])
		}
	}
	step := len(changed)
	if m.split {
		step = 1
	}
	for part := range slices.Chunk(changed, max(1, step)) {
		err = (&control.Change{Key: key, Turns: part}).ApplyTo(m.Store)
	}
	for i := range queue {
		if queue[i].Decision, queue[i].Err = changed[i].Decision, changed[i].Err; m.after != nil {
			m.after(&queue[i], &queue[i].Decision)
		}
	}
	return err
}

// Watch implements gate.Store.
func (m *mutated) Watch(key gatehouse.Key, wake func()) (stop func()) {
	if m.watch != nil {
		return m.watch(m.Store, key, wake)
	}
	return m.Store.Watch(key, wake)
}

// Range implements gate.Store.
func (m *mutated) Range(ctx context.Context, kind gatehouse.Kind, after string, visit visitor) error {
	if m.list != nil {
		return m.list(m.Store, kind, after, visit)
	}
	return m.Store.Range(ctx, kind, after, visit)
}

// nest is a place of mutants.
type nest struct {
	*mutant
	store *castest.Store
	next  uint32
}

// Open implements Place.
func (n *nest) Open() Server {
	n.next++
	if n.forgets && n.next > 3 {
		n.store = castest.New(2, false)
	}
	backend := n.store.Server(0)
	config := n.config
	config.Server, config.Keep = n.next, 1
	s := cas.New(backend, config)
	return Server{
		Store: &mutated{s, n.mutant}, FirstTicket: cas.FirstTicket(n.next), Close: s.Close,
		Kill: func() { backend.Cut(!n.survives) },
	}
}

// End implements Place.
func (n *nest) End() {}

// hatch runs one test on a mutant, and returns what it found wrong.
func hatch(t *testing.T, m *mutant, name string) []string {
	t.Helper()
	r := &failureRecorder{ctx: context.Background()}
	b := &testBench{T: r, Setup: &Setup{
		Start: func(T) Place {
			n := &nest{mutant: m, store: castest.New(1, false)}
			n.store.Set(castest.Faults{Latency: 2 * time.Millisecond})
			return n
		},
		Virtual: true, Servers: 3, Unit: 5 * time.Second, Slack: 1200 * time.Millisecond,
		Linger: cas.DefaultLinger, Holders: cas.DefaultHolders, Lasts: true,
	}}
	for _, test := range tests {
		if test.name != name {
			continue
		}
		synctest.Test(t, func(*testing.T) {
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				b.runOnPlace(r, test.body)
			}()
			<-ended
		})
		b.checkHistory(r)
		return r.wrong
	}
	t.Fatalf("there is no test %q", name)
	return nil
}

// Each promise has a test that notices when it is broken.
func TestMutants(t *testing.T) {
	noticed := map[string]bool{}
	for _, m := range mutants() {
		t.Run(m.name, func(t *testing.T) {
			if wrong := hatch(t, &m, m.test); len(wrong) == 0 {
				t.Errorf("a store that %s passes %q", m.name, m.test)
			} else {
				line, _, _ := strings.Cut(wrong[0], "\n")
				t.Log(line)
			}
		})
		noticed[m.test] = true
	}
	for _, test := range tests {
		if !noticed[test.name] {
			t.Errorf("no mutant is to be noticed by %q", test.name)
		}
	}
}
