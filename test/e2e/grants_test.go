package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// grantBody is the body of a request, with its length in front, as it comes behind other headers.
func grantBody(body string) string {
	return fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// postJSON is a POST on the wire.
func postJSON(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\n%s", path, grantBody(body))
}

// post makes one POST on a connection of its own.
func (s *server) post(t *testing.T, path, body string) *answer {
	t.Helper()
	c := s.dial(t)
	c.send(postJSON(path, body))
	a := c.answer()
	_ = c.Close()
	return a
}

// wantPost makes one POST, which must be answered as the pattern says.
func (s *server) wantPost(t *testing.T, path, body, pattern string) *answer {
	t.Helper()
	a := s.post(t, path, body)
	if !a.is(pattern) {
		t.Errorf("%s %s = %s, want %s", path, body, a, pattern)
	}
	return a
}

// waitingGrants waits until so many requests wait in all of a server.
func (s *server) allWaiting(t *testing.T, count int) {
	t.Helper()
	until(t, fmt.Sprintf("%d wait", count), func() bool {
		return s.figure(t, "gatehouse_waiting") == float64(count)
	})
}

// grantSteps are what becomes of a few grants, in their order. A line is a request below /v1, with its body
// if it is a POST, and the answer; {} is a name.
const grantSteps = `
	grants {"id":"{}",{all}} -> 200 {"id":"{}","fence":…,"expires_in":…,"want":[{figures}]}
	lock/{}/acquire?key=me&maxwait=0 -> 408
	lock/{}/release?key={} -> 409
	semaphore/{}/acquire?key=me&maxwait=0 -> 200 me
	semaphore/{}/release?key=me -> 204
	grants {"maxwait":0,"want":[{"gcra":"{}","cost":2},{"lock":"{}"}]} -> 429 …"binding":{"lock":"{}",…
	gcra/{}/peek?cost=4 -> 204
	grants {"id":"{}",{all}} -> 200 {"id":"{}",…
	gcra/{}/peek?cost=4 -> 204
	grants {"id":"{}","want":[{"lock":"{}"}]} -> 409 …"code":"conflict"…
	grants/{}/renew {"expires":600000,"fence":1} -> 409
	grants/{}/renew {"expires":600000} -> 200 …
	grants/{}/settle {"gcra/{}":3} -> 200 …"cost":3,…"remaining":2,…
	grants/{}/settle {"gcra/{}":0} -> 200 …"cost":0,…"remaining":5,…
	grants/{}/settle {"gcra/{}":0} -> 200 …"cost":0,…"remaining":5,…
	grants/{}/settle {"gcra/other":1} -> 400
	grants/{}/topup {"gcra/{}":2} -> 200 …"cost":2,…"remaining":3,…
	grants/{}/topup {"gcra/{}":4} -> 429 …
	grants/{} -> 200 …"ended":false,…"cost":2…
	grants/{}/release {"gcra/{}":4} -> 200 …"expires_in":0,…"cost":4,…"remaining":1,…
	grants/{}/release {none} -> 409 …
	grants/{}/settle {"gcra/{}":1} -> 409 …
	grants/{}/renew {none} -> 409 …
	grants/{} -> 200 …"expires_in":0,"ended":true,…
	grants/{}-3 -> 404 …"code":"missing"…
	grants/{}-3/release {none} -> 404 …
	lock/{}/acquire?key=me&maxwait=0 -> 200 me
	semaphore/{}/acquire?key=me&maxwait=0&cost=2 -> 200 me
	gcra/{}/peek?cost=1 -> 204
	gcra/{}/peek?cost=2 -> 408
	grants {"id":"{}-4","expires":50,"on-expiry":"zero","want":[{month}]} -> 200 …
	fixedwindow/{}/acquire?cost=1&maxwait=20000 -> 204
	grants/{}-4/settle {"fixedwindow/{}":1} -> 409 …
	grants {"maxwait":0,"want":[{"fixedwindow":"{}"},{"gcra":"{}-n"}]} -> 200 {"want":[{"fixedwindow":"{}",…
	fixedwindow/{}/peek?cost=3 -> 204
	grant/{}/release -> 404
	grant/{}/stats -> 404`

// A grant is taken, kept, corrected and ended on each store, under the names that single calls use.
func TestGrantSteps(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		name := fresh(t)
		one := strings.NewReplacer("{}", name)
		in := strings.NewReplacer("{}", name, "{none}", "{}", "{all}", one.Replace(`"want":[`+
			`{"gcra":"{}","size":5,"interval":3600000},{"semaphore":"{}","size":2},{"lock":"{}"}]`),
			"{month}", one.Replace(`{"fixedwindow":"{}","size":5,"interval":"month","cost":5}`),
			"{figures}", one.Replace(`{"gcra":"{}","cost":1,"limit":5,"remaining":4,…},`+
				`{"semaphore":"{}","cost":1,"limit":2,"remaining":1,…},`+
				`{"lock":"{}","cost":1,"limit":1,"remaining":0,…}`))
		for line := range strings.SplitSeq(strings.TrimSpace(grantSteps), "\n") {
			request, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
			path, body, isPost := strings.Cut(request, " ")
			path, want = in.Replace("/v1/"+path), in.Replace(want)
			if isPost {
				s.wantPost(t, path, in.Replace(body), want)
			} else {
				s.want(t, path, want)
			}
		}
	})
}

// A grant waits for all of its names, holds nothing meanwhile, and lets others pass.
func TestGrantWaitsForAll(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		s.want(t, "/v1/lock/a/acquire?key=first&expires=0", "200 first")
		s.want(t, "/v1/lock/b/acquire?key=first&expires=0", "200 first")
		c := s.dial(t)
		c.send(postJSON("/v1/grants",
			`{"id":"w","want":[{"lock":"a"},{"lock":"b"},{"semaphore":"s","size":1}]}`) +
			rawRequest("/v1/counter/behind/count"))
		s.allWaiting(t, 1)
		s.want(t, "/v1/semaphore/s/acquire?key=passes&maxwait=20000", "200 passes")
		s.want(t, "/v1/semaphore/s/release?key=passes", "204")
		s.want(t, "/v1/lock/a/release?key=first", "204")
		s.want(t, "/v1/lock/a/acquire?key=passes&maxwait=20000", "200 passes")
		s.want(t, "/v1/lock/b/release?key=first", "204")
		s.want(t, "/v1/lock/a/release?key=passes", "204")
		if a := c.answer(); !a.is(`200 {"id":"w",…`) || a.header.Get("Gatehouse-Fence") == "" {
			t.Errorf("the grant = %s, want 200", a)
		}
		if a := c.answer(); !a.is("200 1") {
			t.Errorf("the request behind it = %s, want 200 1", a)
		}
		s.wantPost(t, "/v1/grants", `{"id":"late","maxwait":50,"want":[{"lock":"c"},{"lock":"b"}]}`,
			`429 …not granted within maxwait=50 ms: lock/b is full: 1 of 1 held…`)
		s.want(t, "/v1/lock/c/acquire?key=k&maxwait=0", "200 k")
		s.allWaiting(t, 0)
	})
}

// Two that wait with one id share the answer, and one of them may leave.
func TestGrantsThatWaitWithOneID(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, leaves := range []bool{false, true} {
		name := fresh(t)
		s.want(t, "/v1/lock/"+name+"/acquire?key=first", "200 first")
		body := fmt.Sprintf(`{"id":%q,"want":[{"lock":%[1]q}]}`, name)
		one, two := s.dial(t), s.dial(t)
		one.send(postJSON("/v1/grants", body))
		s.allWaiting(t, 1)
		two.send(postJSON("/v1/grants", body))
		s.allWaiting(t, 2)
		if leaves {
			one.hangUp()
			s.allWaiting(t, 1)
		}
		s.want(t, "/v1/lock/"+name+"/release?key=first", "204")
		fences := make(map[string]bool)
		for _, c := range []*conn{one, two} {
			if c == one && leaves {
				continue
			}
			a := c.answer()
			if !a.is("200 …") {
				t.Errorf("a grant that waited = %s, want 200", a)
			}
			fences[a.header.Get("Gatehouse-Fence")] = true
		}
		if len(fences) != 1 {
			t.Errorf("two with one id have fences %v, want one", fences)
		}
		s.wantPost(t, "/v1/grants/"+name+"/release", "", "200 …")
		s.want(t, "/v1/lock/"+name+"/acquire?key=next&maxwait=0", "200 next")
	}
}

// A client that leaves while its grant waits, or just then, keeps nothing of any name.
func TestGrantOfAClientThatLeaves(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		keeper := s.dial(t)
		for round := range 15 {
			name := fmt.Sprintf("n%d", round)
			keeper.ask("/v1/lock/" + name + "/acquire?key=first&expires=0")
			keeper.answer()
			gone := s.dial(t)
			gone.send(postJSON("/v1/grants", fmt.Sprintf(
				`{"expires":3600000,"want":[{"lock":%q},{"fixedwindow":%[1]q,"size":1,"interval":"month"}]}`,
				name)))
			switch round % 5 {
			case 0: // before it is looked at, or soon after
				gone.hangUp()
			case 1:
				s.allWaiting(t, 1)
				gone.hangUp()
			case 2:
				s.allWaiting(t, 1)
				_ = gone.CloseWrite()
			case 3:
				s.allWaiting(t, 1)
				_ = gone.SetLinger(0)
				_ = gone.Close()
			case 4: // the server sees it no earlier than the grant
				s.allWaiting(t, 1)
				keeper.ask("/v1/lock/" + name + "/release?key=first")
				gone.hangUp()
				keeper.answer()
			}
			if round%5 == 4 {
				continue // an answer that has reached the kernel is kept
			}
			s.allWaiting(t, 0)
			keeper.ask("/v1/lock/" + name + "/release?key=first")
			keeper.answer()
			s.want(t, "/v1/lock/"+name+"/acquire?key=next&maxwait=20000", "200 next")
			s.want(t, "/v1/fixedwindow/"+name+"/acquire?size=1&interval=month&maxwait=20000", "204")
		}
		s.allWaiting(t, 0)
	})
}

// One grant is one through each door: what one began the other ends.
func TestGrantsThroughBothDoors(t *testing.T) {
	t.Parallel()
	s := start(t)
	redis := dialRedis(t, s.redisAddress(t))
	s.wantPost(t, "/v1/grants", `{"id":"a","want":[{"gcra":"g","size":5,"interval":3600000},{"lock":"l"}]}`,
		"200 …")
	redis.want("GH.GRANT ID a WANT gcra/g SIZE 5 INTERVAL 3600000 WANT lock/l", "[granted 1 id a fence …")
	redis.want("GH.GRANT MAXWAIT 0 WANT lock/l", "null")
	redis.want("GH.GRANT MAXWAIT 0 WANT lock/l WITH DETAILS", "[granted 0 retry_after … binding lock/l "+
		"decision d… want […")
	redis.want("GH.SETTLE grant/a gcra/g 4", "[granted 1 … cost 4 limit 5 remaining 1 …")
	redis.want("GH.TOPUP grant/a gcra/g 2", "null")
	redis.want("GH.PEEK grant/a", "[granted 1 id a … ended 0 want [[name gcra/g cost 4…")
	redis.want("GH.RELEASE grant/a FENCE 1", "-CONFLICT …")
	redis.want("GH.RELEASE grant/a gcra/g 1", "[granted 1 …")
	s.want(t, "/v1/gcra/g/peek?cost=4", "204")
	s.wantPost(t, "/v1/grants/a/release", "", "409 …")
	redis.want("GH.RENEW grant/a", "-CONFLICT …")
	redis.want("GH.RENEW grant/b", "-NOTFOUND …")

	redis.want("GH.ACQUIRE lock/m KEY first", "first")
	waits, gone := dialRedis(t, s.redisAddress(t)), dialRedis(t, s.redisAddress(t))
	waits.send("GH.GRANT ID w WANT lock/m WANT gcra/g", "PING")
	s.allWaiting(t, 1)
	gone.send("GH.GRANT ID x WANT lock/m")
	s.allWaiting(t, 2)
	_ = gone.Close()
	s.allWaiting(t, 1)
	redis.want("GH.RELEASE lock/m KEY first", "OK")
	if got := waits.answer(); !matches("[granted 1 id w …", got) {
		t.Errorf("the grant that waited = %s, want it", got)
	}
	if got := waits.answer(); got != "PONG" {
		t.Errorf("behind it came %s, want PONG", got)
	}
	s.want(t, "/v1/grants/w", `200 {"id":"w",…`)
	s.want(t, "/v1/grants/x", "404")
}

// When the server stops, grants that wait are told so, and nothing is taken.
func TestSignalAnswersGrants(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.want(t, "/v1/lock/l/acquire?key=first", "200 first")
	c, redis := s.dial(t), dialRedis(t, s.redisAddress(t))
	c.send(postJSON("/v1/grants", `{"want":[{"lock":"l"}]}`))
	redis.send("GH.GRANT WANT lock/l")
	s.allWaiting(t, 2)
	if err := s.stop(); err != nil {
		t.Error(err)
	}
	if a := c.answer(); !a.is(`503 …"code":"unavailable"…`) || a.header.Get("Retry-After") == "" {
		t.Errorf("a grant that waited when the server stopped = %s, want 503", a)
	}
	if got := redis.answer(); !strings.HasPrefix(got, "-UNAVAILABLE") {
		t.Errorf("a grant that waited when the server stopped = %s, want -UNAVAILABLE", got)
	}
}

// Of five parallel calls of 663 tokens exactly what fits passes.
func TestParallelGrantsAreNeverAboveTheLimit(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		for rule, want := range map[string]int{
			`"size":1000`: 1, `"size":1326`: 2, `"size":100,"fit":"clip"`: 1, `"size":3315`: 5,
			`"size":100`: 0,
		} {
			name := fresh(t)
			var passed sync.Map
			var all sync.WaitGroup
			for i := range 5 {
				all.Go(func() {
					want := fmt.Sprintf(`{"slidinglog":%q,%s,"interval":3600000,"cost":663},`+
						`{"semaphore":%[1]q,"size":5}`, name, rule)
					a := s.post(t, "/v1/grants", fmt.Sprintf(`{"id":"%s-%d","maxwait":0,"want":[%s]}`, name,
						i, want))
					if a.status == http.StatusOK {
						passed.Store(i, true)
					}
				})
			}
			all.Wait()
			got := 0
			passed.Range(func(any, any) bool { got++; return true })
			if held := s.stat(t, "semaphore/"+name, "held"); got != want || held != want {
				t.Errorf("of five calls of 663 under %s, %d passed and %d hold, want %d", rule, got, held,
					want)
			}
		}
	})
}

// A batch of a thousand answers what each command alone would be answered with details=true.
func TestBatchIsAsSingleCalls(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		var commands []string
		for i := range 1000 {
			commands = append(commands, fmt.Sprintf([...]string{
				`{"counter":"c%d","op":"count"}`, `{"gcra":"g%d","op":"acquire","size":3,"interval":3600000}`,
				`{"lock":"l%d","op":"acquire","key":"k"}`, `{"semaphore":"s%d","op":"release","key":"k"}`,
			}[i%4], i%40))
		}
		a := s.post(t, "/v1/batch", `{"commands":[`+strings.Join(commands, ",")+`]}`)
		var got struct {
			Answers []struct {
				Outcome string
				Value   int
			}
		}
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || len(got.Answers) != 1000 {
			t.Fatalf("a batch of 1000 = %.200s, %v, want as many answers", a, err)
		}
		seen := make(map[int]int)
		for i, answer := range got.Answers {
			seen[i%40]++
			n := seen[i%40]
			want := [...]string{"granted", "refused", "granted", "conflict"}[i%4]
			if i%4 == 1 && n <= 3 {
				want = "granted"
			}
			if answer.Outcome != want || i%4 == 0 && answer.Value != n {
				t.Fatalf("answer %d to %s = %+v, want %s", i, commands[i], answer, want)
			}
		}
		s.want(t, "/v1/counter/c0/value", "200 "+strconv.Itoa(25))
	})
}

// A grant ends at its time, and no earlier, on each store: its slots are free then, for who waits as well.
func TestGrantEnds(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		const length = 400 * time.Millisecond
		begun := time.Now()
		s.wantPost(t, "/v1/grants", fmt.Sprintf(
			`{"id":"a","expires":%d,"want":[{"lock":"l"},{"semaphore":"s","size":1}]}`,
			length.Milliseconds()), "200 …")
		c := s.dial(t)
		c.send(postJSON("/v1/grants", `{"id":"b","want":[{"semaphore":"s"},{"lock":"l"}]}`))
		if a := c.answer(); !a.is(`200 {"id":"b",…`) {
			t.Errorf("who waited for the end = %s, want 200", a)
		}
		if took := time.Since(begun); took < length {
			t.Errorf("a grant of %s ended after %s", length, took)
		}
		s.want(t, "/v1/grants/a", `200 …"ended":true…`)
	})
}
