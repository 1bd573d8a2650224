package control

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A tenant is a grant of a limiter, as its holder sees it.
type tenant struct {
	name           string
	turn           GrantTurn
	cmd            gatehouse.GrantCommand
	granted        gatehouse.Decision
	taken, counted int64
	until          time.Time
	expires        time.Duration
	passes         []*startRun // what it goes by, in order of the starts
	gone           bool        // it was reset
}

// A debtor is a part of the debt.
type debtor struct {
	of   *tenant // nil for a charge
	n    int64
	past bool // it was laid under other limits
}

// A tenancy is a limiter with some grants, and what somebody goes by, counted from the last reset.
type tenancy struct {
	t       *rapid.T
	v       variety
	rule    gatehouse.Rule
	choices []gatehouse.Command // of rules
	most    int64               // that fits at once
	s       subject
	now     time.Time
	passes  []*startRun
	all     record // whatever was let in
	refunds record
	debts   []debtor // in the order in which they are repaid
	tenants []*tenant
	names   int
}

// pass notes what somebody goes by from an instant on.
func (y *tenancy) pass(of *tenant, at, n int64) {
	if n == 0 {
		return
	}
	p := &startRun{at, n}
	y.passes, y.all = append(y.passes, p), append(y.all, *p)
	if of != nil {
		of.passes = append(of.passes, p)
	}
}

// repay notes that a piece of the debt has started.
func (y *tenancy) repay(at, n int64) {
	for n > 0 {
		if len(y.debts) == 0 {
			y.t.Fatalf("%d more is repaid than was charged", n)
		}
		first := &y.debts[0]
		paid := min(n, first.n)
		y.pass(first.of, at, paid)
		if first.past {
			y.passes = y.passes[:len(y.passes)-1]
		}
		n, first.n = n-paid, first.n-paid
		if first.n == 0 {
			y.debts = y.debts[1:]
		}
	}
}

// debt is how much is not repaid.
func (y *tenancy) debt() (n int64) {
	for _, d := range y.debts {
		n += d.n
	}
	return n
}

// startDue notes the pieces that start by now, before a step finds them.
func (y *tenancy) startDue() {
	if l := limiterOf(y.s.state); l != nil {
		for _, p := range l.extra.placesAhead() {
			if p.isDebt && p.at <= y.now.UnixNano() {
				y.repay(p.at, p.n)
			}
		}
	}
}

// compare notes what of the debt was repaid in a step, and holds what somebody goes by to the bound.
func (y *tenancy) compare() {
	y.repay(y.now.UnixNano(), y.debt()-debtOf(y.s.state))
	if debt := debtOf(y.s.state); debt != y.debt() {
		y.t.Fatalf("the debt is %d, want %d", debt, y.debt())
	}
	l := ledger{refunds: y.refunds}
	for _, p := range y.passes {
		l.all = append(l.all, &grantee{startRun: *p, answers: int(min(p.n, 1))})
	}
	l.check(y.t, y.v, &gatehouse.Command{Rule: y.rule})
	for _, a := range y.tenants {
		share := limiterOf(y.s.state).extra.findShare(a.granted.Fence)
		if share == nil != a.gone {
			y.t.Fatalf("%s has a share: %t, it is gone: %t", a.name, share != nil, a.gone)
		}
		if share != nil && (share.counted != a.counted || share.taken != a.taken) {
			y.t.Fatalf("%s has taken %d, %d of it counts, want %+v", a.name, share.taken, share.counted, a)
		}
	}
}

// advance passes all instants at which grants end up to a later one.
func (y *tenancy) advance(to time.Time) {
	for {
		slices.SortStableFunc(y.tenants, func(a, b *tenant) int { return a.until.Compare(b.until) })
		if len(y.tenants) == 0 || y.tenants[0].until.After(to) {
			break
		}
		y.now = y.tenants[0].until
		y.startDue()
		for len(y.tenants) > 0 && y.tenants[0].until.Equal(y.now) {
			y.end(y.tenants[0])
			y.tenants = y.tenants[1:]
		}
		y.peek()
		y.compare()
	}
	y.now = to
	y.startDue()
}

// end is what becomes of a grant that ends by itself.
func (y *tenancy) end(a *tenant) {
	target := a.counted
	switch a.turn.OnExpiry {
	case gatehouse.ExpiryEstimate:
		target = max(target, a.taken)
	case gatehouse.ExpiryZero:
		target = 0
	}
	switch more := target - a.counted; {
	case a.gone:
	case more > 0:
		y.debts = append(y.debts, debtor{n: more}) // what is free of it is repaid at once
	default:
		y.giveBack(a, -more)
	}
}

// peek looks, and brings the limiter to now.
func (y *tenancy) peek() int64 { return y.s.with(y.now, gatehouse.OpPeek, 0).Remaining }

// giveBack notes what a holder does not go by any more: what lies ahead first, then what was taken last.
func (y *tenancy) giveBack(a *tenant, n int64) {
	for i := len(y.debts) - 1; i >= 0 && n > 0; i-- {
		if d := &y.debts[i]; d.of == a {
			back := min(n, d.n)
			d.n, n = d.n-back, n-back
		}
	}
	y.debts = slices.DeleteFunc(y.debts, func(d debtor) bool { return d.n == 0 })
	for i := len(a.passes) - 1; i >= 0 && n > 0; i-- {
		back := min(n, a.passes[i].n)
		a.passes[i].n, n = a.passes[i].n-back, n-back
	}
}

// serve serves a turn of a grant alone.
func (y *tenancy) serve(a *tenant, cmd gatehouse.Command) gatehouse.Decision {
	cmd.Rule, cmd.Fence, cmd.Expires = y.rule, a.granted.Fence, a.expires
	a.turn.ID, a.turn.Command, a.turn.Counted, a.turn.Taken = a.name, &a.cmd, a.counted, a.taken
	part := Part{Key: gatehouse.Key{Kind: y.v.kind, Name: "n"}, Turn: Turn{Command: &cmd, Grant: &a.turn}}
	parts := []JointPart{{Part: &part, State: y.s.state}}
	ServeJoint(y.now, parts)
	y.s.state = parts[0].State
	return part.Turn.Decision
}

// begin acquires a grant.
func (y *tenancy) begin() {
	t := y.t
	y.names++
	a := &tenant{name: fmt.Sprint("g", y.names), expires: time.Duration(
		rapid.Int64Range(1, 4*int64(longest(&gatehouse.Command{Rule: y.rule}))).Draw(t, "expires"))}
	a.cmd = gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
	a.turn = GrantTurn{
		OnExpiry: rapid.SampledFrom([]gatehouse.OnExpiry{0, 1, 2}).Draw(t, "on-expiry"),
		Clip:     rapid.Bool().Draw(t, "clip"),
	}
	cost := rapid.Int64Range(1, y.most+1).Draw(t, "cost")
	d := y.serve(a, gatehouse.Command{Op: gatehouse.OpAcquire, Cost: cost})
	if d.Outcome != gatehouse.Granted {
		return
	}
	if want := min(cost, y.most); d.Value != want {
		t.Fatalf("acquire %d took %d, want %d", cost, d.Value, want)
	}
	a.granted, a.counted, a.taken, a.until = d, d.Value, d.Value, y.now.Add(a.expires)
	y.pass(a, y.now.UnixNano(), d.Value)
	y.tenants = append(y.tenants, a)
}

// follow does something with a grant that is there.
func (y *tenancy) follow() {
	t := y.t
	i := rapid.IntRange(0, len(y.tenants)-1).Draw(t, "grant")
	a := y.tenants[i]
	switch rapid.IntRange(0, 9).Draw(t, "what follows") {
	case 0:
		a.cmd.Op = gatehouse.OpRenew
		if d := y.serve(a, gatehouse.Command{Op: gatehouse.OpRenew}); d.Outcome == gatehouse.Granted {
			a.until = y.now.Add(a.expires)
		}
	case 1, 2:
		a.cmd.Op = gatehouse.OpTopUp
		n := rapid.Int64Range(1, y.most).Draw(t, "topup")
		d := y.serve(a, gatehouse.Command{Op: gatehouse.OpAcquire, Cost: n})
		if d.Outcome == gatehouse.Granted {
			a.counted, a.taken = a.counted+n, a.taken+n
			y.pass(a, y.now.UnixNano(), n)
		}
	case 3:
		a.cmd.Op = gatehouse.OpRelease
		y.settle(a, gatehouse.OpRelease, rapid.Int64Range(-1, 2*a.taken).Draw(t, "figure"))
		y.tenants = slices.Delete(y.tenants, i, i+1)
	default:
		a.cmd.Op = gatehouse.OpSettle
		y.settle(a, gatehouse.OpSettle, rapid.Int64Range(0, 3*a.taken).Draw(t, "figure"))
	}
}

// settle tells what a grant has cost so far.
func (y *tenancy) settle(a *tenant, op gatehouse.Op, figure int64) {
	left, before, owed := y.peek(), a.counted, debtOf(y.s.state)
	d := y.serve(a, gatehouse.Command{Op: op, Cost: figure})
	if figure == NoFigure {
		figure = before
	}
	if d.Outcome != gatehouse.Granted || d.Value != figure {
		y.t.Fatalf("settle at %d = %+v", figure, d)
	}
	a.counted = d.Value
	if more := figure - before; more > 0 {
		of := a
		if a.gone {
			of = nil
		}
		y.pass(of, y.now.UnixNano(), more-d.Booked)
		if d.Booked > 0 {
			y.debts = append(y.debts, debtor{of: of, n: d.Booked})
		}
		return
	}
	back := before - figure
	fresh := int64(0) // what was taken just now
	for _, p := range a.passes {
		if p.at == y.now.UnixNano() {
			fresh += p.n
		}
	}
	y.giveBack(a, back)
	// What is free now is more, or what lies ahead is less.
	debt := debtOf(y.s.state)
	usable := !a.gone && back <= fresh && len(y.refunds) == 0
	if usable && left+owed > 0 && d.Remaining-debt < left-owed+back {
		y.t.Fatalf("%d left with a debt of %d after %d was given back, and %d with %d before", d.Remaining,
			debt, back, left, owed)
	}
}

// others does something that is no grant's.
func (y *tenancy) others() {
	t := y.t
	cmd := gatehouse.Command{Rule: y.rule, Cost: rapid.Int64Range(1, y.most).Draw(t, "cost of others")}
	switch what := rapid.IntRange(0, 9).Draw(t, "what others do"); {
	case what < 6:
		cmd.Op = gatehouse.OpAcquire
		if y.s.step(y.now, cmd).Outcome == gatehouse.Granted {
			y.pass(nil, y.now.UnixNano(), cmd.Cost)
		}
	case what < 8:
		cmd.Op = gatehouse.OpCharge
		if y.s.step(y.now, cmd).Outcome == gatehouse.Granted {
			y.debts = append(y.debts, debtor{n: cmd.Cost}) // what is free of it is repaid at once
		}
	case what < 9:
		if y.s.with(y.now, gatehouse.OpRefund, cmd.Cost).Outcome != gatehouse.Granted {
			return
		}
		rest := cmd.Cost
		for i := len(y.debts) - 1; i >= 0 && rest > 0; i-- {
			back := min(rest, y.debts[i].n)
			y.debts[i].n, rest = y.debts[i].n-back, rest-back
		}
		y.debts = slices.DeleteFunc(y.debts, func(d debtor) bool { return d.n == 0 })
		if rest > 0 {
			y.refunds = append(y.refunds, startRun{y.now.UnixNano(), rest})
		}
	case rapid.Bool().Draw(t, "change"):
		// It takes one, so that the limits are in force: what somebody goes by is counted from here on.
		y.rule = rapid.SampledFrom(y.choices).Draw(t, "limits").Rule
		y.most = least(y.v, &gatehouse.Command{Rule: y.rule})
		y.s.stepTurn(y.now, &Turn{Forced: true, Command: &gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: y.rule,
		}})
		y.passes, y.all = nil, nil
		for i := range y.debts {
			y.debts[i].past = true
		}
		for _, a := range y.tenants {
			a.passes = nil
		}
	default:
		y.s.with(y.now, gatehouse.OpReset, 0)
		y.passes, y.all, y.refunds, y.debts = nil, nil, nil, nil
		for _, a := range y.tenants {
			a.gone, a.passes = true, nil
		}
	}
}

// TestGrantsKeepTheLimit: whatever mixture of grants, top-ups, settles, releases and ends, of acquires,
// charges, refunds and resets by others: what somebody goes by keeps the limit as the kind promises it, with
// each piece of a debt where it is repaid; and what is given back can be taken again.
func TestGrantsKeepTheLimit(t *testing.T) { each(t, checkGrants) }

func checkGrants(t *rapid.T, v variety) {
	choices := drawChoices(t, v)
	cmd := choices[0]
	y := &tenancy{t: t, v: v, rule: cmd.Rule, most: least(v, &cmd), s: subject{kind: v.kind}, now: origin(t)}
	y.choices = choices
	cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1
	y.s.step(y.now, cmd)
	y.pass(nil, y.now.UnixNano(), 1)
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		y.advance(y.now.Add(later(t, longest(&gatehouse.Command{Rule: y.rule}))))
		if rapid.IntRange(0, 5).Draw(t, "stored") == 0 {
			y.s.state = decoded(t, v.kind, y.s.state)
		}
		switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
		case what < 3:
			y.begin()
		case what < 7 && len(y.tenants) > 0:
			y.follow()
		default:
			y.others()
		}
		y.compare()
	}
}

// TestForecastSettlesNothing: a list of waiters does not settle grants whose time is up.
func TestForecastSettlesNothing(t *testing.T) {
	l := newLessor(gatehouse.TokenBucket)
	cmd := gatehouse.Command{
		Rule: gatehouse.Rule{Size: 10, Interval: time.Hour}, Cost: 8, Expires: time.Second,
	}
	const givesAllBack = 1 // by its number
	turn, _ := l.turn(givesAllBack, gatehouse.OpAcquire, cmd)
	l.serve(givesAllBack, turn)
	l.now = l.now.Add(2 * time.Second)
	list := gatehouse.Command{Op: gatehouse.OpWaiters}
	line := &Line{Total: 1, Entries: []LineEntry{{Ticket: 1, Cost: 9}}}
	queue := []Turn{{Command: &list, Line: line}}
	l.state = Serve(l.now, l.kind, l.state, queue)
	if r := queue[0].Decision.Report; len(r.Waiters) != 1 || r.Waiters[0].Expected != 0 {
		t.Errorf("%+v is expected, want no wait", r.Waiters)
	}
	if d := l.with(l.now, gatehouse.OpPeek, 0); d.Remaining != 10 {
		t.Errorf("%d are left after the list, want 10", d.Remaining)
	}
}
