package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// What each way of limiting has of its own.
var limiterKinds = []script{
	{"a GCRA lets so many through at once beyond the first, and then one a step", `
		gcra/{}/acquire?size=30&interval=3600000&burst=15 -> 204 [RateLimit: "gcra";r=15;t=120]
		gcra/{}/acquire?size=30&interval=3600000&burst=15 -> 204 [RateLimit-Policy: "gcra";q=16;w=1920]
		14x gcra/{}/acquire?size=30&interval=3600000&burst=15 -> 204
		gcra/{}/acquire?size=30&interval=3600000&burst=15&maxwait=0 -> 408 [Retry-After: ~120]
		gcra/{}/acquire?size=30&interval=3600000&burst=15&maxwait=0 -> 408 [RateLimit: "gcra";r=0;t=~120]
		gcra/{}/acquire?size=30&interval=3600000&burst=15&cost=17 -> 400 …cost 17 can never fit a size of 16
		gcra/{}-x/acquire?size=2&interval=1000&burst=0 -> 204
		gcra/{}-x/acquire?size=2&interval=1000&burst=0 -> 204  # half a second later at most`},
	{"without a burst it is the size", `
		3x gcra/{}/acquire?size=3&interval=60000 -> 204 [RateLimit-Policy: "gcra";q=3;w=60]
		gcra/{}/acquire?size=3&interval=60000&maxwait=0 -> 408 [Retry-After: ~20]`},
	{"a burst of 0 is one after the other", `
		gcra/{}/acquire?size=6&interval=360000&burst=0 -> 204 [RateLimit: "gcra";r=0;t=60]
		gcra/{}/acquire?size=6&interval=360000&burst=0&maxwait=0 -> 408 [RateLimit-Policy: "gcra";q=1;w=60]
		gcra/{}/acquire?size=6&interval=360000&burst=1&maxwait=0 -> 204`},
	{"the window of a GCRA is told though a step is no whole number of nanoseconds", `
		gcra/{}/acquire?size=3&interval=1000 -> 204 [RateLimit-Policy: "gcra";q=3;w=1]
		gcra/{}/acquire?size=7&interval=60000 -> 204 [RateLimit-Policy: "gcra";q=7;w=60]
		gcra/{}/acquire?size=3000&interval=1000 -> 204 [RateLimit-Policy: "gcra";q=3000;w=1]
		gcra/{}/acquire?size=3&interval=1500 -> 204 [RateLimit-Policy: "gcra";q=3]`},
	{"a GCRA cannot count faster than nanoseconds, nor longer than a hundred years", `
		gcra/{}/acquire?size=1000000001&interval=1000 -> 400 gcra/{}: 1000000001/1s is more than one…
		gcra/{}/acquire?size=1000000000&interval=1000 -> 204
		gcra/{}/acquire?size=1&interval=3153600000000&burst=1 -> 400 gcra/{}: a burst of 1 at … takes…
		gcra/{}/peek?limits=1000000001/1s -> 400
		gcra/{}/peek?limits=1/1s,999999999/1ms -> 400
		fixedwindow/{}/acquire?size=1000000001&interval=1 -> 204`},
	{"a sliding window has modes", `
		slidingwindow/{}/acquire?size=2&interval=8640000000&mode=estimate -> 204
		slidingwindow/{}/acquire?size=2&interval=8640000000&mode=fine -> 204
		slidingwindow/{}/acquire?size=2&interval=8640000000&mode=strict&maxwait=0 -> 408
		slidingwindow/{}/peek?size=3&interval=8640000000&mode=fine -> 204
		slidingwindow/{}/acquire?mode=paced -> 400 mode is "paced", want one of estimate fine strict`},
	{"a pace in poll mode is an acquire that does not wait", `
		2x pace/{}/acquire?size=2&interval=60000&maxwait=0 -> 204
		pace/{}/acquire?size=2&interval=60000&maxwait=0 -> 408 [Retry-After: ~60]
		pace/{}/delay -> 200
		pace/{}/acquire?mode=strict -> 400 mode is "strict", want one of reserve paced classic`},
	{"a window of the calendar ends with it", `
		fixedwindow/{}/acquire?size=2&interval=day&zone=Europe/Berlin -> 204 [RateLimit: …;r=1;t=…]
		fixedwindow/{}/acquire?size=2&interval=day&zone=Europe/Berlin -> 204 [RateLimit: …;r=0;t=…]
		fixedwindow/{}/acquire?size=2&interval=day&zone=Europe/Berlin&maxwait=0 -> 408 [Retry-After: …]
		fixedwindow/{}/delay -> 200
		fixedwindow/{}/refund -> 204
		fixedwindow/{}/peek -> 204
		fixedwindow/{}/reset -> 204 [RateLimit: "fixedwindow";r=2;t=…]`},
	{"every limiter knows the calendar", `
		tokenbucket/{}/acquire?size=2&interval=week -> 204 [RateLimit-Policy: "tokenbucket";q=2;w=604800]
		gcra/{}/acquire?size=2&interval=month -> 204 [RateLimit: "gcra";r=1;t=…]
		slidingwindow/{}/acquire?size=2&interval=day&mode=strict -> 204
		slidinglog/{}/acquire?size=2&interval=day -> 204 [RateLimit-Policy: "slidinglog";q=2;w=86400]
		pace/{}/reserve?size=2&interval=day&key=k -> 200 0
		pace/{}/acquire?limits=9/1s,9/week,9/month -> 204 [RateLimit-Policy: …w=604800, "9/month";q=9]`},
	{"a zone that there is not is refused, and makes nothing", `
		fixedwindow/{}/acquire?interval=day&zone=Europe/Nowhere -> 400 …"Europe/Nowhere"…, want an IANA…
		fixedwindow/{}/peek?interval=day&zone=europe/berlin -> 400
		fixedwindow/{}/acquire?interval=day&zone=Local -> 400
		fixedwindow/{}/acquire?interval=day&zone=../UTC -> 400
		fixedwindow/{}/acquire?interval=day&zone=/etc/localtime -> 400
		fixedwindow/{}/reserve?limits=1/1s,5/day&zone=a%0Ab -> 400 …"a\nb"…want…
		fixedwindow/{}/delay?limits=1/1s,5/day&zone=%FF -> 400
		fixedwindow/{}/stats -> 404
		fixedwindow/{}/acquire?interval=day&zone=Europe%2FBerlin -> 204
		fixedwindow/{}/acquire?interval=day&zone=Moon&maxwait=0 -> 400
		fixedwindow/{}/peek -> 408  # the zone that was refused changed nothing`},
}

func TestLimiterKinds(t *testing.T) {
	t.Parallel()
	play(t, limiterKinds)
}

// number is a request whose answer is 200 with a number.
func number(t *testing.T, request string) int {
	t.Helper()
	a := shared().get(t, request)
	n, err := strconv.Atoi(a.body)
	if err != nil || !a.is("200") {
		t.Fatalf("%s = %s, want 200 with a number", request, a)
	}
	return n
}

// A reservation's delay is from the answer on, in milliseconds: the start that it promises stays the same
// while requests come one after the other.
func TestReservedDelays(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fact, request string
		want          []int
	}{
		{"a pace starts all at once when the interval is over", "pace/{}/reserve?size=2&interval=60000",
			[]int{0, 0, 60000, 60000, 120000, 120000}},
		{"paced, evenly", "pace/{}/reserve?size=2&interval=60000&mode=paced",
			[]int{0, 0, 60000, 90000, 120000}},
		{"classic, one step later, as JARL does", "pace/{}/reserve?size=2&interval=60000&mode=classic",
			[]int{0, 0, 90000, 120000, 150000}},
		{"with a guard", "pace/{}/reserve?size=2&interval=60000&guard=5000",
			[]int{0, 0, 65000, 65000, 130000}},
		{"a GCRA, one a step", "gcra/{}/reserve?size=2&interval=60000", []int{0, 0, 30000, 60000}},
		{"a GCRA with costs", "gcra/{}/reserve?size=6&interval=60000&burst=1&cost=2", []int{0, 20000, 40000}},
		{"a bucket, when it is refilled", "tokenbucket/{}/reserve?size=2&interval=60000",
			[]int{0, 0, 60000, 60000, 120000}},
		{"a log", "slidinglog/{}/reserve?size=2&interval=60000", []int{0, 0, 60000, 60000, 120000}},
		{"the slowest of several limits", "slidinglog/{}/reserve?limits=1/10s,2/1m",
			[]int{0, 10000, 60000, 70000, 120000}},
	} {
		t.Run(c.fact, func(t *testing.T) {
			t.Parallel()
			request := "/v1/" + strings.ReplaceAll(c.request, "{}", fresh(t))
			begun := time.Now()
			for i, want := range c.want {
				got, passed := number(t, request), int(time.Since(begun).Milliseconds())+1
				if got > want || got < want-passed {
					t.Errorf("reservation %d: delay %d, want %d less the %d since the first",
						i+1, got, want, passed)
				}
			}
		})
	}
}

// What a delay says is what a wait then takes.
func TestDelayIsTheWait(t *testing.T) {
	t.Parallel()
	for _, kind := range limiters {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, limit := shared(), "?size=2&interval=1500"
			place := "/v1/" + kind + "/" + fresh(t)
			s.want(t, place+"/acquire"+limit+"&cost=2", "204")
			asked := time.Now()
			delay := number(t, place+"/delay?cost=2")
			s.want(t, place+"/acquire"+limit+"&cost=2", "204")
			took := int(time.Since(asked).Milliseconds()) + 1 // as the delay, in whole milliseconds
			if delay > 3000 || took < delay {
				t.Errorf("a delay of %d ms, and the wait took %d ms, want at least as much, and a delay "+
					"of at most two intervals", delay, took)
			}
		})
	}
}

// What is reserved can be given back until its time has come, and who comes then finds it taken.
func TestReservationComes(t *testing.T) {
	t.Parallel()
	for _, kind := range limiters {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			s, limit := shared(), "?size=1&interval=3000"
			place := "/v1/" + kind + "/" + fresh(t)
			s.want(t, place+"/acquire"+limit, "204")
			delay := number(t, place+"/reserve"+limit+"&key=mine")
			w := s.wait(t, place+"/acquire"+limit)
			if a := w.answer(); !a.is("204") {
				t.Errorf("acquire behind a reservation = %s, want 204", a)
			}
			if took := int(time.Since(w.asked).Milliseconds()); took < delay {
				t.Errorf("it came after %d ms, want after the %d of the reservation", took, delay)
			}
			s.want(t, place+"/cancel?key=mine", "409")
		})
	}
}

// Stats of limiters have the fields of a token bucket, and two more where there is something to tell.
func TestLimiterStats(t *testing.T) {
	t.Parallel()
	for _, kind := range limiters {
		name := fresh(t)
		lines := strings.ReplaceAll(`
			KIND/{}/acquire?limits=2/24h,9/2400h -> 204
			KIND/{}/reserve?limits=2/24h,9/2400h -> 200 0
			KIND/{}/reserve?limits=2/24h,9/2400h&key=k -> 200
			KIND/{}/acquire?limits=2/24h,9/2400h&maxwait=0 -> 408
			KIND/{}/peek -> 408
			KIND/{}/delay -> 200`, "KIND", kind)
		playOn(t, shared(), strings.ReplaceAll(lines, "{}", name))
		compareStats(t, shared().stats(t, kind+"/"+name),
			"acquired=3 timed_out=1 total_wait_time=0 average_wait_time=0 created_at=… size=2 "+
				"interval=86400000 available=0 limits=2/24h,9/2400h reserved=1 waiting=0")
	}
}

// Who accepts JSON learns which limits refused, by the names that they have in RateLimit-Policy.
func TestRefusalsNameTheirPolicies(t *testing.T) {
	t.Parallel()
	for _, kind := range slices.Concat(limiters, []string{"semaphore", "lock"}) {
		one, many := "/v1/"+kind+"/"+fresh(t), "/v1/"+kind+"/"+fresh(t)
		type problem struct {
			Type, Title, Detail string
			Status              int
			Violated            []string `json:"violated-policies"`
		}
		ask := func(request string) (p problem) {
			t.Helper()
			a := shared().get(t, request, "Accept: application/problem+json")
			err := json.Unmarshal([]byte(a.body), &p)
			if err != nil || p.Status != a.status || p.Detail == "" {
				t.Errorf("%s = %s, want a problem", request, a)
			}
			return p
		}
		const exceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded"
		const request = "/acquire?size=1&interval=8640000000&maxwait=0"
		shared().get(t, one+request)
		p := ask(one + request)
		if p.Type != exceeded || p.Title == "" || p.Status != 408 || fmt.Sprint(p.Violated) != "["+kind+"]" {
			t.Errorf("%s: a refusal is %+v, want the policy %q violated", kind, p, kind)
		}
		if kind == "semaphore" || kind == "lock" {
			continue
		}
		shared().want(t, many+"/acquire?limits=1/24h,5/2400h", "204")
		p = ask(many + "/peek")
		if p.Type != exceeded || fmt.Sprint(p.Violated) != "[1/24h]" {
			t.Errorf("%s: a refusal by one of two limits is %+v, want only 1/24h violated", kind, p)
		}
		others := map[string]int{"/cancel?key=x": 409, "/peek?cost=0&x": 400, "x/peek": 404}
		for request, status := range others {
			if p := ask(many + request); p.Type != "about:blank" || p.Violated != nil || p.Status != status {
				t.Errorf("%s = %+v, want %d and no policy", request, p, status)
			}
		}
	}
	a := shared().get(t, "/v1/event/"+fresh(t)+"/wait?maxwait=0", "Accept: application/json")
	if !a.is(`408 {"type":"about:blank",…`) || strings.Contains(a.body, "violated") {
		t.Errorf("a refusal by what has no policy = %s, want none named", a)
	}
}

// The metrics of limiters are by kind, operation and outcome, whatever their names.
func TestLimiterMetrics(t *testing.T) {
	t.Parallel()
	s := start(t)
	for i := range 20 {
		for _, op := range []string{"acquire?maxwait=0", "peek?cost=0", "delay", "reserve", "cancel?key=k",
			"refund", "reset", "stats"} {
			s.get(t, fmt.Sprintf("/v1/pace/n%d/%s", i, op))
		}
	}
	lines := strings.Split(s.get(t, "/metrics").body, "\n")
	count := 0
	for _, line := range lines {
		if strings.HasPrefix(line, `gatehouse_requests_total{kind="pace"`) {
			count++
		}
	}
	want := `gatehouse_requests_total{kind="pace",op="reserve",outcome="granted",protocol="http"} 20`
	if count != 8 || !slices.Contains(lines, want) {
		t.Errorf("metrics have %d lines of kind pace, want 8 and among them %s:\n%s",
			count, want, strings.Join(lines, "\n"))
	}
}
