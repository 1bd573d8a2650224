package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// bouncer: no order among waiters, [3 2 1 0 5 4] was measured, and newcomers overtake.
func TestFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	s, place := shared(), "/v1/semaphore/"+fresh(t)
	s.want(t, place+"/acquire?key=0", "200")
	var waiters []*conn
	for i := 1; i <= 12; i++ {
		waiters = append(waiters, s.wait(t, fmt.Sprintf("%s/acquire?key=%d", place, i)))
	}
	for i, w := range waiters {
		newcomer := s.dial(t)
		newcomer.ask(place + "/acquire?maxwait=1")
		s.want(t, fmt.Sprintf("%s/release?key=%d", place, i), "204")
		if a := w.answer(); !a.is(fmt.Sprintf("200 %d", i+1)) {
			t.Fatalf("waiter %d = %s, want it next", i+1, a)
		}
		if a := newcomer.answer(); !a.is("408") && i < 11 {
			t.Fatalf("a newcomer behind waiter %d = %s, want 408", i+1, a)
		}
		s.inLine(t, placeOf(place+"/acquire"), 11-i)
	}
}

// The same for tokens, of which a resize gives some at a time.
func TestTokensGoInOrderOfArrival(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	acquire := "/v1/tokenbucket/" + name + "/acquire?interval=60000&size="
	var waiters []*conn
	for range 9 {
		waiters = append(waiters, s.wait(t, acquire+"0"))
	}
	for size := 3; size <= 9; size += 3 {
		s.want(t, fmt.Sprintf("%s%d&maxwait=0", acquire, size), "408")
		for i := size - 3; i < size; i++ {
			if a := waiters[i].answer(); !a.is("204") {
				t.Fatalf("waiter %d at size %d = %s, want 204", i+1, size, a)
			}
		}
		s.inLine(t, "tokenbucket/"+name, 9-size)
	}
}

// bouncer: a timer that was about to fire ends the hold that follows the one it was for.
func TestExpiryEndsItsOwnHoldOnly(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	var group sync.WaitGroup
	for i := range 40 {
		c := s.dial(t)
		place := fmt.Sprintf("/v1/semaphore/%s-%d", name, i)
		group.Go(func() {
			c.send(rawRequest(place + "/acquire?key=a&expires=50"))
			_, _ = c.read()
			c.quietUntil(time.Duration(48_000+100*i) * time.Microsecond)
			c.send(rawRequest(place+"/release?key=a") + rawRequest(place+"/acquire?key=a&expires=60000"))
			_, _ = c.read()
			if a, err := c.read(); err != nil || !a.is("200 a") {
				t.Errorf("acquire after a release or an expiry = %v, %v, want 200 a", a, err)
			}
		})
	}
	group.Wait()
	s.passes(t, 100*time.Millisecond)
	for i := range 40 {
		s.want(t, fmt.Sprintf("/v1/semaphore/%s-%d/acquire?key=b&maxwait=0", name, i), "408")
	}
}

// bouncer: of two waiters with one key the first one's timer leaks, and ends the hold of the second.
func TestWaitersWithOneKeyShareItsExpiry(t *testing.T) {
	t.Parallel()
	playOn(t, shared(), `
		semaphore/{}/acquire?key=a -> 200
		w1: semaphore/{}/acquire?key=b&expires=3000
		w2: semaphore/{}/acquire?key=b&expires=60000
		semaphore/{}/release?key=a -> 204
		w1 -> 200 b
		w2 -> 200 b
		semaphore/{}/release?key=b -> 204
		semaphore/{}/acquire?key=b -> 200 b
		3500ms pass
		semaphore/{}/acquire?key=c&maxwait=0 -> 408  # the timer of the hold before is gone with it`)
}

// bouncer: an alarm right after the kick that should have prevented it.
func TestNoAlarmAfterAKick(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	var group sync.WaitGroup
	for i := range 40 {
		c := s.dial(t)
		place := fmt.Sprintf("/v1/watchdog/%s-%d", name, i)
		group.Go(func() {
			c.send(rawRequest(place + "/kick?expires=50"))
			_, _ = c.read()
			c.quietUntil(time.Duration(48_000+100*i) * time.Microsecond)
			c.send(rawRequest(place+"/kick?expires=60000") + rawRequest(place+"/wait?maxwait=100"))
			_, _ = c.read()
			if a, err := c.read(); err != nil || !a.is("408") {
				t.Errorf("wait right after a kick = %v, %v, want 408", a, err)
			}
		})
	}
	group.Wait()
}

// bouncer: a waiter more than its size may pass a barrier.
func TestBarrierLetsNoMoreThanItsSizeThrough(t *testing.T) {
	t.Parallel()
	conns := make([]*conn, 8)
	for i := range conns {
		conns[i] = shared().dial(t)
	}
	name := fresh(t)
	for round := range 100 {
		for _, i := range rand.Perm(len(conns)) {
			conns[i].ask(fmt.Sprintf("/v1/barrier/%s-%d/wait?size=5", name, round))
		}
		var got []int
		for _, c := range conns {
			got = append(got, c.answer().status)
		}
		slices.Sort(got)
		if want := []int{204, 204, 204, 204, 204, 409, 409, 409}; !slices.Equal(got, want) {
			t.Fatalf("eight at a barrier of five got %v, want %v", got, want)
		}
	}
}

// A crowd keeps the line of one name busy, so that what comes at about the same time is served together.
type crowd []*conn

// gather asks for the stats of a name, many times over.
func (c crowd) gather(place string) {
	for _, member := range c {
		member.send(strings.Repeat(rawRequest(place+"/stats"), 30))
	}
}

// leave reads the crowd's answers.
func (c crowd) leave() {
	for _, member := range c {
		for range 30 {
			member.answer()
		}
	}
}

// bouncer: a DELETE at the instant of the last arrival panics, and its waiters are told that it opened.
// Whatever comes first decides for both: the barrier has opened, or it was deleted.
func TestDeleteOfABarrierThatOpens(t *testing.T) {
	t.Parallel()
	s := shared()
	first, last, deleter, others := s.dial(t), s.dial(t), s.dial(t), crowd{s.dial(t), s.dial(t), s.dial(t)}
	for range 100 {
		place := "/v1/barrier/" + fresh(t)
		first.ask(place + "/wait?size=2&maxwait=5000")
		s.inLine(t, placeOf(place+"/wait"), 1)
		others.gather(place)
		last.ask(place + "/wait?size=2&maxwait=20")
		deleter.ask("DELETE " + place)
		got := fmt.Sprint(first.answer().status, last.answer().status, deleter.answer().status)
		others.leave()
		if got != "204 204 204" && got != "409 408 204" {
			t.Fatalf("first, last and DELETE got %s, want 204 204 204 or 409 408 204", got)
		}
	}
}

// The same for an event: who waited when it was sent gets it, although it is deleted at once.
func TestDeleteOfAnEventThatIsSent(t *testing.T) {
	t.Parallel()
	s := shared()
	waiter, sender, deleter, others := s.dial(t), s.dial(t), s.dial(t), crowd{s.dial(t), s.dial(t), s.dial(t)}
	for range 100 {
		place := "/v1/event/" + fresh(t)
		waiter.ask(place + "/wait")
		s.inLine(t, placeOf(place+"/wait"), 1)
		others.gather(place)
		sender.ask(place + "/send")
		deleter.ask("DELETE " + place)
		got := fmt.Sprint(waiter.answer().status, sender.answer().status, deleter.answer().status)
		others.leave()
		sender.ask(place + "/wait?maxwait=0")
		got += fmt.Sprint(" ", sender.answer().status)
		if got != "204 204 204 408" && got != "409 204 204 204" {
			t.Fatalf("waiter, send, DELETE and a wait after them got %s, "+
				"want 204 204 204 408 or 409 204 204 204", got)
		}
	}
}

// requestsAtOnce are what clients do to one another, and what they may get for it.
var requestsAtOnce = []struct{ request, want string }{
	{"tokenbucket/{}/acquire?size=3&interval=20&maxwait=30", "204 408 409"},
	{"tokenbucket/{}/acquire?size=2&interval=30&maxwait=0&cost=2", "204 408"},
	{"tokenbucket/{}/acquire?size=0&maxwait=5", "204 408 409"}, // another may raise it meanwhile
	{"semaphore/{}/acquire?size=2&key=a&expires=5&maxwait=30", "200 408 409"},
	{"semaphore/{}/acquire?size=3&expires=3&maxwait=20", "200 408 409"},
	{"semaphore/{}/acquire?size=2&cost=2&key=b&expires=4&maxwait=20", "200 408 409"},
	{"semaphore/{}/release?key=a", "204 409"},
	{"semaphore/{}/renew?key=a&expires=10", "204 409"},
	{"lock/{}/acquire?key=a&expires=3&maxwait=20", "200 408 409"},
	{"lock/{}/release?key=a", "204 409"},
	{"event/{}/wait?maxwait=20", "204 408 409"},
	{"event/{}/send?message=m", "204 409"},
	{"watchdog/{}/wait?maxwait=20", "204 408 409"},
	{"watchdog/{}/kick?expires=5", "204"},
	{"counter/{}/count?amount=9000000000000000000", "200 409"},
	{"counter/{}/reset?value=-9000000000000000000", "204"},
	{"counter/{}/value", "200"},
	{"barrier/{}/wait?size=3&maxwait=20", "204 408 409"},
}

// bouncer: eleven reports of the race detector. The server's own ends it with status 66.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	var group sync.WaitGroup
	for range 24 {
		c := s.dial(t)
		group.Go(func() {
			for range 80 {
				s.anything(t, c)
			}
		})
	}
	group.Wait()
	s.want(t, "/v1/counter/after/count", "200 1")
	until(t, "nobody waits any more", func() bool {
		return strings.Contains(s.get(t, "/metrics").body, "\ngatehouse_waiting 0\n")
	})
}

// anything makes one random request.
func (s *server) anything(t *testing.T, c *conn) {
	t.Helper()
	name := []string{"x", "y"}[rand.N(2)]
	r := requestsAtOnce[rand.N(len(requestsAtOnce))]
	request, want := "/v1/"+strings.ReplaceAll(r.request, "{}", name), r.want
	kind, _, _ := strings.Cut(r.request, "/")
	switch rand.N(12) {
	case 0:
		request, want = "DELETE /v1/"+kind+"/"+name, "204 404"
	case 1:
		request, want = "/v1/"+kind+"/"+name+"/stats", "200 404"
	case 2: // this client hangs up
		gone := s.dial(t)
		gone.ask(request)
		gone.hangUp()
		return
	}
	c.send(rawRequest(request))
	a, err := c.read()
	if err != nil || !slices.Contains(strings.Fields(want), fmt.Sprint(a.status)) {
		t.Errorf("%s = %v, %v, want one of %s", request, a, err, want)
	}
}
