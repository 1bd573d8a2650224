package decisions_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/glob"
	"github.com/prometheus/client_golang/prometheus"
)

// told is a decision about a name that a recorder is told of.
func told(r *decisions.Recorder, key gatehouse.Key, cmd gatehouse.Command, d gatehouse.Decision) {
	if d.At.IsZero() {
		d.At = time.Now()
	}
	r.ObserveRequests([]*gate.Request{{Key: key, Command: cmd, Decision: &d}}, refusals(&d), 0)
}

func refusals(d *gatehouse.Decision) int {
	if d.Outcome == gatehouse.Refused {
		return 1
	}
	return 0
}

// series are the values of a metric, by the values of its labels in the order of their names.
func series(t *testing.T, r *decisions.Recorder, name string) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(r)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := ""
			for _, l := range m.GetLabel() {
				labels += l.GetValue() + " "
			}
			all[labels] = m.GetCounter().GetValue()
		}
	}
	return all
}

// Less than a tenth of a limit of 10 or more is near, whatever has taken it; reading is no use.
func TestNearLimit(t *testing.T) {
	for _, c := range []struct {
		op               gatehouse.Op
		outcome          gatehouse.Outcome
		limit, remaining int64
		near             bool
	}{
		{gatehouse.OpAcquire, gatehouse.Granted, 10, 0, true},
		{gatehouse.OpAcquire, gatehouse.Granted, 10, 1, false},
		{gatehouse.OpAcquire, gatehouse.Granted, 9, 0, false},
		{gatehouse.OpAcquire, gatehouse.Granted, 11, 1, true},
		{gatehouse.OpAcquire, gatehouse.Granted, 19, 1, true},
		{gatehouse.OpAcquire, gatehouse.Granted, 20, 2, false},
		{gatehouse.OpReserve, gatehouse.Granted, gatehouse.MaxSize, gatehouse.MaxSize/10 - 1, true},
		{gatehouse.OpAcquire, gatehouse.Granted, gatehouse.MaxSize, gatehouse.MaxSize / 2, false},
		{gatehouse.OpAcquire, gatehouse.Refused, 10, 0, false},
		{gatehouse.OpPeek, gatehouse.Granted, 10, 0, false},
		{gatehouse.OpRefund, gatehouse.Granted, 10, 0, false},
	} {
		r := newRecorder(0)
		told(r, gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}, gatehouse.Command{Op: c.op},
			gatehouse.Decision{Outcome: c.outcome, Limit: c.limit, Remaining: c.remaining})
		want := 0
		if c.near {
			want = 1
		}
		if got := len(series(t, r, "gatehouse_near_limit_total")); got != want {
			t.Errorf("%+v: %d series, want %d", c, got, want)
		}
	}
}

// By rule and by user grants and refusals are counted. A thousand users have series of their own, and all
// others one together, whatever their names are.
func TestCountsByRuleAndUser(t *testing.T) {
	r := decisions.New(decisions.Config{
		Rules: []string{"gcra/api-*"}, Now: time.Now,
		RuleOf: func(key gatehouse.Key) int {
			if strings.HasPrefix(key.Name, "api-") {
				return 0
			}
			return -1
		},
	})
	for i := range 1200 {
		user := fmt.Sprintf("user-%d\"\n{}", i)
		cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Origin: &gatehouse.Origin{User: user}}
		told(r, gatehouse.Key{Kind: gatehouse.GCRA, Name: []string{"api-1", "web"}[i%2]}, cmd,
			gatehouse.Decision{Outcome: gatehouse.Outcome(i % 2)})
	}
	got := series(t, r, "gatehouse_rule_decisions_total")
	if len(got) != 2 || got["granted (none) "] != 600 || got["refused gcra/api-* "] != 600 {
		t.Errorf("by rule there are %v, want 600 granted without a rule and 600 refused by one", got)
	}
	for range 3 {
		r.CountVanished(gatehouse.Key{Kind: gatehouse.Lock, Name: "api-1"})
	}
	if got := series(t, r, "gatehouse_vanished_total"); len(got) != 1 || got["lock "] != 3 {
		t.Errorf("the vanished records are %v, want 3 of locks", got)
	}
	if got := series(t, r, "gatehouse_rule_vanished_total"); len(got) != 1 || got["gcra/api-* "] != 3 {
		t.Errorf("the vanished records are %v, want 3 of the rule", got)
	}
	got = series(t, r, "gatehouse_user_decisions_total")
	// Of the first thousand users each was granted or refused something, and of the others both.
	if len(got) != 1002 || got["granted (others) "] != 100 || got["refused (others) "] != 100 {
		t.Errorf("%d series of users, of which the others have %v and %v, want 1002, 100 and 100",
			len(got), got["granted (others) "], got["refused (others) "])
	}
}

// Requests that were decided together are told together: each refusal has a number and an explanation of its
// own, beyond the end of a block and of the whole log, and each user its counts.
func TestTogether(t *testing.T) {
	const kept, together = 64, 40
	r := newRecorder(kept)
	for range 5 {
		var all []*gate.Request
		refused := 0
		for i := range together {
			q := &gate.Request{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}}
			q.Command = gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: int64(i),
				Origin: &gatehouse.Origin{User: []string{"x", "y"}[i/10%2]},
			}
			q.Decision = &gatehouse.Decision{At: time.Now()}
			switch i % 4 {
			case 3:
				q.Decision.Outcome = gatehouse.Granted
			case 2:
				q.Err = gatehouse.Errorf(gatehouse.CodeTimeout, "late")
			default:
				refused++
			}
			all = append(all, q)
		}
		r.ObserveRequests(all, refused, 7)
		for i, q := range all {
			e, ok := r.Find(q.Decision.Number)
			if want := i%4 < 2; ok != want || ok && (e.Command.Cost != int64(i) || e.Waiting != 7) {
				t.Errorf("request %d of %d explains %+v, %t, want its own %t", i, together, e.Command, ok,
					want)
			}
		}
	}
	want := map[string]float64{
		"granted x ": 5 * 4, "granted y ": 5 * 6, "refused x ": 5 * 12, "refused y ": 5 * 8,
	}
	if got := series(t, r, "gatehouse_user_decisions_total"); !maps.Equal(got, want) {
		t.Errorf("by user there are %v, want %v", got, want)
	}
	name, users := r.TopNames(decisions.Refused, 0, 1), r.TopUsers(decisions.Granted, 2)
	if len(name) != 1 || rounded(name[0].Count) != 100 || len(users) != 2 || rounded(users[0].Count) != 30 {
		t.Errorf("the busiest are %v and %v, want one name refused 100 times, a user granted 30",
			name, users)
	}
}

func rounded(count float64) int { return int(count + 0.5) }

// What is refused to a user is counted by kind, rule and user, with the rights apart from the quotas. What is
// about no name has no rule.
func TestCountsRefusedUsers(t *testing.T) {
	r := decisions.New(decisions.Config{
		Rules: []string{"lock/*"}, Now: time.Now, RuleOf: func(gatehouse.Key) int { return 0 },
	})
	for i := range 1200 {
		r.CountRefusedUser(fmt.Sprintf("user-%d", i), gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}, i == 0)
	}
	r.CountRefusedUser("user-0", gatehouse.Key{}, true)
	r.CountRefusedUser("user-0", gatehouse.Key{Kind: gatehouse.Lock}, false)
	r.CountRefusedUser("user-0", gatehouse.Key{Kind: glob.Server, Name: "metrics"}, false)
	r.CountRefusedUser("user-0", gatehouse.Key{Kind: glob.Capacity, Name: "a"}, false)
	for metric, want := range map[string]map[string]float64{
		"gatehouse_rights_refused_total": {
			"lock forbidden ": 1200, "lock quota ": 1, "none quota ": 1, "server forbidden ": 1,
			"capacity forbidden ": 1,
		},
		"gatehouse_rule_rights_refused_total": {"forbidden lock/* ": 1199, "quota lock/* ": 1},
	} {
		if got := series(t, r, metric); !maps.Equal(got, want) {
			t.Errorf("%s = %v, want %v", metric, got, want)
		}
	}
	got := series(t, r, "gatehouse_user_rights_refused_total")
	if len(got) != 1002 || got["forbidden (others) "] != 200 || got["quota user-0 "] != 2 {
		t.Errorf("%d series of users, want 1002, and 200 of the others: %v, %v", len(got),
			got["forbidden (others) "], got["quota user-0 "])
	}
}

// The busiest names and users are those of the measure and the kind that are asked for. Reading is no use.
func TestTop(t *testing.T) {
	r := newRecorder(0)
	use := func(n int, key gatehouse.Key, cmd gatehouse.Command, outcome gatehouse.Outcome) {
		for range n {
			told(r, key, cmd, gatehouse.Decision{Outcome: outcome})
		}
	}
	bob := gatehouse.Command{Op: gatehouse.OpAcquire, Owner: &gatehouse.Owner{Name: "bob"}}
	ci := gatehouse.Command{
		Op: gatehouse.OpAcquire, Owner: bob.Owner, Origin: &gatehouse.Origin{User: "ci"},
	}
	use(3, gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}, bob, gatehouse.Granted)
	use(2, gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}, ci, gatehouse.Granted)
	use(9, gatehouse.Key{Kind: gatehouse.Lock, Name: "a"}, ci, gatehouse.Granted)
	use(4, gatehouse.Key{Kind: gatehouse.Lock, Name: "b"}, ci, gatehouse.Refused)
	reads := gatehouse.Command{Op: gatehouse.OpStats}
	use(50, gatehouse.Key{Kind: gatehouse.Lock, Name: "c"}, reads, gatehouse.Granted)
	names := func(top []decisions.Name) string {
		text := ""
		for _, n := range top {
			text += fmt.Sprintf("%s %.0f ", n.Key, n.Count)
		}
		return text
	}
	if got, want := names(r.TopNames(decisions.Granted, 0, 10)), "lock/a 9 gcra/a 5 "; got != want {
		t.Errorf("the most granted are %q, want %q", got, want)
	}
	if got, want := names(r.TopNames(decisions.Granted, gatehouse.GCRA, 10)), "gcra/a 5 "; got != want {
		t.Errorf("the most granted of gcra are %q, want %q", got, want)
	}
	if got, want := names(r.TopNames(decisions.Refused, 0, 10)), "lock/b 4 "; got != want {
		t.Errorf("the most refused are %q, want %q", got, want)
	}
	if got := names(r.TopNames(decisions.Granted, 0, 1)); got != "lock/a 9 " {
		t.Errorf("the one most granted is %q", got)
	}
	if got := r.TopUsers(decisions.Granted, 10); len(got) != 2 || got[0].Key != "ci" || got[1].Key != "bob" {
		t.Errorf("the users that were granted most are %v, want ci and bob", got)
	}
	got := r.TopUsersAt(decisions.Granted, gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"})
	if len(got) != 2 || got[0].Key != "bob" {
		t.Errorf("the users of gcra/a are %v, want bob before ci", got)
	}
}

// What is refused costs no memory: there is room for it from the beginning.
func TestNoAllocation(t *testing.T) {
	r := newRecorder(100)
	request := &gate.Request{Key: gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}}
	request.Command = gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1}}
	all := []*gate.Request{request}
	for _, outcome := range []gatehouse.Outcome{gatehouse.Refused, gatehouse.Granted} {
		request.Decision = &gatehouse.Decision{Outcome: outcome, At: time.Now(), Limit: 10}
		refused := refusals(request.Decision)
		if n := testing.AllocsPerRun(1000, func() { r.ObserveRequests(all, refused, 0) }); n != 0 {
			t.Errorf("%s: %g allocations, want none", outcome, n)
		}
	}
}
