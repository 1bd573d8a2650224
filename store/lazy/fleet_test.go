package lazy_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// A fleet is some servers that share a store, in virtual time.
type fleet struct {
	t       *testing.T
	shared  *castest.Store
	servers []*server
	rule    lazy.SyncRule

	mu     sync.Mutex
	grants []grant
}

// A server is one of a fleet.
type server struct {
	number  int
	backend *castest.Server
	swap    *cas.Store
	lazy    *lazy.Store
	gate    *gate.Gate
}

// A grant is what was let through: when, by the store's time as the server knew it, and when it was heard of.
type grant struct {
	server int
	at     time.Time
	heard  time.Time
	cost   int64
	end    time.Time // of the window, as the server knew it
	store  time.Time // the store's true time when it was heard of
}

const timeout = 500 * time.Millisecond

func newFleet(t *testing.T, seed uint64, rule lazy.SyncRule, servers int) *fleet {
	t.Helper()
	f := &fleet{t: t, shared: castest.New(seed, false), rule: rule}
	for range servers {
		f.join(0)
	}
	return f
}

// newSkewed returns a fleet of three in front of a store without a clock, whose own clocks differ.
func newSkewed(t *testing.T, seed uint64, rule lazy.SyncRule) *fleet {
	t.Helper()
	f := &fleet{t: t, shared: castest.New(seed, true), rule: rule}
	skew := time.Duration(seed) * 100 * time.Millisecond //nolint:gosec // a small seed
	f.join(-skew)
	f.join(0)
	f.join(skew)
	return f
}

// join adds a server, whose clock is off by skew if the store has none.
func (f *fleet) join(skew time.Duration) {
	s := &server{number: len(f.servers) + 1, backend: f.shared.Server(skew)}
	number := uint32(s.number) //nolint:gosec // some
	s.swap = cas.New(s.backend, cas.Config{Server: number, Timeout: timeout})
	s.lazy = lazy.New(s.swap, lazy.Config{Rule: func(gatehouse.Key) lazy.SyncRule { return f.rule }})
	s.gate = gate.New(s.lazy, gate.Config{FirstTicket: cas.FirstTicket(number)})
	f.servers = append(f.servers, s)
}

// close ends all servers.
func (f *fleet) close() {
	for _, s := range f.servers {
		s.gate.Close()
		if err := s.gate.Drain(context.Background()); err != nil {
			f.t.Error(err)
		}
		s.lazy.Close()
		s.swap.Close()
	}
}

// do asks a server, and notes what it lets through.
func (f *fleet) do(s *server, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error) {
	d, err := s.gate.Do(context.Background(), key, cmd)
	if err == nil && d.Outcome == gatehouse.Granted && cmd.Op == gatehouse.OpAcquire {
		f.mu.Lock()
		f.grants = append(f.grants, grant{
			s.number, d.At, time.Now(), cmd.Cost, d.At.Add(d.ResetAfter), f.shared.Now(),
		})
		f.mu.Unlock()
	}
	return d, err
}

// must is do that may not fail.
func (f *fleet) must(s *server, key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	f.t.Helper()
	d, err := f.do(s, key, cmd)
	if err != nil {
		f.t.Fatalf("server %d: %s %s: %v", s.number, key, cmd.Op, err)
	}
	return d
}

// takeBack has a server take back a grant, and returns when it is done.
func (f *fleet) takeBack(s *server, key gatehouse.Key, cmd gatehouse.Command, granted gatehouse.Decision) {
	f.t.Helper()
	undo := control.UndoOf(&control.Turn{Command: &cmd}, &granted)
	c := control.Change{Key: key, Turns: []control.Turn{undo}}
	if err := c.ApplyTo(s.lazy); err != nil {
		f.t.Fatal(err)
	}
}

// exhaust asks until there is nothing left.
func (f *fleet) exhaust(s *server, key gatehouse.Key, cmd gatehouse.Command) {
	f.t.Helper()
	for f.must(s, key, cmd).Outcome == gatehouse.Granted {
		continue
	}
}

// total is how much was let through.
func (f *fleet) total() (n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, g := range f.grants {
		n += g.cost
	}
	return n
}

// figure is one of the statistics that the store has of a name, as a new server finds them.
func (f *fleet) figure(key gatehouse.Key, name string) any {
	f.t.Helper()
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	fresh := cas.New(f.shared.Server(0), cas.Config{Server: 1000, Timeout: timeout})
	defer fresh.Close()
	if err := (&control.Change{Key: key, Turns: turns}).ApplyTo(fresh); err != nil {
		f.t.Fatal(err)
	}
	i := slices.IndexFunc(turns[0].Decision.Stats, func(s gatehouse.Stat) bool { return s.Name == name })
	if i < 0 {
		f.t.Fatalf("%s has stats %v, want one called %s", key, turns[0].Decision.Stats, name)
	}
	return turns[0].Decision.Stats[i].Value
}
