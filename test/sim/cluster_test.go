package sim_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/gatehousehq/gatehouse/store/lazy"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// A setup is what a seed makes of itself before anything happens.
type setup struct {
	seed    uint64
	store   string // redis, etcd, memory; lazy is redis with lazy in front of it
	lossy   bool   // the store loses what it has been given, some of the time
	servers int
	clients int
	length  time.Duration // of the time in which things go wrong
	limits  []gatehouse.Kind
}

// setups are the kinds of fleets, each for one seed in ten.
var setups = []setup{
	{store: "redis"}, {store: "redis"}, {store: "redis", lossy: true}, {store: "etcd"}, {store: "lazy"},
	{store: "redis"}, {store: "etcd"}, {store: "lazy"}, {store: "redis", lossy: true},
	{store: "memory", lossy: true},
}

// limiters are all kinds of them.
var limiters = [...]gatehouse.Kind{
	gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.FixedWindow, gatehouse.SlidingWindow,
	gatehouse.SlidingLog, gatehouse.Pace,
}

// setupOf is what becomes of a seed.
func setupOf(seed uint64, length time.Duration) setup {
	rng := source(seed, 0)
	s := setups[seed%uint64(len(setups))]
	s.seed, s.length = seed, length
	s.servers, s.clients = 1+rng.IntN(4), 4+rng.IntN(4)
	if s.store == "memory" {
		s.servers = 1
	}
	for _, i := range rng.Perm(len(limiters))[:3] {
		s.limits = append(s.limits, limiters[i])
	}
	return s
}

func (s setup) String() string {
	return fmt.Sprintf("%s, lossy %t, %d servers, %d clients, %s",
		s.store, s.lossy, s.servers, s.clients, s.length)
}

// source is one of the sources of chance that a seed has.
func source(seed, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, stream)) // it is to be the same each time
}

// pause waits in virtual time.
func pause(d time.Duration) { <-time.After(d) }

// A server is one process of the fleet.
type server struct {
	number  uint32
	ctx     context.Context // ends when the process does
	end     context.CancelFunc
	kept    gate.Store       // behind the gate
	backend *castest.Server  // nil with memory
	swap    *cas.Store       // nil with memory
	breaker *breaker.Breaker // nil with memory
	lazy    *lazy.Store      // nil without
	gate    *gate.Gate
	doors   *doors

	from, until time.Duration // it is up; until is 0 as long as it is
}

// A cluster is all there is.
type cluster struct {
	setup
	history
	start time.Time
	fate  *rand.Rand
	store *castest.Store // nil with memory

	mu      sync.Mutex
	servers []*server // nil where one is down
	all     []*server // there ever were
	made    uint32    // servers, in all
	closing sync.WaitGroup
	over    bool
	lasted  time.Duration // until the end
	linear  oracle.History
	joint   map[int]*oracle.GrantHistory // of grants, by the age of the fleet
}

// newCluster starts a fleet.
func newCluster(s setup) *cluster {
	c := &cluster{setup: s, start: time.Now(), fate: source(s.seed, 1)}
	c.begin(c.start)
	if s.store != "memory" {
		c.store = castest.New(s.seed, s.store == "etcd")
		c.store.Changed = func(key gatehouse.Key, record []byte) { c.changed(key, record) }
	}
	c.servers = make([]*server, s.servers)
	for i := range c.servers {
		c.boot(i)
	}
	return c
}

// boot starts a process, which has an identity that no other ever had.
func (c *cluster) boot(place int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	s := &server{number: c.made, from: c.now()}
	c.all = append(c.all, s)
	s.ctx, s.end = context.WithCancel(context.Background())
	var store gate.Store
	if c.store == nil {
		store = memory.New(memory.Config{})
	} else {
		skew := time.Duration(c.fate.Int64N(int64(40 * time.Millisecond)))
		s.backend = c.store.Server(skew)
		s.swap = cas.New(s.backend, cas.Config{Server: s.number, Names: 1 + c.fate.IntN(300)})
		store = c.shared(s)
	}
	s.kept = store
	s.gate = gate.New(store, gate.Config{FirstTicket: cas.FirstTicket(s.number)})
	s.doors = c.open(s.gate)
	c.servers[place] = s
	c.noted("server %d starts at place %d", s.number, place)
}

// shared is what a server puts in front of a store that it shares, in the order of the program's.
func (c *cluster) shared(s *server) gate.Store {
	s.breaker = breaker.New(s.swap, breaker.Config{Timeout: cas.DefaultTimeout})
	var last fallback.RemoteStore = s.breaker
	if c.setup.store == "lazy" {
		s.lazy = lazy.New(s.breaker, lazy.Config{Rule: ruleOf})
		last = s.lazy
	}
	return fallback.New(last, fallback.Config{})
}

// ruleOf is how lazily a limiter is decided about: its name says so.
func ruleOf(key gatehouse.Key) lazy.SyncRule {
	switch {
	case strings.HasPrefix(key.Name, "lazy"):
		return lazy.SyncRule{Interval: 100 * time.Millisecond}
	case strings.HasPrefix(key.Name, "chunk"):
		return lazy.SyncRule{Interval: 100 * time.Millisecond, Chunk: 2}
	}
	return lazy.SyncRule{}
}

// any is one of the servers that are up; nil when there is none.
func (c *cluster) any(rng *rand.Rand) *server {
	c.mu.Lock()
	defer c.mu.Unlock()
	up := slices.DeleteFunc(slices.Clone(c.servers), func(s *server) bool { return s == nil })
	if len(up) == 0 {
		return nil
	}
	return up[rng.IntN(len(up))]
}

// stop ends the process at a place. One that dies is not heard of any more: all it knew is gone.
func (c *cluster) stop(place int, dies bool) {
	c.mu.Lock()
	s := c.servers[place]
	c.servers[place] = nil
	if s != nil {
		s.until = c.now()
	}
	c.mu.Unlock()
	if s == nil {
		return
	}
	c.noted("server %d ends, suddenly %t", s.number, dies)
	if c.store == nil {
		c.lost()
	}
	if dies && s.backend != nil {
		s.backend.Cut(true)
	}
	c.closing.Go(func() { s.close(dies) })
}

// close ends all that a process runs.
func (s *server) close(dies bool) {
	if dies {
		s.end()
		s.doors.cut()
	}
	s.doors.stopping()
	s.gate.Close()
	s.doors.close()
	_ = s.gate.Drain(context.Background())
	s.end()
	if s.lazy != nil {
		s.lazy.Close()
	}
	if s.breaker != nil {
		s.breaker.Close()
	}
	if s.swap != nil {
		s.swap.Close()
	}
}

// records are all controllers there are, as the store has them.
func (c *cluster) records(visit func(key gatehouse.Key, state control.State, heads int)) {
	if c.store == nil {
		return
	}
	for key, data := range c.store.Records() {
		content, err := cas.ReadRecord(key.Kind, data, c.store.Now())
		if err != nil {
			c.violated("record", key, "%v", err)
			continue
		}
		visit(key, content.State, content.Heads)
	}
}
