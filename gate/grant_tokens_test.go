package gate_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// tokenKinds are the limiters that give all they have at once. Pace has nothing to give but one after the
// other.
var tokenKinds = []gatehouse.Kind{
	gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.FixedWindow, gatehouse.SlidingWindow,
	gatehouse.SlidingLog,
}

// tokensOf wants tokens of a limiter of so many in an hour: what a test does takes seconds, in which none
// comes back.
func tokensOf(kind gatehouse.Kind, size, cost int64) gatehouse.Member {
	return gatehouse.Member{Key: gatehouse.Key{Kind: kind, Name: "tokens"}, Cost: cost, Rule: gatehouse.Rule{
		Size: size, Burst: size - 1, Interval: time.Hour,
	}}
}

// Of five calls at once that each reserve 663 tokens those pass that fit, and no others.
func TestFiveCallsOf663Tokens(t *testing.T) {
	for _, c := range []struct {
		size, passed, left int64
		clip               bool
	}{{1000, 1, 337, false}, {100, 0, 100, false}, {100, 1, 0, true}, {2000, 3, 11, false}} {
		for _, kind := range tokenKinds {
			t.Run(fmt.Sprintf("%s of %d, clip %t", kind, c.size, c.clip), func(t *testing.T) {
				servers := twoServers()
				var passed atomic.Int64
				var calls sync.WaitGroup
				for i := range 5 {
					m := tokensOf(kind, c.size, 663)
					m.Clip = c.clip
					calls.Go(func() {
						if reserves(t, servers[i%2], fmt.Sprint(i), m) {
							passed.Add(1)
						}
					})
				}
				calls.Wait()
				if n := passed.Load(); n != c.passed {
					t.Errorf("%d passed, want %d", n, c.passed)
				}
				wantTokens(t, servers[0], tokensOf(kind, c.size, 0), left{c.left, 0})
			})
		}
	}
}

// reserves reports whether tokens are granted.
func reserves(t *testing.T, g *gate.Gate, id string, m gatehouse.Member) bool {
	t.Helper()
	d, err := g.DoGrant(t.Context(), gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: id, Expires: time.Minute, Want: []gatehouse.Member{m},
	})
	fits := m.Clip || m.Size >= m.Cost
	if (err == nil) != fits || err != nil && gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
		t.Errorf("%v, want an error exactly if it can never fit", err)
	}
	granted := d.Outcome == gatehouse.Granted
	if want := min(m.Cost, m.Size); granted && d.Want[0].Cost != want {
		t.Errorf("took %d, want %d", d.Want[0].Cost, want)
	}
	return granted
}

// twoServers are two gates over one store.
func twoServers() [2]*gate.Gate {
	store := memory.New(memory.Config{})
	return [2]*gate.Gate{
		gate.New(store, gate.Config{}), gate.New(store, gate.Config{FirstTicket: control.Ticket(1) << 40}),
	}
}

// A left is how many tokens of a limiter can be taken, and how many are owed.
type left struct{ free, owed int64 }

// wantTokens sees that exactly so many tokens can be taken, and are owed.
func wantTokens(t *testing.T, g *gate.Gate, m gatehouse.Member, want left) {
	t.Helper()
	cmd := gatehouse.Command{Op: gatehouse.OpStats}
	d, err := g.Do(t.Context(), m.Key, cmd)
	if err != nil {
		t.Fatal(err)
	}
	found := int64(0)
	for _, stat := range d.Stats {
		if stat.Name == "debt" {
			found, _ = stat.Value.(int64)
		}
	}
	if found != want.owed {
		t.Errorf("%s: %d are owed, want %d", m.Key, found, want.owed)
	}
	for _, n := range []int64{want.free, 1} {
		if n == 0 {
			continue
		}
		cmd = gatehouse.Command{Op: gatehouse.OpAcquire, Rule: m.Rule, Cost: n}
		d, err = g.Do(t.Context(), m.Key, cmd)
		want.free -= n
		if err != nil || (d.Outcome == gatehouse.Granted) != (want.free >= 0) {
			t.Errorf("%s: %d more are %s, %v, want %d left by them", m.Key, n, d.Outcome, err, want.free)
		}
	}
}

// A spending is a call that reserves tokens before it begins, and says later what it has cost. Each step
// comes to the other of two servers.
type spending struct {
	t       *testing.T
	servers [2]*gate.Gate
	member  gatehouse.Member
	calls   int
}

func (s *spending) do(cmd gatehouse.GrantCommand, want gatehouse.Outcome) gatehouse.GrantDecision {
	s.t.Helper()
	s.calls++
	cmd.ID = "call"
	d, err := s.servers[s.calls%2].DoGrant(s.t.Context(), cmd)
	if err != nil || d.Outcome != want {
		s.t.Fatalf("%s = %s %q, %v, want %s", cmd.Op, d.Outcome, d.Message, err, want)
	}
	return d
}

// acquire reserves what the caller believes.
func (s *spending) acquire(n int64, overrun gatehouse.Overrun, expiry gatehouse.OnExpiry) {
	s.t.Helper()
	m := s.member
	m.Cost = n
	s.do(gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, Expires: time.Second, Want: []gatehouse.Member{m}, Overrun: overrun,
		OnExpiry: expiry,
	}, gatehouse.Granted)
}

// tell says what it has cost so far.
func (s *spending) tell(op gatehouse.Op, n int64, want gatehouse.Outcome) gatehouse.GrantDecision {
	s.t.Helper()
	return s.do(gatehouse.GrantCommand{
		Op: op, Costs: []gatehouse.MemberCost{{Key: s.member.Key, Cost: n}},
	}, want)
}

// spendings are what becomes of an estimate, of 1,000 tokens that there are: left is how many of these can be
// taken in the end, and owed what those that come back later repay.
var spendings = []struct {
	name       string
	left, owed int64
	spend      func(s *spending)
	late       func(s *spending) // once the grant has ended by itself; nil if it does not
}{
	{"twice too much", 700, 0, func(s *spending) {
		s.acquire(600, 0, 0)
		s.tell(gatehouse.OpRelease, 300, gatehouse.Granted)
	}, nil},
	{"twice too little", 400, 0, func(s *spending) {
		s.acquire(300, 0, 0)
		s.tell(gatehouse.OpRelease, 600, gatehouse.Granted)
	}, nil},
	{"twice too little, beyond the limit", 0, 200, func(s *spending) {
		s.acquire(600, 0, 0)
		if d := s.tell(gatehouse.OpSettle, 1200, gatehouse.Granted); d.Want[0].Booked != 200 {
			s.t.Errorf("%d are booked, want 200", d.Want[0].Booked)
		}
	}, nil},
	{"twice too little, capped", 0, 0, func(s *spending) {
		s.acquire(600, gatehouse.OverrunCap, 0)
		if d := s.tell(gatehouse.OpSettle, 1200, gatehouse.Granted); d.Want[0].Capped != 200 {
			s.t.Errorf("%d are capped, want 200", d.Want[0].Capped)
		}
	}, nil},
	{"killed: the estimate counts", 400, 0, func(s *spending) {
		s.acquire(600, 0, gatehouse.ExpiryEstimate)
	}, func(*spending) {}},
	{"killed: nothing counts", 1000, 0, func(s *spending) {
		s.acquire(600, 0, gatehouse.ExpiryZero)
	}, func(*spending) {}},
	{"killed after a settle: that counts", 900, 0, func(s *spending) {
		s.acquire(600, 0, gatehouse.ExpiryLast)
		s.tell(gatehouse.OpSettle, 100, gatehouse.Granted)
	}, func(*spending) {}},
	{"killed after a settle: the estimate counts", 400, 0, func(s *spending) {
		s.acquire(600, 0, gatehouse.ExpiryEstimate)
		s.tell(gatehouse.OpSettle, 100, gatehouse.Granted)
	}, func(*spending) {}},
	{"settled twice", 500, 0, func(s *spending) {
		s.acquire(600, 0, 0)
		for _, n := range []int64{300, 300, 1200, 500, 500} {
			s.tell(gatehouse.OpSettle, n, gatehouse.Granted)
		}
		s.tell(gatehouse.OpRelease, 500, gatehouse.Granted)
		s.tell(gatehouse.OpSettle, 0, gatehouse.Conflict)
		s.tell(gatehouse.OpRelease, 0, gatehouse.Conflict)
	}, nil},
	{"settled late", 400, 0, func(s *spending) {
		s.acquire(600, 0, 0)
	}, func(s *spending) {
		s.tell(gatehouse.OpSettle, 300, gatehouse.Conflict)
		s.tell(gatehouse.OpRelease, 0, gatehouse.Conflict)
	}},
	{"settled late, and charged", 0, 200, func(s *spending) {
		s.acquire(600, 0, 0)
	}, func(s *spending) {
		s.tell(gatehouse.OpSettle, 1200, gatehouse.Conflict)
		charge := gatehouse.Command{Op: gatehouse.OpCharge, Rule: s.member.Rule, Cost: 600}
		d, err := s.servers[0].Do(s.t.Context(), s.member.Key, charge)
		if err != nil || d.Outcome != gatehouse.Granted {
			s.t.Errorf("charge: %s, %v", d.Outcome, err)
		}
	}},
}

// What is said later of what a call has cost, or never, makes exactly that count which was spent or, as far
// as nobody knows, what was asked for.
func TestEstimatesThatAreWrong(t *testing.T) {
	for _, c := range spendings {
		for _, kind := range tokenKinds {
			t.Run(fmt.Sprintf("%s, %s", kind, c.name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := &spending{t: t, servers: twoServers(), member: tokensOf(kind, 1000, 0)}
					c.spend(s)
					if c.late != nil {
						time.Sleep(time.Second + time.Millisecond)
						c.late(s)
					}
					wantTokens(t, s.servers[0], s.member, left{c.left, c.owed})
				})
			})
		}
	}
}

// TestGrantBehindARequest: a grant that may not overtake a request is told when there is room for both.
func TestGrantBehindARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "x"}
		one := gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 10, Interval: time.Hour}, Cost: 7,
		}
		must(t, g, key, one)
		one.Cost, one.MaxWait = 5, gatehouse.Forever
		l := newLog()
		submit(g, key, one, l.done("waits"))
		cmd := wants("grant", "b")
		cmd.MaxWait = 0
		more := gatehouse.Member{Key: key, Cost: 1, Rule: gatehouse.Rule{Size: gatehouse.InForce}}
		cmd.Want = append(cmd.Want, more)
		d, err := g.DoGrant(t.Context(), cmd)
		if err != nil || d.Outcome != gatehouse.Refused || d.RetryAfter != time.Hour {
			t.Errorf("grant behind 5 of 3 = %s, retry %s, %v, want refused, retry %s",
				d.Outcome, d.RetryAfter, err, time.Hour)
		}
		g.Close()
	})
}

// TestTopupOfAGrantThatEnds: a topup that waits is answered when its grant ends, and holds up no other from
// then on. A renewal moves that.
func TestTopupOfAGrantThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "x"}
		rule := gatehouse.Rule{Size: 10, Interval: 24 * time.Hour}
		mustGrant(t, g, gatehouse.GrantCommand{
			Op: gatehouse.OpAcquire, ID: "a", Expires: 2 * time.Second,
			Want: []gatehouse.Member{{Key: key, Rule: rule, Cost: 8}},
		})
		l := newLog()
		submitGrant(g, gatehouse.GrantCommand{
			Op: gatehouse.OpTopUp, ID: "a", MaxWait: gatehouse.Forever,
			Costs: []gatehouse.MemberCost{{Key: key, Cost: 5}},
		}, l.done("topup"))
		one := gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1,
			MaxWait: gatehouse.Forever,
		}
		submit(g, key, one, l.done("behind"))
		time.Sleep(time.Second)
		mustGrant(t, g, gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: "a", Expires: 3 * time.Second})
		time.Sleep(2900 * time.Millisecond)
		synctest.Wait()
		l.wantOrder(t)
		time.Sleep(200 * time.Millisecond)
		synctest.Wait()
		l.wantOrder(t, "topup", "behind")
		if got := l.get("topup"); got.outcome != gatehouse.Conflict {
			t.Errorf("topup of a grant that has ended = %s, want a conflict", got.outcome)
		}
		g.Close()
	})
}
