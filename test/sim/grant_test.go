package sim_test

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// A grantCall is a command about a grant over several names, and what became of it.
type grantCall struct {
	client     string
	server     uint32
	cmd        gatehouse.GrantCommand
	begin, end time.Duration
	d          gatehouse.GrantDecision
	err        error
}

func (c *grantCall) granted() bool { return c.err == nil && c.d.Outcome == gatehouse.Granted }

func (c *grantCall) String() string {
	text := fmt.Sprintf("%s at %d: %s %s", c.client, c.server, c.cmd.Op, &c.cmd)
	for i := range c.cmd.Want {
		text += fmt.Sprintf(" %s:%d", c.cmd.Want[i].Key, c.cmd.Want[i].Cost)
	}
	for _, cost := range c.cmd.Costs {
		text += fmt.Sprintf(" %s=%d", cost.Key, cost.Cost)
	}
	if c.err != nil {
		return text + ": " + c.err.Error()
	}
	return text + fmt.Sprintf(", waits %s: %s, fence %d, %s, to %.6f", c.cmd.MaxWait, c.d.Outcome, c.d.Fence,
		c.d.Message, c.end.Seconds())
}

// granting is the name of all that grants and single commands want side by side, but for its end.
const granting = "granted"

// grantable are the names that grants want: more than a grant may have.
func (c *cluster) grantable() (want []gatehouse.Member) {
	three := gatehouse.Rule{Size: slots}
	for i := range 6 {
		if i == 1 { // of each there is one among the first five
			want = append(want, gatehouse.Member{
				Key: named(c.limits[0], "%s-0", granting), Cost: 1, Rule: limit(c.limits[0]).Rule,
			})
		}
		want = append(want,
			gatehouse.Member{Key: named(gatehouse.Lock, "%s-%d", granting, i), Cost: 1},
			gatehouse.Member{
				Key: named(gatehouse.Semaphore, "%s-%d", granting, i), Cost: 1, Rule: three,
			})
	}
	for i := range 2 {
		for n, kind := range c.limits {
			rule := limit(kind).Rule
			if i == 0 && n == 0 {
				continue
			}
			want = append(want, gatehouse.Member{Key: named(kind, "%s-%d", granting, i), Cost: 1, Rule: rule})
		}
	}
	return want
}

// askGrant gives a command about a grant to a server, and notes what comes of it.
func (c *cluster) askGrant(
	s *server, client string, cmd gatehouse.GrantCommand, patience time.Duration,
) *grantCall {
	one := &grantCall{client: client, server: s.number, cmd: cmd, begin: c.now()}
	ctx := s.ctx
	if patience != gatehouse.Forever {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	one.d, one.err = s.gate.DoGrant(ctx, cmd)
	one.end = c.now()
	c.grantEnded(one)
	longest := cmd.MaxWait + 2*slowest // one that is there is looked up first
	if patience != gatehouse.Forever {
		longest = patience
	}
	key := gatehouse.Key{Kind: gatehouse.Grant, Name: cmd.ID}
	if took := one.end - one.begin; took > longest {
		c.violated("deadline", key, "%s took %s of %s: %v", cmd.Op, took, longest, one.err)
	}
	code := gatehouse.CodeOf(one.err)
	if one.err != nil && code != gatehouse.CodeUnavailable && code != gatehouse.CodeTimeout {
		c.violated("answer", key, "%s: %v", cmd.Op, one.err)
	}
	return one
}

// grantEnded notes a call. What it says of each lock and semaphore is noted as a call about that.
func (h *history) grantEnded(g *grantCall) {
	h.past.Lock()
	defer h.past.Unlock()
	h.grants = append(h.grants, g)
	want := g.cmd.Want
	if len(want) == 0 {
		want = h.wanted[g.cmd.ID]
	}
	h.wanted[g.cmd.ID] = want
	op := g.cmd.Op
	if op != gatehouse.OpAcquire && op != gatehouse.OpRenew && op != gatehouse.OpRelease {
		return
	}
	for i := range want {
		m := &want[i]
		if m.Key.Kind.Limiter() {
			continue
		}
		one := &call{client: g.client, server: g.server, key: m.Key, begin: g.begin, end: g.end, err: g.err}
		one.cmd = gatehouse.Command{
			Op: op, Holder: g.cmd.ID, Rule: m.Rule, Cost: m.Cost, Expires: g.cmd.Expires,
			MaxWait: g.cmd.MaxWait,
		}
		one.d = gatehouse.Decision{Outcome: g.d.Outcome, Fence: g.d.Fence, At: g.d.At}
		h.calls = append(h.calls, one)
	}
}

// doGrant gives a command about a grant to one of the servers.
func (c *client) doGrant(cmd gatehouse.GrantCommand) *grantCall {
	s := c.any(c.rand)
	if s == nil {
		pause(100 * time.Millisecond)
		return &grantCall{cmd: cmd, err: context.Canceled}
	}
	patience := gatehouse.Forever
	if cmd.MaxWait == gatehouse.Forever || c.rand.IntN(6) == 0 {
		patience = c.some(4 * time.Second)
	}
	return c.askGrant(s, c.id, cmd, patience)
}

// grant asks for a grant over 2 to 16 names, uses it, and gives it back, or dies with it.
func (c *client) grant() {
	all := c.grantable()
	n, from := 2+c.rand.IntN(3), 5 // the names that many want
	if c.rand.IntN(4) == 0 {
		n, from = 2+c.rand.IntN(gatehouse.MaxMembers-1), len(all)
	}
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g-" + c.newHolder(), Expires: lasting,
		MaxWait: waits[c.rand.IntN(len(waits))], Overrun: gatehouse.Overrun(c.rand.IntN(2)),
		OnExpiry: gatehouse.OnExpiry(c.rand.IntN(3)),
	}
	for _, i := range c.rand.Perm(from)[:n] {
		cmd.Want = append(cmd.Want, all[i])
	}
	dies := c.rand.IntN(4) == 0
	if dies {
		cmd.Expires = 100*time.Millisecond + c.some(2*time.Second)
	}
	one := c.doGrant(cmd)
	if !one.granted() {
		return
	}
	for range c.rand.IntN(4) {
		c.useGrant(&cmd, one)
		pause(c.some(300 * time.Millisecond))
	}
	if dies {
		return
	}
	end := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: cmd.ID, Costs: c.spent(&cmd)}
	for range 20 {
		if c.doGrant(end).err == nil {
			return
		}
		pause(c.some(time.Second))
	}
}

// useGrant does something with a grant that the client has.
func (c *client) useGrant(acquire *gatehouse.GrantCommand, one *grantCall) {
	cmd := gatehouse.GrantCommand{ID: acquire.ID, Op: []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpRenew, gatehouse.OpTopUp, gatehouse.OpSettle, gatehouse.OpSettle,
		gatehouse.OpPeek,
	}[c.rand.IntN(6)]}
	switch cmd.Op {
	case gatehouse.OpAcquire:
		cmd = *acquire
	case gatehouse.OpRenew:
		cmd.Expires = gatehouse.AsAcquired
	case gatehouse.OpTopUp, gatehouse.OpSettle:
		cmd.Costs = c.spent(acquire)
		if len(cmd.Costs) == 0 {
			return
		}
	}
	for i := range cmd.Costs {
		if cmd.Op == gatehouse.OpTopUp {
			cmd.Costs[i].Cost = 1
		}
	}
	if cmd.Op != gatehouse.OpAcquire && c.rand.IntN(2) == 0 {
		cmd.Fence = one.d.Fence
	}
	again := c.doGrant(cmd)
	if again.granted() && again.d.Fence != one.d.Fence {
		c.violated("own", acquire.Want[0].Key, "%s, want fence %d", again, one.d.Fence)
	}
}

// spent is what some limiters of a grant have cost: nothing, as much as was asked for, or twice that.
func (c *client) spent(acquire *gatehouse.GrantCommand) (costs []gatehouse.MemberCost) {
	for i := range acquire.Want {
		if m := &acquire.Want[i]; m.Key.Kind.Limiter() && c.rand.IntN(3) > 0 {
			costs = append(costs, gatehouse.MemberCost{Key: m.Key, Cost: c.rand.Int64N(3)})
		}
	}
	return costs
}

// aside takes what grants want by itself.
func (c *client) aside() {
	all := c.grantable()
	m := all[c.rand.IntN(len(all))]
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: m.Rule, Cost: 1, MaxWait: waits[c.rand.IntN(3)],
	}
	if m.Key.Kind.Limiter() {
		c.do(m.Key, cmd)
		return
	}
	cmd.Holder, cmd.Expires = c.newHolder(), lasting
	if one := c.do(m.Key, cmd); !one.granted() {
		return
	}
	pause(c.some(500 * time.Millisecond))
	cmd.Op, cmd.MaxWait = gatehouse.OpRelease, 0
	for !c.do(m.Key, cmd).decided() {
		pause(c.some(time.Second))
	}
}

// explained is the history of some names that are used for a while, of which an order is looked for that
// explains all answers.
func (c *cluster) explained(age int) *oracle.GrantHistory {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.joint == nil {
		c.joint = make(map[int]*oracle.GrantHistory)
	}
	if c.joint[age] == nil {
		c.joint[age] = new(oracle.GrantHistory)
	}
	return c.joint[age]
}

// recordGrant does something that is looked through for an order that explains all answers.
func (c *client) recordGrant(age int) {
	h := c.explained(age)
	day := gatehouse.Rule{Size: 2 * slots, Interval: 24 * time.Hour}
	three := gatehouse.Rule{Size: slots}
	all := []gatehouse.Member{
		{Key: named(gatehouse.Lock, "!g%d", age), Cost: 1},
		{Key: named(gatehouse.Lock, "!h%d", age), Cost: 1},
		{Key: named(gatehouse.Semaphore, "!g%d", age), Cost: 1 + c.rand.Int64N(2), Rule: three},
		{Key: named(gatehouse.SlidingLog, "!g%d", age), Cost: 1 + c.rand.Int64N(slots), Rule: day},
	}
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: c.newHolder(), Expires: 24 * time.Hour,
	}
	for _, i := range c.rand.Perm(len(all))[:2+c.rand.IntN(2)] {
		cmd.Want = append(cmd.Want, all[i])
	}
	explain := func(cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
		s := c.any(c.rand)
		if s == nil {
			return gatehouse.GrantDecision{}, context.Canceled
		}
		return h.DoGrant(s.ctx, s.gate, cmd)
	}
	d, err := explain(cmd)
	if err == nil && d.Outcome != gatehouse.Granted {
		return
	}
	for range c.rand.IntN(3) {
		pause(c.some(300 * time.Millisecond))
		next := gatehouse.GrantCommand{ID: cmd.ID, Op: gatehouse.OpSettle, Costs: c.spent(&cmd)}
		if len(next.Costs) == 0 {
			next = cmd
		}
		_, _ = explain(next)
	}
	end := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: cmd.ID}
	for range 3 {
		if _, err := explain(end); err == nil {
			return
		}
		pause(c.some(100 * time.Millisecond))
	}
}

// explain looks for orders that explain what was answered about grants.
func (c *cluster) explain() {
	for _, h := range c.joint {
		if err := h.Check(time.Minute); err != nil {
			c.violated("linear", gatehouse.Key{}, "%v", err)
		}
	}
}

// A spend is what one grant goes by of one limiter, as far as it is known.
type spend struct {
	takes   []oracle.Span
	counted int64
	sure    bool // counted is
}

// lower makes no more count than so much: what was taken last is given back first.
func (s *spend) lower(n int64) {
	sum := int64(0)
	for i := range s.takes {
		s.takes[i].N = min(s.takes[i].N, max(0, n-sum))
		sum += s.takes[i].N
	}
}

// grantSpans is what grants were let through at a limiter, and did not give back. What was booked as a debt
// is beyond what may be let through.
func (l *look) grantSpans() (spans []oracle.Span) {
	grants := make(map[string]*spend)
	expiries := make(map[string]gatehouse.OnExpiry)
	calls := slices.Clone(l.grants)
	slices.SortStableFunc(calls, func(a, b *grantCall) int { return int(a.begin - b.begin) })
	for _, c := range calls {
		s := grants[c.cmd.ID]
		if c.cmd.Op == gatehouse.OpAcquire {
			expiries[c.cmd.ID] = c.cmd.OnExpiry
		}
		i := slices.IndexFunc(c.d.Want, func(m gatehouse.MemberDecision) bool { return m.Key == l.key })
		figure := int64(-1)
		for _, cost := range c.cmd.Costs {
			if cost.Key == l.key {
				figure = cost.Cost
			}
		}
		switch {
		case c.cmd.Op == gatehouse.OpAcquire && c.granted() && s == nil && i >= 0:
			at, n := l.since(c.d.At), c.d.Want[i].Cost
			first := oracle.Span{From: at, To: at, N: n}
			grants[c.cmd.ID] = &spend{takes: []oracle.Span{first}, counted: n, sure: true}
		case s == nil || figure < 0:
		case c.err != nil: // it may have been carried out, or not
			s.sure = false
			if c.cmd.Op != gatehouse.OpTopUp {
				s.lower(figure)
			}
		case c.granted() && i >= 0:
			d := &c.d.Want[i]
			if at := l.since(c.d.At); s.sure && d.Cost-d.Booked > s.counted {
				s.takes = append(s.takes, oracle.Span{From: at, To: at, N: d.Cost - d.Booked - s.counted})
			} else if d.Cost < s.counted || !s.sure {
				s.lower(d.Cost)
			}
			s.counted, s.sure = d.Cost, true
		}
	}
	for id, s := range grants {
		// One that died may have given all of it back, or what it had settled.
		if expiries[id] == gatehouse.ExpiryZero && !l.releasedInTime(id) {
			continue
		}
		spans = append(spans, s.takes...)
	}
	return spans
}

// releasedInTime reports whether a grant is known to have been released.
func (l *look) releasedInTime(id string) bool {
	return slices.ContainsFunc(l.grants, func(c *grantCall) bool {
		return c.cmd.ID == id && c.cmd.Op == gatehouse.OpRelease && c.granted()
	})
}
