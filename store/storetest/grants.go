package storetest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// GrantHistories has clients of all servers of a store make so many calls about grants over several names,
// and on those names alone, and looks for an order that explains what was answered.
func GrantHistories(t *testing.T, setup Setup, calls int) {
	t.Helper()
	made := 0
	for seed := uint64(0); made < calls; seed++ {
		b := &testBench{T: t, Setup: &setup}
		w := &grantWork{bench: b, seed: seed, left: min(calls-made, perHistory)}
		work := func(*testBench) { w.run() }
		if setup.Virtual {
			synctest.Test(t, func(t *testing.T) { b.runOnPlace(t, work) })
		} else {
			b.runOnPlace(t, work)
		}
		// Groups have names of their own, so that each is searched alone, which takes far less time.
		for _, g := range w.groups {
			made += g.history.Len()
			if err := g.history.Check(patience); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	t.Logf("%d calls are explained", made)
}

// A grantWork is clients that ask for the names of one group after the other. Of a long history the search
// would take too long.
type grantWork struct {
	bench *testBench
	seed  uint64
	left  int // calls

	mu     sync.Mutex
	groups []*grantGroup
	now    int // how many have begun in the last of them
}

// A grantGroup is some names and what was asked of them.
type grantGroup struct {
	number  int
	history oracle.GrantHistory
}

const (
	// perGroup is the most calls that are explained together, and unansweredPerGroup the most of them without
	// an answer before the next group begins: each of those may have taken effect, and have been undone, at
	// any time, so that the search takes about twice as long for each.
	perGroup           = 90
	unansweredPerGroup = 10

	lasts = 24 * time.Hour // longer than any call
)

// next is the group of the next call; nil when there is none.
func (w *grantWork) next() *grantGroup {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left <= 0 {
		return nil
	}
	w.left--
	// A call without an answer may have taken effect or not, and so doubles what is to be searched.
	if len(w.groups) == 0 || w.now == perGroup ||
		w.groups[len(w.groups)-1].history.Unanswered() >= unansweredPerGroup {
		w.groups, w.now = append(w.groups, &grantGroup{number: len(w.groups)}), 0
	}
	w.now++
	return w.groups[len(w.groups)-1]
}

func (w *grantWork) run() {
	var all sync.WaitGroup
	for i := range clients {
		rng := rand.New(rand.NewPCG(w.seed, uint64(i))) // the same again
		c := &grantCaller{work: w, name: fmt.Sprint("c", i), rng: rng}
		all.Go(func() {
			for g := w.next(); g != nil; g = w.next() {
				if w.bench.Calling != nil {
					w.bench.Calling()
				}
				c.call(g)
			}
		})
	}
	all.Wait()
}

// A grantCaller makes one call after the other.
type grantCaller struct {
	work  *grantWork
	name  string
	rng   *rand.Rand
	group *grantGroup
	has   []grantHas // in its group
	made  int
}

// A grantHas is a grant that a client has, or may have.
type grantHas struct {
	cmd   gatehouse.GrantCommand // of its acquire
	fence uint64                 // 0 when it is not known
}

func (c *grantCaller) gate() oracle.GrantGate {
	return c.work.bench.at(c.rng.IntN(len(c.work.bench.nodes))).gate
}

func (c *grantCaller) call(g *grantGroup) {
	if g != c.group {
		// Grants of the group before are over names that this one does not use.
		c.group, c.has = g, nil
	}
	switch what := c.rng.IntN(20); {
	case what < 12 && len(c.has) > 0:
		c.follow()
	case what == 12:
		id := fmt.Sprint(g.number, "-", c.rng.IntN(4)) // somebody's
		op := []gatehouse.Op{gatehouse.OpRelease, gatehouse.OpPeek}[c.rng.IntN(2)]
		c.decide(gatehouse.GrantCommand{Op: op, ID: id})
	case what < 15 && what > 12:
		c.single()
	default:
		c.acquire()
	}
}

// members are the names of a group, with what each has.
func (c *grantCaller) members() []gatehouse.Member {
	prefix := fmt.Sprint("grants", c.work.seed, "/", c.group.number, "/")
	day, three := gatehouse.Rule{Size: 6, Interval: lasts}, gatehouse.Rule{Size: 3}
	return []gatehouse.Member{
		{Key: keyOf(gatehouse.Lock, prefix+"a"), Cost: 1},
		{Key: keyOf(gatehouse.Lock, prefix+"b"), Cost: 1},
		{Key: keyOf(gatehouse.Semaphore, prefix+"a"), Rule: three, Cost: 1 + c.rng.Int64N(2)},
		{Key: keyOf(gatehouse.SlidingLog, prefix+"a"), Rule: day, Cost: 1 + c.rng.Int64N(3)},
		{Key: keyOf(gatehouse.TokenBucket, prefix+"a"), Rule: day, Cost: 1 + c.rng.Int64N(3)},
	}
}

// acquire asks for a grant over some of the names, in any order.
func (c *grantCaller) acquire() {
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, Expires: lasts, Overrun: gatehouse.Overrun(c.rng.IntN(2)),
		OnExpiry: gatehouse.OnExpiry(c.rng.IntN(3)),
	}
	all := c.members()
	for _, i := range c.rng.Perm(len(all))[:1+c.rng.IntN(3)] {
		cmd.Want = append(cmd.Want, all[i])
	}
	c.made++
	cmd.ID = fmt.Sprint(c.group.number, "-", c.name, "-", c.made)
	if c.rng.IntN(6) == 0 { // others come with the same
		cmd.ID = fmt.Sprint(c.group.number, "-", c.rng.IntN(4))
	}
	// Where somebody waits, others may be refused although there is room.
	if c.group.number%4 == 0 {
		cmd.MaxWait = time.Duration(c.rng.IntN(2)) * time.Millisecond
	}
	c.keep(grantHas{cmd: cmd}, c.decide(cmd))
}

// keep notes a grant that a client has, or may have.
func (c *grantCaller) keep(one grantHas, d *gatehouse.GrantDecision) {
	switch {
	case d == nil:
	case d.Outcome != gatehouse.Granted:
		return
	default:
		one.fence = d.Fence
	}
	c.has = append(c.has, one)
}

// decide asks for a grant, and returns what was decided; nil if that is not known. Some leave before the
// answer: it may have been granted, and is taken back at any time.
func (c *grantCaller) decide(cmd gatehouse.GrantCommand) *gatehouse.GrantDecision {
	ctx := c.work.bench.Context()
	if c.rng.IntN(8) == 0 {
		left, leave := context.WithTimeout(ctx, time.Duration(c.rng.Int64N(int64(time.Millisecond))))
		defer leave()
		ctx = left
	}
	d, err := c.group.history.DoGrant(ctx, c.gate(), cmd)
	if err != nil {
		return nil
	}
	return &d
}

// follow does something with a grant that the client has, or may have, at any server.
func (c *grantCaller) follow() {
	i := c.rng.IntN(len(c.has))
	one := c.has[i]
	cmd := gatehouse.GrantCommand{ID: one.cmd.ID, Op: []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRelease, gatehouse.OpSettle, gatehouse.OpSettle,
		gatehouse.OpTopUp, gatehouse.OpRenew, gatehouse.OpPeek,
	}[c.rng.IntN(8)]}
	switch cmd.Op {
	case gatehouse.OpAcquire: // once more
		c.keep(one, c.decide(one.cmd))
		return
	case gatehouse.OpRenew:
		cmd.Expires = gatehouse.AsAcquired
	case gatehouse.OpSettle, gatehouse.OpTopUp, gatehouse.OpRelease:
		cmd.Costs = c.costs(&one.cmd)
		// A settle and a topup need a cost, and this grant has no limiter.
		if len(cmd.Costs) == 0 {
			cmd.Op = gatehouse.OpRelease
		}
	}
	if cmd.Op != gatehouse.OpPeek && c.rng.IntN(2) == 0 {
		cmd.Fence = one.fence
		if c.rng.IntN(4) == 0 { // that of another
			cmd.Fence = c.has[c.rng.IntN(len(c.has))].fence
		}
	}
	d := c.decide(cmd)
	if cmd.Op == gatehouse.OpRelease && d != nil || d != nil && d.Outcome == gatehouse.Missing {
		c.has = slices.Delete(c.has, i, i+1)
	}
}

// costs are some of the limiters of a grant, or all.
func (c *grantCaller) costs(acquire *gatehouse.GrantCommand) (costs []gatehouse.MemberCost) {
	for i := range acquire.Want {
		if m := &acquire.Want[i]; m.Key.Kind.Limiter() && c.rng.IntN(4) > 0 {
			costs = append(costs, gatehouse.MemberCost{Key: m.Key, Cost: 1 + c.rng.Int64N(5)})
		}
	}
	return costs
}

// single asks for one of the names alone, or gives it back.
func (c *grantCaller) single() {
	all := c.members()
	m := all[c.rng.IntN(len(all))]
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: m.Rule, Cost: m.Cost}
	if !m.Key.Kind.Limiter() {
		cmd.Holder = c.name
		if c.rng.IntN(2) == 0 {
			cmd = gatehouse.Command{Op: gatehouse.OpRelease, Holder: c.name}
		}
	}
	_, _ = c.group.history.Do(c.work.bench.Context(), c.gate(), m.Key, cmd)
}
