package e2e

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// What a third party has answered holds back everybody.
var feedbacks = []script{
	{"a report needs a limit, in the request or in force", `
		KIND/{}/feedback?status=429 -> 404 KIND/{} does not exist
		KIND/{}/feedback?status=200&size=5&LONG -> 204 [RateLimit: "KIND";r=5…]
		KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/feedback?status=429&cost=3 -> 204 "" [RateLimit: "KIND";r=0…]`},
	// A pause is a tenth longer at most.
	{"a pause is told by refusals, peek, statistics and details", `
		KIND/{}/acquire?size=5&LONG -> 204
		KIND/{}/feedback?status=429&retry-after=63000 -> 204
		KIND/{}/acquire?maxwait=0 -> 408 [Retry-After: …] [RateLimit: "KIND";r=0…]
		KIND/{}/acquire?maxwait=0 -> 408 … is paused until …Z, reported with 429; acquire not …
		KIND/{}/peek -> 408 KIND/{} is paused until …Z, reported with 429; peek not granted; …
		KIND/{}/delay -> 200
		KIND/{}/stats -> 200 …"available":0…"paused_with":429,"paused_for":6…,"ramp_for":9…
		KIND/{}/peek?details=true -> 200 …"paused_with":429,"paused_for":6…,"ramp_for":9…is paused until …
		KIND/{}/peek?details=true -> 200 {"outcome":"refused","granted":false,…"remaining":0,…
		KIND/{}/reset -> 204 [RateLimit: "KIND";r=0…]
		KIND/{}/peek -> 408 …is paused until …`},
	{"503 pauses with a time alone, and other answers never do", `
		KIND/{}/acquire?size=5&LONG -> 204
		KIND/{}/feedback?status=503 -> 204
		KIND/{}/feedback?status=503&retry-after= -> 204
		KIND/{}/feedback?status=500&retry-after=60000 -> 204
		KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/feedback?status=503&retry-after=60000 -> 204
		KIND/{}/acquire?maxwait=0 -> 408 …is paused until …, reported with 503; …`},
	{"a smaller remaining is adopted, and a larger one is not", `
		KIND/{}/acquire?size=9&LONG -> 204 [RateLimit: "KIND";r=8…]
		KIND/{}/feedback?status=200&remaining=9&reset=60000 -> 204 [RateLimit: "KIND";r=8…]
		KIND/{}/feedback?status=200&remaining=2&reset=60000 -> 204 [RateLimit: "KIND";r=2…]
		KIND/{}/feedback?status=200&remaining=3&reset=60000&details=true -> 200 …"adopted":2,"adopted_for":…
		2x KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/acquire?maxwait=0 -> 408 … has 0 left until …Z, as was reported; …`},
	{"a waiting request is held", `
		KIND/{}/acquire?size=100&interval=1000&burst=99 -> 204
		KIND/{}/feedback?status=429&retry-after=200000 -> 204
		w1: KIND/{}/acquire
		w2: KIND/{}/acquire?cost=2
		KIND/{}/acquire?maxwait=50 -> 408 … is paused until …; acquire not granted within maxwait=50 ms; …
		w1 hangs up
		w2 hangs up`},
	{"a waiting request is let through when the ramp has room", `
		KIND/{}/acquire?size=100&interval=1000&burst=99 -> 204
		KIND/{}/feedback?status=429&retry-after=300 -> 204
		KIND/{}/acquire?maxwait=60000 -> 204
		KIND/{}/acquire?maxwait=60000&cost=2 -> 204`},
	{"a report is checked", `
		KIND/{}/acquire?size=5&LONG -> 204
		KIND/{}/feedback -> 400 status is missing, want that of the third party's answer, such as 429
		KIND/{}/feedback?status=99 -> 400 status is "99", want a whole number from 100 to 599
		KIND/{}/feedback?status=429&retry-after=-1 -> 400 retry-after is "-1", want a whole number of …
		KIND/{}/feedback?status=200&remaining=3 -> 400 remaining is "3" without a reset, want …
		KIND/{}/feedback?status=200&reset=3000 -> 204
		KIND/{}/acquire?maxwait=0 -> 204
		KIND/{}/acquire?maxwait=0&status=x -> 400`},
}

func TestFeedbacks(t *testing.T) {
	t.Parallel()
	playLimiters(t, limiters, feedbacks)
}

// --max-pause bounds every pause, over every protocol; each report without a time doubles it; and a POST is a
// report as a GET is.
func TestMaxPause(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-pause", "3s", "--resp", "localhost:0")
	c := dialRedis(t, s.redisAddress(t))
	c.want("GH.ACQUIRE gcra/api SIZE 600 INTERVAL 60000 BURST 599", "OK")
	began := time.Now()
	c.want("GH.FEEDBACK gcra/api STATUS 429 RETRY-AFTER 3600000 OWNER worker-3", "OK")
	s.wantPaused(t, "gcra/api", began, 3*time.Second)
	c.want("GH.PEEK gcra/api",
		"[granted 0 …paused_with 429 paused_by worker-3 paused_for … "+
			"ramp_for … detail gcra/api is paused until …Z, reported with 429 decision d…]")
	s.want(t, "/v1/gcra/api/peek?details=true", `200 …"paused_with":429,"paused_by":"worker-3",…`)
	c.want("GH.FEEDBACK gcra/api STATUS abc", "-INVALID status is \"abc\", want a whole number…")
	c.want("GH.FEEDBACK gcra/other STATUS 429", "-NOTFOUND gcra/other does not exist")
	c.want("GH.FEEDBACK lock/api STATUS 429", "-INVALID lock has no operation feedback")
	s.want(t, "/v1/gcra/api/acquire?maxwait=0", "408 …is paused until …, reported with 429; …")
	s.want(t, "/v1/gcra/next/acquire?size=600&interval=60000", "204")
	for _, seconds := range []int{1, 2, 3, 3} {
		began := time.Now()
		s.want(t, "/v1/gcra/next/feedback?status=429", "204")
		s.wantPaused(t, "gcra/next", began, time.Duration(seconds)*time.Second)
	}
	s.want(t, "/v1/gcra/next/feedback?status=200", "204")
	s.want(t, "/v1/gcra/api/acquire", "204")
}

// wantPaused sees that a limiter is paused for so long, and a tenth more at most, since a report that was
// sent after an instant.
func (s *server) wantPaused(t *testing.T, place string, since time.Time, length time.Duration) {
	t.Helper()
	left, err := s.stats(t, place)["paused_for"].(json.Number).Float64()
	least := length - time.Since(since) - time.Millisecond // the answer has whole milliseconds
	if got := time.Duration(left) * time.Millisecond; err != nil || got < least || got > length*11/10 {
		t.Errorf("%s is paused for %s, %v, want %s to a tenth more", place, got, err, least)
	}
}

// A pause that is reported at one server holds at the other, with counting in memory and in chunks too, and
// outlasts a server.
func TestFeedbackIsShared(t *testing.T) {
	t.Parallel()
	servers := startShared(t, redistest.Start(t), 2, patient...)
	a, b := servers[0], servers[1]
	for _, kind := range []string{"gcra", "fixedwindow", "slidinglog"} {
		name := "/v1/" + kind + "/api/"
		a.want(t, name+"acquire?size=9&interval=3600000", "204")
		b.want(t, name+"feedback?status=429&retry-after=60000", "204")
		a.want(t, name+"acquire?maxwait=0", "408 …is paused until …")
	}
	if err := a.stop(); err != nil {
		t.Fatal(err)
	}
	b.want(t, "/v1/gcra/api/peek", "408 …is paused until …")
}

// A pause outlasts the server on a disk.
func TestFeedbackIsOnDisk(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := start(t, "--store", "disk:"+dir)
	s.want(t, "/v1/gcra/api/acquire?size=9&interval=3600000", "204")
	s.want(t, "/v1/gcra/api/feedback?status=429&retry-after=60000&remaining=3&reset=60000", "204")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	s = start(t, "--store", "disk:"+dir)
	s.want(t, "/v1/gcra/api/peek", "408 …is paused until …, reported with 429; …")
	s.want(t, "/v1/gcra/api/stats", `200 …"paused_with":429,…"adopted":3,…`)
}
