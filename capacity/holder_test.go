package capacity_test

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A holding is a Holder in a test, and the time of the test.
type holding struct {
	*testing.T
	*capacity.Holder
	now time.Time
}

// noon is when tests begin, in s since 1970.
const noon = 1_795_262_400

func hold(t *testing.T, c capacity.HolderConfig) *holding {
	t.Helper()
	return &holding{t, capacity.NewHolder(c), time.Unix(noon, 0)}
}

// at moves the time to so long after noon.
func (h *holding) at(after time.Duration) { h.now = time.Unix(noon, 0).Add(after) }

// grant is an answer about one resource: a lease of so long from the server's clock on, refresh 5 s.
func grant(clock time.Time, resource string, amount float64, length time.Duration) capacity.Grant {
	lease := capacity.Lease{Expiry: clock.Add(length), Refresh: 5 * time.Second, Capacity: amount}
	return capacity.Grant{Resource: resource, Lease: lease, Safe: 2}
}

// asks checks what is asked for, as "resource wants has".
func (h *holding) asks(want ...string) {
	h.Helper()
	var got []string
	for _, r := range h.Requests(h.now) {
		if len(r.Demands) != 1 || r.Demands[0].Clients != 1 || r.Server {
			h.Errorf("request = %+v, want one demand of one client", r)
		}
		got = append(got, fmt.Sprint(r.Resource, " ", r.Demands[0].Wants, " ", r.Has.Capacity))
	}
	if !slices.Equal(got, want) {
		h.Errorf("Requests at %s = %q, want %q", h.now.Format("04:05"), got, want)
	}
}

// ticks checks what changes, as "resource amount leased".
func (h *holding) ticks(want ...string) {
	h.Helper()
	var got []string
	for _, c := range h.Tick(h.now) {
		got = append(got, fmt.Sprint(c.Resource, " ", c.Amount, " ", c.Leased))
		if amount, leased := h.Capacity(h.now, c.Resource); amount != c.Amount || leased != c.Leased {
			h.Errorf("Capacity(%s) = %g, %t, want as in %+v", c.Resource, amount, leased, c)
		}
	}
	if !slices.Equal(got, want) {
		h.Errorf("Tick at %s = %q, want %q", h.now.Format("04:05"), got, want)
	}
}

// waits checks how long it is until Next.
func (h *holding) waits(want time.Duration) {
	h.Helper()
	if got := h.Next().Sub(h.now); got != want {
		h.Errorf("Next at %s = in %s, want in %s", h.now.Format("04:05"), got, want)
	}
}

// TestHolderAsksForAllAtOnce: one request for all resources, at the shortest interval a lease asks for.
func TestHolderAsksForAllAtOnce(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	if !h.Next().IsZero() || h.Requests(h.now) != nil {
		t.Errorf("Next of an empty holder = %s, want nothing to wait for", h.Next())
	}
	h.Want("a", 0, 3)
	h.Want("b", 7, 4)
	if h.Next().After(h.now) {
		t.Errorf("Next = %s, want now", h.Next())
	}
	h.asks("a 3 0", "b 4 0")
	h.asks()  // is on its way
	h.ticks() // nothing has changed
	h.at(time.Second)
	slow := grant(h.now, "b", 4, time.Minute)
	slow.Lease.Refresh = 15 * time.Second
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 2.5, time.Minute), slow})
	h.ticks("a 2.5 true", "b 4 true")
	h.waits(4 * time.Second) // 5 s after it was sent
	h.asks()
	h.at(5 * time.Second)
	h.asks("a 3 2.5", "b 4 4")
	h.Drop("b")
	if h.Drop("b") {
		t.Error("Drop of what is gone = true, want false")
	}
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 3, time.Minute), grant(h.now, "b", 4, time.Minute)})
	h.ticks("a 3 true")
	if amount, leased := h.Capacity(h.now, "b"); amount != 0 || leased {
		t.Errorf("Capacity of what was dropped = %g, %t, want nothing", amount, leased)
	}
}

// TestHolderKeepsALeaseUntilItEnds: failures change nothing before; then the safe capacity counts.
func TestHolderKeepsALeaseUntilItEnds(t *testing.T) {
	for _, c := range []struct {
		safe float64
		want string
	}{
		{2, "r 2 false"},
		{0, "r 0 false"},
		{-1, "r -1 false"},          // no limit
		{-10, "r 0 false"},          // makes no sense
		{math.NaN(), "r 7 false"},   // nothing said: the fallback
		{math.Inf(1), "r 7 false"},  // divided by no clients
		{math.Inf(-1), "r 7 false"}, // makes no sense either
		{1e300, fmt.Sprint("r ", 1e300, " false")},
	} {
		h := hold(t, capacity.HolderConfig{Fallback: 7})
		h.Want("r", 0, 50)
		h.asks("r 50 0")
		g := grant(h.now, "r", 40, 20*time.Second)
		g.Safe = c.safe
		h.Answered(h.now, []capacity.Grant{g})
		h.ticks("r 40 true")
		h.at(5 * time.Second)
		h.asks("r 50 40")
		h.Failed(h.now)
		h.ticks()
		h.waits(1300 * time.Millisecond)
		h.at(6300 * time.Millisecond)
		h.asks("r 50 40")
		h.waits(20*time.Second - 6300*time.Millisecond) // the lease ends while the request is on its way
		h.at(20*time.Second - 1)
		h.ticks()
		h.at(20 * time.Second)
		h.ticks(c.want)
		h.Failed(h.now)
		h.waits(1690 * time.Millisecond)
		h.at(25 * time.Second)
		h.asks("r 50 0") // no longer says that it has a lease
		h.Answered(h.now, []capacity.Grant{grant(h.now, "r", 30, 20*time.Second)})
		h.ticks("r 30 true")
	}
}

// TestHolderTakesNoGrantForNoLimit: amounts below 0, and what is no number, are nothing.
func TestHolderTakesNoGrantForNoLimit(t *testing.T) {
	for _, amount := range []float64{-1, -200, math.NaN(), math.Inf(1), math.Inf(-1), 0} {
		h := hold(t, capacity.HolderConfig{Fallback: -1})
		h.Want("r", 0, 50)
		h.asks("r 50 0")
		h.Answered(h.now, []capacity.Grant{grant(h.now, "r", amount, 20*time.Second)})
		h.ticks("r 0 true")
		h.at(5 * time.Second)
		h.asks("r 50 0")
	}
}

// TestHolderFallsBackBeforeTheFirstAnswer: without any answer the fallback is what may be used.
func TestHolderFallsBackBeforeTheFirstAnswer(t *testing.T) {
	for fallback, want := range map[float64]float64{0: 0, -1: -1, 12.5: 12.5, -3: 0} {
		h := hold(t, capacity.HolderConfig{Fallback: fallback})
		h.Want("r", 0, 1)
		if amount, leased := h.Capacity(h.now, "r"); amount != want || leased {
			t.Errorf("Capacity with fallback %g = %g, %t, want %g, no lease", fallback, amount, leased, want)
		}
		h.ticks()
	}
}

// TestHolderAsksEarly: for what is new, but no sooner than a second after the last request, and with all
// else.
func TestHolderAsksEarly(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	h.Want("a", 0, 3)
	h.asks("a 3 0")
	h.Want("a", 0, 4) // while the request is on its way
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 3, time.Minute)})
	h.ticks("a 3 true")
	h.waits(time.Second)
	h.at(time.Second)
	h.asks("a 4 3")
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 4, time.Minute)})
	h.ticks("a 4 true")
	h.Want("a", 0, 4) // as before
	h.waits(5 * time.Second)
	h.at(3 * time.Second)
	h.Want("b", 0, 1)
	h.asks("a 4 4", "b 1 0")
	h.Failed(h.now)
	h.Want("b", 0, 2) // the back-off holds
	h.waits(1300 * time.Millisecond)
}

// TestHolderTakesAnswersForWhatItAsked: what was dropped and wanted anew meanwhile was not asked for yet.
func TestHolderTakesAnswersForWhatItAsked(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	h.Want("a", 0, 3)
	if h.Drop("a") {
		t.Error("Drop of what nobody was asked for = true, want false")
	}
	h.Want("a", 0, 3)
	h.Want("b", 0, 1)
	h.asks("a 3 0", "b 1 0")
	if !h.Drop("a") {
		t.Error("Drop of what is on its way = false, want true")
	}
	h.Want("a", 0, 9)
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 3, time.Minute), grant(h.now, "b", 1, time.Minute)})
	h.ticks("b 1 true")
	h.waits(time.Second)
	h.at(time.Second)
	h.asks("b 1 1", "a 9 0")
	h.Answered(h.now, nil) // an answer about nothing is none
	h.waits(1300 * time.Millisecond)
}

// TestHolderTakesNoAnswerTwice: what comes after the request has failed, or twice, changes nothing.
func TestHolderTakesNoAnswerTwice(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	h.Want("a", 0, 3)
	h.asks("a 3 0")
	h.Failed(h.now)
	h.waits(1300 * time.Millisecond)
	late := []capacity.Grant{grant(h.now, "a", 3, time.Minute)}
	h.Answered(h.now, late)
	h.ticks()
	h.waits(1300 * time.Millisecond)
	h.now = h.Next()
	h.asks("a 3 0")
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 2, time.Minute)})
	h.ticks("a 2 true")
	h.at(4 * time.Second)
	h.Answered(h.now, late)
	h.ticks()
	h.waits(2300 * time.Millisecond)
}

// TestHolderBacksOff: longer after each failure, up to a minute, and from the start after an answer.
func TestHolderBacksOff(t *testing.T) {
	for random, share := range map[float64]float64{0: 1, 1: 0.5, 0.5: 0.75} {
		h := hold(t, capacity.HolderConfig{Random: func() float64 { return random }})
		h.Want("a", 0, 3)
		for _, ms := range []float64{1300, 1690, 2197, 2856.1} {
			h.asks("a 3 0")
			h.Failed(h.now)
			want := time.Duration(ms * share * float64(time.Millisecond))
			if got := h.Next().Sub(h.now); (got - want).Abs() > time.Microsecond {
				t.Errorf("pause = %s, want %s", got, want)
			}
			h.now = h.Next()
		}
		for range 200 {
			h.asks("a 3 0")
			h.Failed(h.now)
			if h.Next().Sub(h.now) > time.Minute {
				t.Fatalf("pause = %s, want at most a minute", h.Next().Sub(h.now))
			}
			h.now = h.Next()
		}
		h.asks("a 3 0")
		h.Failed(h.now)
		h.waits(time.Duration(share * float64(time.Minute)))
		h.now = h.Next()
		h.asks("a 3 0")
		h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 3, time.Minute)})
		h.ticks("a 3 true")
		h.now = h.Next()
		h.asks("a 3 3")
		h.Failed(h.now)
		h.waits(time.Duration(1.3 * share * float64(time.Second)))
	}
}

// TestHolderRefreshes: how long it is until the next request, by the lease, the floor and chance.
func TestHolderRefreshes(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		refresh, lease, floor time.Duration
		random                float64
		want                  time.Duration
	}{
		{5 * s, 60 * s, 0, 0, 5 * s},
		{5 * s, 60 * s, 0, 1, 5500 * time.Millisecond},
		{15 * s, 60 * s, 0, 0.5, 15750 * time.Millisecond},
		{1 * s, 60 * s, 0, 0, 5 * s}, // the floor
		{1 * s, 60 * s, 2 * s, 0, 2 * s},
		{5 * s, 5 * s, 0, 1, 4 * s},      // before the lease ends
		{1 * s, 2 * s, 0, 0, 1600 * 1e6}, // that too goes below the floor
		{1 * s, 1 * s, 0, 0, 1 * s},      // but never below a second
		{0, 60 * s, 0, 0, 5 * s},         // what no server should say
		{-5 * s, 60 * s, 0, 0, 5 * s},
		{math.MaxInt64, 60 * s, 0, 0, 48 * time.Minute},
	} {
		random := func() float64 { return c.random }
		h := hold(t, capacity.HolderConfig{MinRefresh: c.floor, Random: random})
		h.Want("a", 0, 3)
		h.asks("a 3 0")
		g := grant(h.now, "a", 3, c.lease)
		g.Lease.Refresh = c.refresh
		h.Answered(h.now, []capacity.Grant{g})
		h.ticks("a 3 true")
		t.Logf("case %+v", c)
		h.waits(c.want)
	}
}

// TestHolderJudgesLeasesByItsOwnClock: the server's clock is ahead by skew. When the holder knows the
// server's clock, the lease counts as long as the server says. When not, the lease is at least as long as
// the server's refresh interval and at most an hour, whatever the clocks say.
func TestHolderJudgesLeasesByItsOwnClock(t *testing.T) {
	const s = time.Second
	for _, c := range []struct {
		skew    time.Duration
		known   bool
		want    time.Duration // how long the lease of 20 s holds, from when the request was sent
		noticed time.Duration
	}{
		{0, true, 20 * s, 0},
		{2 * time.Hour, true, 20 * s, 0},
		{-2 * time.Hour, true, 20 * s, 0},
		{0, false, 20 * s, 0},
		{-3 * s, false, 17 * s, 0},
		{-19 * s, false, 5 * s, 4 * s},
		{-2 * time.Hour, false, 5 * s, 2*time.Hour - 15*s},
		{3 * s, false, 23 * s, 0},
		{2 * time.Hour, false, time.Hour, time.Hour + 20*s},
	} {
		h := hold(t, capacity.HolderConfig{MinRefresh: time.Hour})
		h.Want("r", 0, 3)
		h.asks("r 3 0")
		sent := h.now
		h.at(400 * time.Millisecond) // the answer takes a while, the lease does not wait for it
		clock := sent.Add(c.skew)
		g := []capacity.Grant{grant(clock, "r", 3, 20*s)}
		if c.known {
			h.AnsweredBy(h.now, clock, g)
		} else {
			h.Answered(h.now, g)
		}
		h.ticks("r 3 true")
		if got := h.Lease(h.now, "r").Expiry.Sub(sent); got != c.want {
			t.Errorf("lease with skew %s, known %t, holds for %s, want %s", c.skew, c.known, got, c.want)
		}
		if got := h.Skew(); got != c.noticed {
			t.Errorf("Skew with skew %s, known %t = %s, want %s", c.skew, c.known, got, c.noticed)
		}
		h.at(4 * s)
		h.Want("r", 0, 4)
		if has := h.Requests(h.now)[0].Has; !has.Expiry.Equal(clock.Add(20*s)) || has.Capacity != 3 {
			t.Errorf("Has = %+v, want the lease as the server gave it", has)
		}
		h.at(c.want)
		h.ticks("r 2 false")
		if lease := h.Lease(h.now, "r"); lease != (capacity.Lease{}) {
			t.Errorf("Lease after its end = %+v, want none", lease)
		}
	}
}

// TestHolderAsksMoreOftenWhileALeaseHolds: servers are away for as long as a lease of 40 s holds, and longer.
// A master that comes back meanwhile is asked by who still has a lease to speak of.
func TestHolderAsksMoreOftenWhileALeaseHolds(t *testing.T) {
	h := hold(t, capacity.HolderConfig{})
	h.Want("a", 0, 3)
	h.asks("a 3 0")
	h.Answered(h.now, []capacity.Grant{grant(h.now, "a", 3, 40*time.Second)})
	h.ticks("a 3 true")
	h.now = h.Next()
	end := time.Unix(noon, 0).Add(40 * time.Second)
	last := 0
	for i := 1; h.now.Before(end); i++ {
		h.asks("a 3 3")
		h.Failed(h.now)
		pause, left := h.Next().Sub(h.now), end.Sub(h.now)
		if pause > max(left/4, 1300*time.Millisecond) {
			t.Errorf("pause with %s left = %s, want a quarter", left, pause)
		}
		h.now, last = h.Next(), i
	}
	h.ticks("a 2 false")
	if last < 10 {
		t.Errorf("asked %d times while the lease held, want 10 or more", last)
	}
	if h.Requests(h.now) == nil {
		h.now = h.Next()
		h.asks("a 3 0")
	}
	h.Failed(h.now)
	if pause := h.Next().Sub(h.now); pause < 10*time.Second {
		t.Errorf("pause without a lease after %d failures = %s, want it longer", last+1, pause)
	}
}
