package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
)

// A client that is gone when it is let in has used nothing up, under none of several limits.
func TestLimitsAndAClientThatJustLeft(t *testing.T) {
	t.Parallel()
	for _, kind := range limiters {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, name := shared(), fresh(t)
			keeper := s.dial(t)
			stayOnOneProcessor(t)
			for round := range 20 {
				place := fmt.Sprintf("/v1/%s/%s-%d", kind, name, round)
				gone := s.wait(t, place+"/acquire?limits=0/24h,5/2400h")
				gone.hangUp()
				keeper.ask(place + "/acquire?limits=1/24h,5/2400h&maxwait=10000")
				if a := keeper.answer(); !a.is("204") {
					t.Fatalf("round %d: next in line behind a client that left = %s, want 204", round, a)
				}
				keeper.ask(place + "/peek?cost=0")
				a := keeper.answer()
				if got := a.header.Get("RateLimit"); !matches(`"1/24h";r=0;t=…, "5/2400h";r=4;t=…`, got) {
					t.Fatalf("round %d: RateLimit is %s, want 1 taken: none by the other", round, got)
				}
			}
		})
	}
}

// A name keeps so many reservations, and says so to the next. One that is given back makes room.
func TestReservationsAreBounded(t *testing.T) {
	t.Parallel()
	const most, reserve = 1000, "/reserve?interval=86400000"
	for _, kind := range limiters {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, name := shared(), fresh(t)
			c := s.dial(t)
			place := "/v1/" + kind + "/" + name
			ask := func(request string) *answer {
				c.ask(place + request)
				return c.answer()
			}
			granted := 0
			for granted < most+2 && ask(fmt.Sprintf("%s&key=k%d", reserve, granted)).is("200") {
				granted++
			}
			if granted < most || granted > most+1 { // the first lies ahead for a moment only
				t.Errorf("%d reservations were granted, want %d that lie ahead", granted, most)
			}
			if a := ask(reserve + "&key=new"); !a.is("503 "+kind+"/"+name+" has …") ||
				a.header.Get("Retry-After") == "" {
				t.Errorf("one more = %s, want 503 and Retry-After", a)
			}
			if a := ask(reserve + "&key=k7"); !a.is("200") {
				t.Errorf("one that is there already = %s, want 200", a)
			}
			if a := ask("/cancel?key=k7"); !a.is("204") {
				t.Errorf("cancel = %s, want 204", a)
			}
			if a := ask(reserve + "&key=new"); !a.is("200") {
				t.Errorf("one more after one was given back = %s, want 200", a)
			}
		})
	}
}

// limiterRequests are what clients of limiters do to one another, and what they may get for it.
var limiterRequests = []struct{ request, want string }{
	{"acquire?size=3&interval=20&maxwait=30", "204 408 409"},
	{"acquire?size=2&interval=30&maxwait=0&cost=2", "204 408"},
	{"acquire?size=0&maxwait=5", "204 408 409"}, // another may raise it meanwhile
	{"acquire?size=4&interval=25&burst=1&mode=MODE&guard=1&maxwait=20", "204 408 409"},
	{"acquire?limits=3/10ms,5/50ms&maxwait=20", "204 408 409"},
	{"acquire?limits=3/10ms,500/day&zone=Europe/Berlin&maxwait=20&cost=2", "204 408 409"},
	{"acquire?size=5&interval=month&maxwait=3", "204 408 409"},
	{"peek", "204 404 408"},
	{"peek?cost=3", "204 404 408 409"},
	{"peek?limits=3/10ms,5/50ms&cost=0", "204 408"},
	{"delay?cost=2", "200 404 408 409"},
	{"delay?size=3&interval=9&mode=MODE", "200"},
	{"reserve?size=3&interval=5&key=a", "200 408 409"},
	{"reserve?size=2&interval=2&cost=2", "200 408"},
	{"reserve?limits=3/2ms,9/9ms&key=b&mode=MODE", "200 408 409"},
	{"cancel?key=a", "204 404 409"},
	{"cancel?key=b", "204 404 409"},
	{"refund?cost=2", "204 404"},
	{"reset", "204 404"},
	{"stats", "200 404"},
}

// modesOf are the modes of the kinds that have some.
var modesOf = map[string][]string{
	"slidingwindow": {"estimate", "fine", "strict"}, "pace": {"reserve", "paced", "classic"},
}

// Whatever meets, the server answers, and in the end nobody waits.
func TestLimitersAtOnce(t *testing.T) {
	t.Parallel()
	s := start(t)
	var group sync.WaitGroup
	for range 24 {
		c := s.dial(t)
		group.Go(func() {
			for range 150 {
				s.anyOfLimiters(t, c)
			}
		})
	}
	group.Wait()
	s.want(t, "/v1/counter/after/count", "200 1")
	until(t, "nobody waits any more", func() bool {
		return strings.Contains(s.get(t, "/metrics").body, "\ngatehouse_waiting 0\n")
	})
}

// anyOfLimiters makes one random request.
func (s *server) anyOfLimiters(t *testing.T, c *conn) {
	t.Helper()
	kind := limiters[rand.N(len(limiters))]
	mode := "estimate" // which other kinds check and ignore
	if modes := modesOf[kind]; modes != nil {
		mode = modes[rand.N(len(modes))]
	}
	r := limiterRequests[rand.N(len(limiterRequests))]
	request, want := "/v1/"+kind+"/x/"+strings.ReplaceAll(r.request, "MODE", mode), r.want
	switch rand.N(20) {
	case 0:
		request, want = "DELETE /v1/"+kind+"/x", "204 404"
	case 1: // this client hangs up
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
