package e2e

import (
	"bufio"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// parentSteps are requests with parents and what they are answered; {} is a name.
const parentSteps = `
	gcra/{}/peek?size=10&interval=3600000&{under} -> 204
	gcra/{}/delay?size=10&interval=3600000&cost=6&{under} -> 200 0
	fixedwindow/{}/peek -> 404
	gcra/{}/acquire?size=10&interval=3600000&cost=4&{under} -> 204
	gcra/{}/acquire?cost=4&maxwait=0&{under} -> 408 gcra/{}: acquire not granted at once: its parent …
	gcra/{}/acquire?cost=4&maxwait=0&refusal=429&{under} -> 429
	gcra/{}/peek?cost=6 -> 204
	fixedwindow/{}/peek?cost=2 -> 204
	fixedwindow/{}/peek?cost=3 -> 408
	tokenbucket/{}/peek?cost=2 -> 204
	tokenbucket/{}/peek?cost=3 -> 408
	gcra/{}/acquire?cost=1&details=true&{under} -> 200 …"remaining":1,…"binding":{"fixedwindow":"{}",…
	gcra/{}/acquire?cost=1&{under} -> 204
	gcra/{}/acquire?cost=1&maxwait=50&{under} -> 408 …within maxwait=50 ms: its parent …
	gcra/{}/peek?cost=4 -> 204
	gcra/{}/peek?cost=5 -> 408
	fixedwindow/{}/reset -> 204
	tokenbucket/{}/reset -> 204
	gcra/{}/acquire?cost=5&maxwait=0&{under} -> 408 …not granted at once: it allows no more itself…
	fixedwindow/{}/peek?cost=6 -> 204
	gcra/{}/reserve?{under} -> 400 parents is for acquire, peek and delay of limiters…
	semaphore/{}/acquire?{under} -> 400 parents is for acquire, peek and delay of limiters…`

// A name and its parents are charged together on every store.
func TestParents(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		name := fresh(t)
		in := strings.NewReplacer("{}", name,
			"{under}", "parents=fixedwindow/"+name+":6/1h;tokenbucket/"+name+":6/1h")
		for line := range strings.SplitSeq(strings.TrimSpace(parentSteps), "\n") {
			request, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
			s.want(t, "/v1/"+in.Replace(request), in.Replace(want))
		}
		s.wantPost(t, "/v1/batch", in.Replace(`{"commands":[{"gcra":"{}","op":"acquire",`+
			`"parents":"gcra/other:1/1s"}]}`), "200 …parents are for an acquire, a peek and a delay…")
	})
}

// However many requests come at once, no level lets more through than its own limit, and a refused request
// charges no level.
func TestParentsUnderLoad(t *testing.T) {
	t.Parallel()
	eachStore(t, noFlags, func(t *testing.T, s *server) {
		name := fresh(t)
		var work sync.WaitGroup
		var mu sync.Mutex
		granted := map[int]int{}
		for user := range 4 {
			for range 6 {
				work.Go(func() {
					path := "/v1/fixedwindow/" + name + string(rune('a'+user)) +
						"/acquire?size=4&interval=day&maxwait=0&parents=fixedwindow/" + name + ":10/day"
					a := s.get(t, path)
					mu.Lock()
					defer mu.Unlock()
					if a.status == http.StatusNoContent {
						granted[user]++
					} else if a.status != http.StatusRequestTimeout {
						t.Errorf("%s = %s", path, a)
					}
				})
			}
		}
		work.Wait()
		sum := 0
		for user, n := range granted {
			sum += n
			if n > 4 {
				t.Errorf("user %d was granted %d of 4", user, n)
			}
		}
		if sum != 10 {
			t.Errorf("%d were granted of 10", sum)
		}
		// Between them the users were charged exactly what the parent was.
		left := 0
		for user := range 4 {
			path := "/v1/fixedwindow/" + name + string(rune('a'+user)) + "/peek?size=4&interval=day&cost="
			for cost := 4; cost > 0; cost-- {
				if s.get(t, path+string(rune('0'+cost))).status == http.StatusNoContent {
					left += cost
					break
				}
			}
		}
		if left != 6 {
			t.Errorf("the users have %d left together, want 6", left)
		}
	})
}

// Parents work the same over RESP, and a refused request is shown the owner of the grant that holds.
func TestParentsOverRESP(t *testing.T) {
	t.Parallel()
	s := start(t, "--resp", "localhost:0")
	c := dialRedis(t, s.redisAddress(t))
	ask := func(words, want string) {
		t.Helper()
		c.send(words)
		line, err := c.reader.ReadString('\n')
		if err != nil || strings.TrimSpace(line) != want {
			t.Errorf("%s = %q, %v, want %s", words, line, err, want)
		}
	}
	ask("GH.ACQUIRE gcra/u SIZE 5 INTERVAL 3600000 COST 3 PARENTS gcra/team:4/1h", "+OK")
	ask("GH.ACQUIRE gcra/u COST 2 MAXWAIT 0 PARENTS gcra/team:4/1h", "$-1")
	ask("GH.DELAY gcra/u COST 1 PARENTS gcra/team:4/1h", ":0")
	ask("GH.ACQUIRE gcra/u COST 2 MAXWAIT 0", "+OK")
	ask("GH.ACQUIRE gcra/u PARENTS team", `-INVALID parents has "team", want KIND/NAME:LIMITS such as `+
		`gcra/org-7:2000/1m`)
	ask("GH.GRANT ID g OWNER train-a HOST g1 WANT lock/l", "*10")
	s.wantPost(t, "/v1/grants", `{"maxwait":0,"want":[{"lock":"l"}]}`,
		`429 …"detail":"acquire of 1 names not granted at once: lock/l is full: 1 of 1 held, train-a for …`)
	s.want(t, "/v1/lock/l/holders", `200 …"owner":"train-a","host":"g1",…"grant":"g"…`)
}

// A waiting grant receives its places in line as events.
func TestStreamOfAGrant(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.wantPost(t, "/v1/grants", `{"id":"first","want":[{"lock":"l"}],"owner":{"name":"train-a"}}`, "200")
	stream := func(body string) *http.Response {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://"+s.address+"/v1/grants", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Accept", "text/event-stream")
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := stream(`{"want":[{"lock":"l"}]}`)
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotAcceptable {
		t.Errorf("a stream without an id = %d, want 406", resp.StatusCode)
	}
	resp = stream(`{"id":"second","want":[{"lock":"l"},{"semaphore":"s"}]}`)
	defer func() { _ = resp.Body.Close() }()
	seen, released := "", false
	for events := bufio.NewScanner(resp.Body); events.Scan(); {
		seen += events.Text() + "\n"
		if !released && strings.Contains(seen, `{"lock":"l","id":"w`) &&
			strings.Contains(seen, `{"semaphore":"s",`) {
			released = true
			s.wantPost(t, "/v1/grants/first/release", "", "200")
		}
	}
	if !matches(`event: waiting…"grant":"second","position":1,…event: granted`+"\n"+
		`data: {"id":"second",…,"want":[{"lock":"l",…},{"semaphore":"s",…}]}`+"\n\n", seen) {
		t.Errorf("the events are %s", seen)
	}
}
