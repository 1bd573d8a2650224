package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// In these an interval is a minute, which none of them outlives, unless it says otherwise.
var tokenBuckets = []script{
	{"size tokens in an interval, then refused", `
		3x tokenbucket/{}/acquire?size=3&interval=60000 -> 204
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=0 -> 408 tokenbucket/{}: acquire not granted …
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=100 -> 408 after 100ms`},
	{"headers tell what is left and when it is full again", `
		tokenbucket/{}/acquire?size=3&interval=60000 -> 204 [RateLimit: "tokenbucket";r=2;t=~60]
		tokenbucket/{}/acquire?size=3&interval=60000 -> 204 [RateLimit: …r=1;t=~60] [Retry-After: -]
		tokenbucket/{}/acquire?size=3&interval=60000 -> 204 [RateLimit-Policy: "tokenbucket";q=3;w=60]
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=0 -> 408 [RateLimit: …r=0;t=~60]
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=0 -> 408 [Retry-After: ~60]
		tokenbucket/{}/acquire?size=3&interval=60500&maxwait=0 -> 408 [RateLimit-Policy: "tokenbucket";q=3]`},
	{"2 of 5 taken, then size 8: 6 more", `
		2x tokenbucket/{}/acquire?size=5&interval=60000&maxwait=0 -> 204
		6x tokenbucket/{}/acquire?size=8&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=8&interval=60000&maxwait=0 -> 408`},
	{"2 of 2 taken, then size 5: 3 more", `
		2x tokenbucket/{}/acquire?size=2&interval=60000&maxwait=0 -> 204
		3x tokenbucket/{}/acquire?size=5&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=5&interval=60000&maxwait=0 -> 408`},
	{"2 of 10 taken, then size 4: 2 more", `
		2x tokenbucket/{}/acquire?size=10&interval=60000&maxwait=0 -> 204
		2x tokenbucket/{}/acquire?size=4&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=4&interval=60000&maxwait=0 -> 408`},
	{"3 of 5 taken, then size 3: none", `
		3x tokenbucket/{}/acquire?size=5&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=0 -> 408`},
	{"5 of 10 taken, then size 3: none", `
		5x tokenbucket/{}/acquire?size=10&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=0 -> 408`},
	{"2 of 6 taken, 1 of 3, then size 6: 3 more", `
		2x tokenbucket/{}/acquire?size=6&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=3&interval=60000&maxwait=0 -> 204
		3x tokenbucket/{}/acquire?size=6&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=6&interval=60000&maxwait=0 -> 408`},
	{"1 of 5 taken, then size 0: none, however often", `
		tokenbucket/{}/acquire?size=5&interval=60000&maxwait=0 -> 204
		3x tokenbucket/{}/acquire?size=0&interval=60000&maxwait=0 -> 408 …only another request…
		tokenbucket/{}/acquire?size=0&interval=60000&maxwait=0 -> 408 [Retry-After: -]
		tokenbucket/{}/acquire?size=0&interval=60000&maxwait=100 -> 408 after 100ms`},
	{"who waits at size 0 goes when another request raises it", `
		w1: tokenbucket/{}/acquire?size=0&interval=60000
		tokenbucket/{}/acquire?size=4&interval=60000 -> 204
		w1 -> 204
		2x tokenbucket/{}/acquire?size=4&interval=60000&maxwait=0 -> 204
		tokenbucket/{}/acquire?size=4&interval=60000&maxwait=0 -> 408`},
	{"size 0 stops a short interval too", `
		tokenbucket/{}/acquire?size=0&interval=20&maxwait=300 -> 408 after 300ms`},
	{"every acquire sets size and interval, absent ones to the defaults", `
		tokenbucket/{}/acquire?size=5&interval=60000 -> 204 [RateLimit-Policy: "tokenbucket";q=5;w=60]
		tokenbucket/{}/acquire?interval=60000&maxwait=0 -> 408 [RateLimit-Policy: "tokenbucket";q=1;w=60]
		tokenbucket/{}/acquire?size=5&interval=60000 -> 204 [RateLimit: "tokenbucket";r=3;t=~60]
		tokenbucket/{}/acquire?size=5 -> 204 [RateLimit-Policy: "tokenbucket";q=5;w=1]`},
	{"a shorter interval counts from the start of the period", `
		tokenbucket/{}/acquire?interval=60000 -> 204
		tokenbucket/{}/acquire?interval=300 -> 204 after 0s`},
	{"a shorter interval that is over already refills at once", `
		tokenbucket/{}/acquire?interval=60000 -> 204
		250ms pass
		tokenbucket/{}/acquire?interval=200&maxwait=0 -> 204`},
	{"a shorter interval reaches those who wait", `
		tokenbucket/{}/acquire?interval=60000 -> 204
		w1: tokenbucket/{}/acquire?interval=60000
		tokenbucket/{}/acquire?interval=300&maxwait=0 -> 408
		w1 -> 204 after 0s`},
	{"a longer interval counts from the start of the period", `
		tokenbucket/{}/acquire?interval=2000 -> 204
		tokenbucket/{}/acquire?interval=60000&maxwait=2300 -> 408 after 2300ms`},
	{"who gave up took nothing", `
		tokenbucket/{}/acquire?size=2&interval=60000 -> 204
		tokenbucket/{}/acquire?size=2&interval=60000&cost=2&maxwait=100 -> 408 after 100ms
		tokenbucket/{}/acquire?size=2&interval=60000&cost=2&maxwait=0 -> 408
		tokenbucket/{}/acquire?size=2&interval=60000&maxwait=0 -> 204`},
	{"a cost takes so many at once", `
		tokenbucket/{}/acquire?size=5&interval=60000&cost=3 -> 204 [RateLimit: "tokenbucket";r=2;t=~60]
		tokenbucket/{}/acquire?size=5&interval=60000&cost=3&maxwait=0 -> 408
		tokenbucket/{}/acquire?size=5&interval=60000&cost=2&maxwait=0 -> 204 [RateLimit: …r=0;t=~60]`},
	{"a cost above the size can never fit, unless the size is 0", `
		tokenbucket/{}/acquire?size=5&cost=6 -> 400 tokenbucket/{}: cost 6 can never fit a size of 5
		tokenbucket/{}/acquire?cost=2 -> 400
		tokenbucket/{}/acquire?size=5&cost=0 -> 400
		tokenbucket/{}/acquire?size=5&cost=-1 -> 400
		tokenbucket/{}/stats -> 404
		tokenbucket/{}/acquire?size=0&cost=6&maxwait=0 -> 408`},
	{"a resize that makes a waiter impossible tells it at once", `
		tokenbucket/{}/acquire?size=10&interval=60000&cost=5 -> 204
		w1: tokenbucket/{}/acquire?size=10&interval=60000&cost=8
		tokenbucket/{}/acquire?size=5&interval=60000&maxwait=0 -> 408
		w1 -> 409`},
	{"nobody overtakes who waits, although tokens would do", `
		tokenbucket/{}/acquire?size=6&interval=60000&cost=4 -> 204
		w1: tokenbucket/{}/acquire?size=6&interval=60000&cost=3
		tokenbucket/{}/acquire?size=6&interval=60000&maxwait=0 -> 408
		tokenbucket/{}/acquire?size=6&interval=60000&maxwait=100 -> 408 after 100ms
		w1 hangs up
		2x tokenbucket/{}/acquire?size=6&interval=60000&maxwait=0 -> 204`},
	{"the parameters of who waits apply once, on arrival", `
		tokenbucket/{}/acquire?size=1&interval=60000 -> 204
		w1: tokenbucket/{}/acquire?size=1&interval=60000
		tokenbucket/{}/acquire?size=4&interval=60000 -> 204 [RateLimit: "tokenbucket";r=1;t=~60]
		w1 -> 204 [RateLimit-Policy: "tokenbucket";q=4;w=60]
		tokenbucket/{}/stats -> 200 …"size":4,…"available":1,…`},
	{"a deleted bucket begins anew", `
		tokenbucket/{}/acquire?interval=60000 -> 204
		DELETE tokenbucket/{} -> 204
		tokenbucket/{}/acquire?interval=60000&maxwait=0 -> 204`},
}

func TestTokenBucket(t *testing.T) {
	t.Parallel()
	play(t, tokenBuckets)
}

// Whoever comes after the first five waits for the next boundary, or the one after: all at once.
func TestTokensComeAllAtOnce(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	request := "/v1/tokenbucket/" + name + "/acquire?size=5&interval=5000"
	begun := time.Now() // the bucket's first boundary is not before
	for range 5 {
		s.want(t, request, "204")
	}
	answers := make(chan time.Time)
	for range 12 {
		waiter := s.dial(t)
		waiter.ask(request)
		go func() {
			if a, err := waiter.read(); err != nil || !a.is("204") {
				t.Errorf("a waiter got %v, %v, want 204", a, err)
			}
			answers <- time.Now()
		}()
	}
	var answered []time.Time
	for range 12 {
		answered = append(answered, <-answers)
	}
	slices.SortFunc(answered, time.Time.Compare)
	for round, last := range []int{4, 9, 11} {
		first := last / 5 * 5
		boundary := time.Duration(round+1) * 5 * time.Second
		if at := answered[first].Sub(begun); at < boundary {
			t.Errorf("waiter %d of 12 went %s after the first request, want after %s",
				first+1, at, boundary)
		}
		if spread := answered[last].Sub(answered[first]); spread > 4*time.Second {
			t.Errorf("waiters %d to %d of 12 went within %s, want at once", first+1, last+1, spread)
		}
	}
}

// Boundaries are whole intervals after the first request, whenever tokens are asked for.
func TestBoundariesDoNotDrift(t *testing.T) {
	t.Parallel()
	s, place := shared(), "/v1/tokenbucket/"+fresh(t)
	request := place + "/acquire?size=1&interval=1000"
	before := time.Now()
	s.want(t, request, "204")
	after := time.Now() // the first request was between the two
	for range 2 {
		s.passes(t, 1300*time.Millisecond)
		for range 2 { // the one that was left over, and the next
			s.want(t, request, "204")
		}
	}
	asked := time.Now()
	delay := time.Duration(number(t, place+"/delay")) * time.Millisecond // up to one more than it is
	least, most := asked.Add(delay-time.Millisecond).Sub(after), time.Now().Add(delay).Sub(before)
	if most.Truncate(time.Second) < least {
		t.Errorf("the next token comes %s to %s after the first request, want whole seconds", least, most)
	}
}

// Two first requests that meet leave what one of the two orders leaves.
func TestFirstRequestsThatMeet(t *testing.T) {
	t.Parallel()
	s := shared()
	one, two, third := s.dial(t), s.dial(t), s.dial(t)
	for i := range 200 {
		place := fmt.Sprintf("/v1/tokenbucket/%s/", fresh(t))
		one.ask(place + "acquire?size=1&interval=60000&maxwait=0")
		two.ask(place + "acquire?size=2&interval=60000&maxwait=0")
		first, second := one.answer(), two.answer()
		third.ask(place + "stats")
		size := third.answer()
		before := first.is("204") && second.is("204") && size.is(`200 …"size":2,…`)
		after := first.is("408") && second.is("204") && size.is(`200 …"size":1,…`)
		if !before && !after {
			t.Fatalf("round %d: size=1 got %s, size=2 got %s and left %s, want them one after the other",
				i, first, second, size)
		}
	}
}
