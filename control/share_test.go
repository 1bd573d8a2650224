package control

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// A lessor is a limiter with grants by number, which tests drive at random.
type lessor struct {
	subject
	now     time.Time
	granted map[int]gatehouse.Decision
	grants  map[int]*GrantTurn
}

func newLessor(kind gatehouse.Kind) *lessor {
	return &lessor{
		subject: subject{kind: kind}, now: epoch(),
		granted: map[int]gatehouse.Decision{}, grants: map[int]*GrantTurn{},
	}
}

// turn is a turn of a grant; ok is false if it is not there, or there already.
func (l *lessor) turn(number int, op gatehouse.Op, cmd gatehouse.Command) (turn Turn, ok bool) {
	g, there := l.grants[number]
	if there == (op == gatehouse.OpAcquire) {
		return turn, false
	}
	if !there {
		ends := []gatehouse.OnExpiry{gatehouse.ExpiryEstimate, gatehouse.ExpiryZero, gatehouse.ExpiryLast}
		overruns := []gatehouse.Overrun{gatehouse.OverrunDebt, gatehouse.OverrunCap}
		g = &GrantTurn{ID: fmt.Sprint(number), OnExpiry: ends[number%3], Overrun: overruns[number/3%2]}
		l.grants[number] = g
	}
	cmd.Op, cmd.Fence = op, l.granted[number].Fence
	if op == gatehouse.OpTopUp {
		cmd.Op = gatehouse.OpAcquire
	}
	g.Command = &gatehouse.GrantCommand{Op: op}
	return Turn{Command: &cmd, Grant: g}, true
}

// serve serves a turn of a grant.
func (l *lessor) serve(number int, turn Turn) gatehouse.Decision {
	part := Part{Key: gatehouse.Key{Kind: l.kind, Name: "n"}, Turn: turn}
	parts := []JointPart{{Part: &part, State: l.state}}
	granted := ServeJoint(l.now, parts)
	l.state = parts[0].State
	d, op := part.Turn.Decision, turn.Grant.Command.Op
	switch {
	case op == gatehouse.OpAcquire && !granted:
		delete(l.grants, number)
	case op == gatehouse.OpAcquire:
		l.granted[number] = d
	}
	if granted {
		turn.Grant.Counted = d.Value
	}
	return d
}

// draw is a turn of some grant, with what pick chooses from 0 to below a number.
func (l *lessor) draw(pick func(n int) int, rule gatehouse.Rule) (number int, turn Turn, ok bool) {
	ops := []gatehouse.Op{
		gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpTopUp, gatehouse.OpSettle, gatehouse.OpSettle,
		gatehouse.OpRenew, gatehouse.OpRelease,
	}
	op, number := ops[pick(len(ops))], pick(12)
	cmd := gatehouse.Command{
		Rule: rule, Cost: 1 + int64(pick(3)), Expires: time.Duration(1+pick(4000)) * time.Millisecond,
	}
	switch op {
	case gatehouse.OpSettle:
		cmd.Cost = int64(pick(12))
	case gatehouse.OpRelease:
		cmd.Cost = int64(pick(12)) - 1
	}
	turn, ok = l.turn(number, op, cmd)
	if op == gatehouse.OpRelease && ok {
		delete(l.grants, number)
	}
	return number, turn, ok
}

// TestGrantGrowth: no turn of a grant makes a limiter grow by more than was foreseen.
func TestGrantGrowth(t *testing.T) {
	for seed := range uint64(60) {
		random := rand.New(rand.NewPCG(seed, 2))
		for _, v := range varieties() {
			l := newLessor(v.kind)
			for range 200 {
				growGrant(t, l, random)
			}
			weight, read := l.state.Weight(), decoded(t, v.kind, l.state)
			if read.Weight() > 2*weight+200 {
				t.Fatalf("%s weighs %d, and %d as it is read", v, weight, read.Weight())
			}
		}
	}
}

// growGrant serves some turn, which must not make the limiter grow by more than is foreseen.
func growGrant(t *testing.T, l *lessor, random *rand.Rand) {
	t.Helper()
	l.now = l.now.Add(time.Duration(random.IntN(500)) * time.Millisecond)
	cmd := anyCommand(random, l.kind)
	if cmd.Limits.Len() == 0 || random.IntN(4) > 0 {
		cmd.Rule = gatehouse.Rule{Size: 9, Burst: 8, Interval: time.Second}
	}
	l.with(l.now, gatehouse.OpPeek, 0) // what ends, ends here
	number, turn, ok := l.draw(random.IntN, cmd.Rule)
	if !ok || l.state == nil {
		l.step(l.now, cmd)
		return
	}
	most, before := memoryGrowth(l.now, l.state, &turn), l.state.Weight()
	figure, counted := turn.Cost, turn.Grant.Counted
	l.serve(number, turn)
	// What is given back may need some bytes too.
	gives := (turn.Op == gatehouse.OpSettle || turn.Op == gatehouse.OpRelease) && figure < counted
	if more := l.state.Weight() - before; more > most && !gives {
		t.Fatalf("%s: %s of %d grows by %d, want at most %d", l.kind, turn.Op, turn.Cost, more, most)
	}
}

// TestSharesEndByThemselves: a limiter at which nobody looks when grants end decides afterwards as one at
// which somebody did, and so does one that was read from its form. Before its expiry it is not worth nothing.
func TestSharesEndByThemselves(t *testing.T) { each(t, checkSharesEnd) }

func checkSharesEnd(t *rapid.T, v variety) {
	seen, unseen := newLessor(v.kind), newLessor(v.kind)
	rule := gatehouse.Rule{Size: 5, Burst: 4, Interval: time.Second, Mode: v.mode}
	pick := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "pick") }
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		later := time.Duration(rapid.IntRange(0, 2000).Draw(t, "ms")) * time.Millisecond
		for range rapid.IntRange(0, 3).Draw(t, "looks") {
			later /= 2
			seen.now = seen.now.Add(later)
			seen.with(seen.now, gatehouse.OpPeek, 0)
		}
		seen.now = seen.now.Add(later)
		unseen.now = seen.now
		if rapid.Bool().Draw(t, "stored") && unseen.state != nil {
			unseen.state = decoded(t, v.kind, unseen.state)
		}
		if unseen.state != nil && !unseen.state.Expiry().After(unseen.now) {
			fresh := newLessor(v.kind)
			a := fresh.step(unseen.now, acquireUnder(rule))
			b := decodedSubject(t, unseen).step(unseen.now, acquireUnder(rule))
			if a.Outcome != b.Outcome || a.Remaining != b.Remaining {
				t.Fatalf("%+v of one that is worth nothing, want %+v", b, a)
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "other") == 0 {
			a, b := seen.step(seen.now, acquireUnder(rule)), unseen.step(seen.now, acquireUnder(rule))
			compareDecisions(t, a, b)
			continue
		}
		number, turn, ok := seen.draw(pick, rule)
		if !ok {
			continue
		}
		grant, cmd := *turn.Grant, *turn.Command
		other := Turn{Command: &cmd, Grant: &grant}
		compareDecisions(t, seen.serve(number, turn), unseen.serve(number, other))
	}
	// Both are the same by now, but for the room that lists have.
	seen.with(seen.now, gatehouse.OpPeek, 0)
	unseen.with(seen.now, gatehouse.OpPeek, 0)
	if seen.state == nil {
		return
	}
	a, b := seen.with(seen.now, gatehouse.OpStats, 0), unseen.with(seen.now, gatehouse.OpStats, 0)
	compareDecisions(t, a, b)
}

// acquireUnder is an acquire of one.
func acquireUnder(rule gatehouse.Rule) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule, Cost: 1}
}

// decodedSubject is a copy of a limiter.
func decodedSubject(t *rapid.T, l *lessor) *subject {
	return &subject{kind: l.kind, state: decoded(t, l.kind, l.state)}
}

func compareDecisions(t *rapid.T, a, b gatehouse.Decision) {
	if a, b = plainTimes(a), plainTimes(b); !reflect.DeepEqual(a, b) {
		t.Fatalf("%+v\nof one that was not looked at, want\n%+v", b, a)
	}
}

// TestManyShares: that a limiter has many grants costs an acquire nothing, and each grant little.
func TestManyShares(t *testing.T) {
	l := newLessor(gatehouse.TokenBucket)
	rule := gatehouse.Rule{Size: gatehouse.MaxSize, Interval: time.Second}
	const many = 10_000
	for i := range many {
		cmd := gatehouse.Command{Rule: rule, Cost: 1, Expires: time.Minute}
		turn, _ := l.turn(i, gatehouse.OpAcquire, cmd)
		l.serve(i, turn)
	}
	if each := l.state.Weight() / many; each > 300 {
		t.Errorf("a share weighs %d bytes, want at most 300", each)
	}
	cmd := acquireUnder(rule)
	turn := &Turn{Command: &cmd}
	l.state.Step(l.now, turn)
	if n := testing.AllocsPerRun(100, func() { l.state.Step(l.now, turn) }); n > 0 {
		t.Errorf("%v allocations for an acquire beside grants, want none", n)
	}
	form := Encode(nil, l.state)
	if each := len(form) / many; each > 64 {
		t.Errorf("a share takes %d bytes in a form, want at most 64", each)
	}
	// All of them end at once.
	l.now = l.now.Add(time.Minute)
	l.with(l.now, gatehouse.OpPeek, 0)
	if n := len(Encode(nil, l.state)); n > 100 || limiterOf(l.state).extra.findShare(1) != nil {
		t.Errorf("a form of %d bytes is left after the end", n)
	}
}

// TestSharesAreBounded: one name has a limit of grants, and beyond it says so.
func TestSharesAreBounded(t *testing.T) {
	l := newLessor(gatehouse.TokenBucket)
	rule := gatehouse.Rule{Size: 100, Interval: time.Hour}
	cmd := gatehouse.Command{Rule: rule, Cost: 1, Expires: time.Minute}
	for i, want := range []gatehouse.Outcome{gatehouse.Granted, gatehouse.Granted, gatehouse.Exhausted} {
		turn, _ := l.turn(i, gatehouse.OpAcquire, cmd)
		turn.MaxHolders = 2
		if d := l.serve(i, turn); d.Outcome != want {
			t.Errorf("grant %d = %s, want %s", i, d.Outcome, want)
		}
	}
	// A grant that tops up again and again keeps the newest of what it took.
	for range 3 * maxTakes {
		turn, _ := l.turn(0, gatehouse.OpTopUp, cmd)
		l.now = l.now.Add(time.Millisecond)
		l.serve(0, turn)
	}
	share := limiterOf(l.state).extra.findShare(l.granted[0].Fence)
	if share == nil || len(share.takes) != maxTakes {
		t.Errorf("%+v, want a share with %d takes", share, maxTakes)
	}
	if read := decoded(t, l.kind, l.state); !bytes.Equal(Encode(nil, read), Encode(nil, l.state)) {
		t.Error("it is read otherwise than it was")
	}
}
