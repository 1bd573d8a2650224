package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// figures are the stats after some requests. What is counted in time is only there.
var figures = []struct{ kind, lines, want string }{
	{"tokenbucket", `
		2x tokenbucket/{}/acquire?size=2&interval=60000 -> 204
		tokenbucket/{}/acquire?size=2&interval=60000&maxwait=0 -> 408
		tokenbucket/{}/acquire?size=2&interval=60000&maxwait=50 -> 408
		w1: tokenbucket/{}/acquire?size=2&interval=60000`,
		"acquired=2 timed_out=2 total_wait_time=0 average_wait_time=0 created_at=… " +
			"size=2 interval=60000 available=0 waiting=1"},
	{"semaphore", `
		semaphore/{}/acquire?size=2&key=a -> 200
		semaphore/{}/acquire?size=2&key=a -> 200
		semaphore/{}/acquire?size=2&key=b -> 200
		semaphore/{}/acquire?size=2&maxwait=0 -> 408
		semaphore/{}/release?key=x -> 409
		semaphore/{}/release?key=b -> 204
		semaphore/{}/acquire?size=2&key=c&expires=1 -> 200
		50ms pass
		semaphore/{}/release?key=c -> 409`,
		"acquired=3 reacquired=1 released=1 expired=1 max_ever_held=2 timed_out=1 " +
			"total_wait_time=0 average_wait_time=0 created_at=… size=2 held=1 holders=1 waiting=0"},
	{"lock", `
		lock/{}/acquire?key=a -> 200
		lock/{}/acquire?maxwait=0 -> 408
		lock/{}/release?key=a -> 204`,
		"acquired=1 reacquired=0 released=1 expired=0 max_ever_held=1 timed_out=1 " +
			"total_wait_time=0 average_wait_time=0 created_at=… size=1 held=0 holders=0 waiting=0"},
	{"event", `
		w1: event/{}/wait
		event/{}/wait?maxwait=0 -> 408
		event/{}/send -> 204
		w1 -> 204
		event/{}/wait -> 204`,
		"waited=2 timed_out=1 triggered=1 total_wait_time=… average_wait_time=… created_at=… waiting=0"},
	{"watchdog", `
		watchdog/{}/kick?expires=0 -> 204
		watchdog/{}/wait -> 204
		watchdog/{}/kick -> 204
		watchdog/{}/wait?maxwait=0 -> 408
		w1: watchdog/{}/wait`,
		"waited=1 timed_out=1 kicks=2 last_kick=… total_wait_time=0 average_wait_time=0 created_at=… " +
			"fired=0 waiting=1"},
	{"counter", `
		3x counter/{}/count?amount=5 -> 200
		counter/{}/reset?value=9223372036854775806 -> 204
		counter/{}/count -> 200
		counter/{}/count -> 409`,
		"value=9223372036854775807 increments=4 resets=1 created_at=… waiting=0"},
	{"barrier", `
		barrier/{}/wait?size=2&maxwait=20 -> 408
		w1: barrier/{}/wait?size=2
		barrier/{}/wait?size=2&maxwait=0 -> 204
		w1 -> 204`,
		"total_waited=2 timed_out=1 triggered=1 size=2 total_wait_time=… average_wait_time=… created_at=… " +
			"waiting=0"},
}

func TestStats(t *testing.T) {
	t.Parallel()
	for _, f := range figures {
		t.Run(f.kind, func(t *testing.T) {
			t.Parallel()
			name := fresh(t)
			playOn(t, shared(), strings.ReplaceAll(f.lines, "{}", name))
			a := shared().get(t, "/v1/"+f.kind+"/"+name+"/stats")
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type of stats = %q, want application/json", got)
			}
			compareStats(t, shared().stats(t, f.kind+"/"+name), f.want)
		})
	}
}

func compareStats(t *testing.T, got map[string]any, want string) {
	t.Helper()
	for field := range strings.FieldsSeq(want) {
		name, value, _ := strings.Cut(field, "=")
		if there, ok := got[name]; !ok || !matches(value, fmt.Sprint(there)) {
			t.Errorf("stat %s = %v, want %s", name, there, value)
		}
		if strings.HasSuffix(name, "_at") || strings.HasPrefix(name, "last_") {
			at, err := time.Parse(time.RFC3339, fmt.Sprint(got[name]))
			if err != nil || time.Since(at) < 0 || time.Since(at) > patience+time.Second {
				t.Errorf("stat %s = %v, want a moment ago in RFC 3339", name, got[name])
			}
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("stats have %v besides, want no more", got)
	}
}

// Waiting times are milliseconds, and their average is over those who were let through.
func TestWaitingTimes(t *testing.T) {
	t.Parallel()
	s, name := shared(), fresh(t)
	place := "/v1/semaphore/" + name
	s.want(t, place+"/acquire?key=a", "200")
	w := s.wait(t, place+"/acquire?key=b")
	s.passes(t, 300*time.Millisecond)
	s.want(t, place+"/release?key=a", "204")
	w.answer()
	took := time.Since(w.asked)
	total := s.stat(t, "semaphore/"+name, "total_wait_time")
	average := s.stat(t, "semaphore/"+name, "average_wait_time")
	if total < 300 || total > int(took.Milliseconds()) {
		t.Errorf("total_wait_time = %d, want 300 to %d", total, took.Milliseconds())
	}
	if acquired := 2; average != total/acquired {
		t.Errorf("average_wait_time = %d, want half of %d: one of two waited", average, total)
	}
}

func TestStatsOfNobody(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		name := fresh(t)
		for range 2 { // asking does not create it
			shared().want(t, "/v1/"+kind+"/"+name+"/stats", "404 "+kind+"/"+name+" does not exist")
		}
		shared().want(t, "/v1/"+kind+"/"+name+"/stats?size=x", "400")
	}
}

var kinds = []string{"tokenbucket", "semaphore", "lock", "event", "watchdog", "counter", "barrier",
	"gcra", "fixedwindow", "slidingwindow", "slidinglog", "pace"}

// Metrics are for everybody to read: no name, key or message is in them.
func TestMetricsHoldNoNames(t *testing.T) {
	t.Parallel()
	s := start(t)
	playOn(t, s, `
		counter/nametag/count -> 200
		semaphore/nametag/acquire?key=keytag -> 200
		event/nametag/send?message=messagetag -> 204
		counter/nametag/count?idtag=1 -> 400
		/nothing/nametag -> 404`)
	a := s.get(t, "/metrics")
	for _, secret := range []string{"nametag", "keytag", "messagetag", "idtag"} {
		if strings.Contains(a.body, secret) {
			t.Errorf("metrics hold %s, want no names in them", secret)
		}
	}
	lines := strings.Split(a.body, "\n")
	for _, want := range []string{
		`gatehouse_requests_total{kind="counter",op="count",outcome="granted",protocol="http"} 1`,
		`gatehouse_requests_total{kind="counter",op="count",outcome="invalid",protocol="http"} 1`,
		`gatehouse_requests_total{kind="event",op="send",outcome="granted",protocol="http"} 1`,
		`gatehouse_http_responses_total{status="200"} 2`,
		`gatehouse_http_responses_total{status="204"} 1`,
		"gatehouse_names 3",
		"gatehouse_waiting 0",
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("metrics have no line %s; they are\n%s", want, a.body)
		}
	}
}

// Who accepts JSON is refused in JSON.
func TestRefusalsAsJSON(t *testing.T) {
	t.Parallel()
	place := "/v1/semaphore/" + fresh(t)
	shared().want(t, place+"/acquire", "200")
	for request, status := range map[string]int{
		place + "/acquire?maxwait=0":  408,
		place + "/acquire?maxwait=20": 408,
		place + "/release?key=x":      409,
		place + "/release":            400,
		place + "x/stats":             404,
		"PUT " + place + "/acquire":   405,
		"/nothing":                    404,
	} {
		for _, accept := range []string{"application/json", "text/html, application/problem+json;q=0.9"} {
			a := shared().get(t, request, "Accept: "+accept)
			var problem struct {
				Type, Title, Detail string
				Status              int
			}
			err := json.Unmarshal([]byte(a.body), &problem)
			if err != nil || a.status != status || problem.Status != status || problem.Detail == "" ||
				problem.Title == "" || a.header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s accepting %s = %s, want %d with an application/problem+json that says why",
					request, accept, a, status)
			}
		}
	}
}
