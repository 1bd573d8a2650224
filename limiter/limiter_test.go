package limiter_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/limiter"
)

// newLimiter is New for a rate that makes sense.
func newLimiter(t *testing.T, size int64, interval time.Duration, burst int64) *limiter.Limiter {
	t.Helper()
	l, err := limiter.New(limiter.Rate{Size: size, Interval: interval, Burst: burst})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A step asks for n at a time since the start.
type step struct {
	at   time.Duration
	n    int64
	want bool
}

const ms = time.Millisecond

// ladders are rates, and what they let through at which time.
var ladders = map[string]struct {
	rate  limiter.Rate
	steps []step
}{
	"a burst of 4 at 1 per second: 5 at once, then one a second": {
		limiter.Rate{Size: 1, Interval: time.Second, Burst: 4},
		[]step{
			{0, 1, true}, {0, 1, true}, {0, 1, true}, {0, 1, true}, {0, 1, true}, {0, 1, false},
			{999 * ms, 1, false}, {1000 * ms, 1, true}, {1000 * ms, 1, false},
			{2500 * ms, 1, true}, {2500 * ms, 1, false}, {3000 * ms, 1, true}, {3000 * ms, 1, false},
		},
	},
	"no burst: evenly": {
		limiter.Rate{Size: 2, Interval: time.Second},
		[]step{
			{0, 1, true}, {499 * ms, 1, false}, {500 * ms, 1, true}, {1200 * ms, 1, true},
			{1699 * ms, 1, false}, {1700 * ms, 1, true}, {1700 * ms, 2, false}, {9000 * ms, 2, false},
		},
	},
	"all of n or none": {
		limiter.Rate{Size: 10, Interval: time.Second, Burst: 9},
		[]step{
			{0, 6, true}, {0, 5, false}, {0, 4, true}, {0, 1, false},
			{300 * ms, 4, false}, {300 * ms, 3, true}, {1300 * ms, 11, false}, {1300 * ms, 10, true},
		},
	},
	"0 takes nothing, less is never allowed": {
		limiter.Rate{Size: 1, Interval: time.Second},
		[]step{
			{0, 0, true}, {0, -1, false}, {0, -1 << 63, false},
			{0, 1, true}, {0, 0, true}, {0, 1, false},
		},
	},
	"as much as there are numbers": {
		limiter.Rate{Size: 1, Interval: time.Second, Burst: 4},
		[]step{{0, 1<<63 - 1, false}, {0, 5, true}, {0, 1<<63 - 1, false}},
	},
	"size 0 stops": {
		limiter.Rate{Size: 0, Interval: time.Second, Burst: 4},
		[]step{{0, 1, false}, {0, 0, false}, {time.Hour, 1, false}},
	},
	"the past finds taken what was taken later": {
		limiter.Rate{Size: 1, Interval: time.Second, Burst: 1},
		[]step{{10 * time.Second, 1, true}, {9 * time.Second, 1, false}, {10 * time.Second, 1, true}},
	},
	"a step is cut to whole ns": {
		limiter.Rate{Size: 3, Interval: time.Second},
		[]step{{0, 1, true}, {333_333_332, 1, false}, {333_333_333, 1, true}},
	},
	"further than the horizon is at the horizon": {
		limiter.Rate{Size: 1, Interval: gatehouse.MaxDuration},
		[]step{{-1 << 63, 1, true}, {0, 1, false}, {1<<63 - 1, 1, false}},
	},
}

func TestAllowAt(t *testing.T) {
	for name, c := range ladders {
		t.Run(name, func(t *testing.T) {
			l, err := limiter.New(c.rate)
			if err != nil {
				t.Fatal(err)
			}
			k, err := limiter.NewKeyed(c.rate, 0)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			for i, s := range c.steps {
				if got := l.AllowAt(start.Add(s.at), s.n); got != s.want {
					t.Errorf("step %d: AllowAt(%s, %d) = %t, want %t", i, s.at, s.n, got, s.want)
				}
				if got := k.AllowAt("key", start.Add(s.at), s.n); got != s.want {
					t.Errorf("step %d: Keyed.AllowAt(%s, %d) = %t, want %t", i, s.at, s.n, got, s.want)
				}
			}
		})
	}
}

func TestRate(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for _, c := range []struct {
		rate limiter.Rate
		want string // part of the error; "" for none
	}{
		{limiter.Rate{Size: 1, Interval: 1}, ""},
		{limiter.Rate{Size: 0, Interval: time.Second, Burst: 7}, ""},
		{limiter.Rate{Size: 1, Interval: 100 * year}, ""},
		{limiter.Rate{Size: 1, Interval: year, Burst: 99}, ""},
		{limiter.Rate{Size: 1_000_000_000, Interval: time.Second}, ""},
		{limiter.Rate{Size: gatehouse.MaxSize, Interval: 100 * year, Burst: 1_000_000_000_000}, ""},
		{limiter.Rate{Size: 1, Interval: 1, Burst: gatehouse.MaxSize - 1}, ""},
		{limiter.Rate{}, "Interval is 0s"},
		{limiter.Rate{Size: 1, Interval: -1}, "Interval is -1ns"},
		{limiter.Rate{Size: 1, Interval: 100*year + 1}, "Interval is 876000h0m0.000000001s"},
		{limiter.Rate{Size: -1, Interval: time.Second}, "Size is -1"},
		{limiter.Rate{Size: gatehouse.MaxSize + 1, Interval: 100 * year}, "Size is 1000000000000000"},
		{limiter.Rate{Size: 1_000_000_001, Interval: time.Second}, "at most one per nanosecond"},
		{limiter.Rate{Size: 1, Interval: 1, Burst: -1}, "Burst is -1"},
		{limiter.Rate{Size: 1, Interval: 1, Burst: gatehouse.MaxSize}, "Burst is 999999999999999"},
		{limiter.Rate{Size: 1, Interval: year, Burst: 100}, "comes back within 100 years"},
	} {
		l, err := limiter.New(c.rate)
		_, errKeyed := limiter.NewKeyed(c.rate, 0)
		errSet := newLimiter(t, 1, time.Second, 0).SetRate(c.rate)
		if fmt.Sprint(err) != fmt.Sprint(errKeyed) || fmt.Sprint(err) != fmt.Sprint(errSet) {
			t.Errorf("%+v: New %v, NewKeyed %v, SetRate %v, want one error", c.rate, err, errKeyed, errSet)
		}
		if c.want == "" {
			if err != nil || l.Rate() != c.rate {
				t.Errorf("New(%+v) = %v, want it to be fine", c.rate, err)
			}
			continue
		}
		invalid := err != nil && gatehouse.CodeOf(err) == gatehouse.CodeInvalid
		if !invalid || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v) = %v, want invalid: %s", c.rate, err, c.want)
		}
	}
	if _, err := limiter.NewKeyed(limiter.Rate{Size: 1, Interval: 1}, -1); err == nil {
		t.Error("NewKeyed for -1 keys = nil, want an error")
	}
}

// TestDecide has the figures of redis-cell's README: 30 per 60 s and 15 beyond the first.
func TestDecide(t *testing.T) {
	const s = time.Second
	type decision = limiter.Decision
	l, start := newLimiter(t, 30, 60*s, 15), time.Now()
	k, err := limiter.NewKeyed(l.Rate(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range []struct {
		at   time.Duration
		n    int64
		take bool
		want decision
	}{
		{0, 1, false, decision{true, 16, 16, 0, 0}},
		{0, 1, true, decision{true, 16, 15, 0, 2 * s}},
		{0, 15, true, decision{true, 16, 0, 0, 32 * s}},
		{0, 1, true, decision{false, 16, 0, 2 * s, 32 * s}},
		{0, 0, false, decision{true, 16, 0, 0, 32 * s}},
		{0, 0, true, decision{true, 16, 0, 0, 32 * s}},
		{0, 16, false, decision{false, 16, 0, 32 * s, 32 * s}},
		{0, 17, true, decision{false, 16, 0, gatehouse.Forever, 32 * s}},
		{0, -1, true, decision{false, 16, 0, gatehouse.Forever, 32 * s}},
		{3 * s, 2, true, decision{false, 16, 1, s, 29 * s}},
		{4 * s, 2, true, decision{true, 16, 0, 0, 32 * s}},
		{40 * s, 16, false, decision{true, 16, 16, 0, 0}},
	} {
		now, what := start.Add(c.at), "PeekAt"
		ask, askKeyed := l.PeekAt, k.PeekAt
		if c.take {
			what, ask, askKeyed = "DecideAt", l.DecideAt, k.DecideAt
		}
		if got := ask(now, c.n); got != c.want {
			t.Errorf("step %d: %s(%s, %d) = %+v, want %+v", i, what, c.at, c.n, got, c.want)
		}
		if got := askKeyed("key", now, c.n); got != c.want {
			t.Errorf("step %d: Keyed.%s(%s, %d) = %+v, want %+v", i, what, c.at, c.n, got, c.want)
		}
	}
}

func TestStopped(t *testing.T) {
	l := newLimiter(t, 0, time.Second, 3)
	if got, want := l.Decide(1), (limiter.Decision{RetryAfter: gatehouse.Forever}); got != want {
		t.Errorf("Decide(1) with size 0 = %+v, want %+v", got, want)
	}
	for _, n := range []int64{0, 1} {
		if got := l.Delay(n); got != gatehouse.Forever {
			t.Errorf("Delay(%d) with size 0 = %s, want Forever", n, got)
		}
	}
	if _, ok := l.Reserve(1); ok {
		t.Error("Reserve(1) with size 0 = true, want false")
	}
	if err := l.Wait(t.Context(), 1); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
		t.Errorf("Wait(1) with size 0 = %v, want invalid", err)
	}
	for _, size := range []int64{1, 0, 1} {
		l.Refund(1)
		if err := l.SetRate(limiter.Rate{Size: size, Interval: time.Hour}); err != nil {
			t.Fatal(err)
		}
		if got := l.Allow(); got != (size > 0) {
			t.Errorf("Allow with a size of %d = %t, want %t", size, got, size > 0)
		}
		l.Reset()
	}
}

func TestSetRateKeepsTheTimeTaken(t *testing.T) {
	l, now := newLimiter(t, 10, time.Second, 9), time.Now()
	if !l.AllowAt(now, 5) {
		t.Fatal("AllowAt(5 of 10) = false, want true")
	}
	if err := l.SetRate(limiter.Rate{Size: 1, Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	want := limiter.Decision{Limit: 1, RetryAfter: 500 * time.Millisecond, ResetAfter: 500 * time.Millisecond}
	if got := l.PeekAt(now, 1); got != want {
		t.Errorf("PeekAt(1) at 1 per second = %+v, want %+v", got, want)
	}
	bad := limiter.Rate{Size: -1, Interval: time.Second}
	if err := l.SetRate(bad); err == nil || l.Rate().Size != 1 {
		t.Errorf("SetRate(%+v) = %v, rate %+v, want an error and the rate as before", bad, err, l.Rate())
	}
}

func TestRefund(t *testing.T) {
	l, now := newLimiter(t, 1, time.Second, 9), time.Now()
	left := func() int64 { return l.PeekAt(now, 0).Remaining }
	l.RefundAt(now, 5)
	if got := left(); got != 10 {
		t.Errorf("Remaining after a refund of what was not taken = %d, want 10", got)
	}
	l.AllowAt(now, 8)
	for _, c := range []struct{ n, want int64 }{{0, 2}, {-3, 2}, {3, 5}, {1<<63 - 1, 10}} {
		l.RefundAt(now, c.n)
		if got := left(); got != c.want {
			t.Errorf("Remaining after a refund of %d = %d, want %d", c.n, got, c.want)
		}
	}
}

// TestStoppedWithSomethingTaken: what was taken can be given back at a size of 0 too.
func TestStoppedWithSomethingTaken(t *testing.T) {
	l, now := newLimiter(t, 1, time.Second, 4), time.Now()
	l.AllowAt(now, 3)
	if err := l.SetRate(limiter.Rate{Interval: time.Second}); err != nil {
		t.Fatal(err)
	}
	l.RefundAt(now, 1) // without a rate, nobody knows how much that is
	want := limiter.Decision{RetryAfter: gatehouse.Forever, ResetAfter: 3 * time.Second}
	if got := l.PeekAt(now, 1); got != want {
		t.Errorf("PeekAt(1) with size 0 = %+v, want %+v", got, want)
	}
}

// TestReset: a reservation from before gives nothing back, though another has its place now.
func TestReset(t *testing.T) {
	l, now := newLimiter(t, 1, time.Second, 0), time.Now()
	k, err := limiter.NewKeyed(l.Rate(), 0)
	if err != nil {
		t.Fatal(err)
	}
	reserve := func() (r, keyed *limiter.Reservation) {
		r, _ = l.ReserveAt(now, 1)
		keyed, _ = k.ReserveAt("key", now, 1)
		return r, keyed
	}
	reserve()
	before, beforeKeyed := reserve()
	l.Reset()
	k.Reset("key")
	if k.Len() != 0 {
		t.Errorf("Len after a Reset = %d, want 0", k.Len())
	}
	if !l.AllowAt(now, 1) || l.AllowAt(now, 1) || !k.AllowAt("key", now, 1) || k.AllowAt("key", now, 1) {
		t.Error("after a Reset, want one allowed and no more")
	}
	after, _ := reserve()
	if !after.Start().Equal(before.Start()) {
		t.Fatalf("Start after a Reset = %s, want that of the second before", after.Start().Sub(now))
	}
	before.CancelAt(now)
	beforeKeyed.CancelAt(now)
	if a, b := l.PeekAt(now, 1).RetryAfter, k.PeekAt("key", now, 1).RetryAfter; a != 2*time.Second || b != a {
		t.Errorf("RetryAfter after Cancel of one from before = %s, keyed %s, want 2s as without", a, b)
	}
}

func TestNoAllocations(t *testing.T) {
	l := newLimiter(t, 1, time.Minute, 1_000_000)
	k, err := limiter.NewKeyed(limiter.Rate{Size: 1, Interval: time.Microsecond, Burst: 1_000_000}, 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	for what, do := range map[string]func(){
		"Allow":        func() { l.Allow() },
		"AllowN":       func() { l.AllowN(2) },
		"Decide":       func() { l.Decide(1) },
		"Peek":         func() { l.Peek(1) },
		"Wait":         func() { _ = l.Wait(ctx, 1) },
		"Refund":       func() { l.Refund(1) },
		"Keyed.Allow":  func() { k.Allow("key") },
		"Keyed.Decide": func() { k.Decide("key", 1) },
		"Keyed.Wait":   func() { _ = k.Wait(ctx, "key", 1) },
	} {
		if n := testing.AllocsPerRun(1000, do); n != 0 {
			t.Errorf("%s makes %.0f allocations, want none", what, n)
		}
	}
}
