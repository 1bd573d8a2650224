package e2e

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// details are requests with details=true, in their order, each with a name of its own for a row that begins
// with a fact. Every outcome that can be had from outside is there.
var details = []struct{ fact, request, want string }{
	{"a token", "tokenbucket/{}/acquire?size=2&interval=60000",
		`{"outcome":"granted","granted":true,"limit":2,"remaining":1,"retry_after":0,"reset_after":…}`},
	{"", "tokenbucket/{}/acquire?size=2&interval=60000&cost=2&maxwait=0",
		`{"outcome":"refused","granted":false,"limit":2,"remaining":1,"retry_after":…,"reset_after":…,` +
			`"detail":"tokenbucket/{}: acquire not granted …; try again in … ms"}`},
	{"", "tokenbucket/{}/acquire?size=2&interval=60000&cost=2&maxwait=50",
		`{"outcome":"refused",…` +
			`"detail":"tokenbucket/{}: acquire not granted within maxwait=50 ms; try again …"}`},
	{"", "tokenbucket/{}/peek?cost=3", `{"outcome":"conflict","granted":false,"detail":"tokenbucket/{} …"}`},
	{"", "tokenbucket/{}/refund",
		`{"outcome":"granted","granted":true,"limit":2,"remaining":2,"retry_after":0,"reset_after":…}`},
	{"", "tokenbucket/{}/stats",
		`{"outcome":"granted","granted":true,…,"stats":{"acquired":1,"timed_out":2,…}}`},
	{"a size of 0", "gcra/{}/acquire?size=0&maxwait=0",
		`{"outcome":"refused","granted":false,"limit":0,"remaining":0,"retry_after":-1,…}`},
	{"several limits", "gcra/{}/acquire?limits=1/1m,5/1h",
		`{"outcome":"granted","granted":true,"limit":1,"remaining":0,"retry_after":0,"reset_after":…,` +
			`"windows":[` +
			`{"limit":"1/1m","remaining":0,"retry_after":0,"reset_after":…},` +
			`{"limit":"5/1h","remaining":4,"retry_after":0,"reset_after":…}]}`},
	{"", "gcra/{}/delay", `{"outcome":"granted",…,"delay":…}`},
	{"", "gcra/{}/reserve?limits=1/1m,5/1h&key=a", `{"outcome":"granted",…,"delay":…}`},
	{"", "gcra/{}/cancel?key=a", `{"outcome":"granted",…}`},
	{"", "gcra/{}/cancel?key=a",
		`{"outcome":"conflict","granted":false,` +
			`"detail":"gcra/{} has no reservation of this key that lies ahead"}`},
	{"no such name", "gcra/{}/peek",
		`{"outcome":"missing","granted":false,"detail":"gcra/{} does not exist"}`},
	{"", "DELETE gcra/{}", `{"outcome":"missing","granted":false,"detail":"gcra/{} does not exist"}`},
	{"a slot", "semaphore/{}/acquire?size=1&key=a",
		`{"outcome":"granted","granted":true,"limit":1,"remaining":0,"retry_after":0,"key":"a","fence":…}`},
	{"", "semaphore/{}/acquire?size=1&key=b&maxwait=0",
		`{"outcome":"refused","granted":false,"limit":1,"remaining":0,"retry_after":…,` +
			`"key":"b","decision":"d…","detail":"…"}`},
	{"", "semaphore/{}/renew?key=a", `{"outcome":"granted",…"fence":…}`},
	{"", "semaphore/{}/release?key=b",
		`{"outcome":"conflict","granted":false,"detail":"semaphore/{} is not held with this key: …"}`},
	{"", "semaphore/{}/release?key=a", `{"outcome":"granted",…}`},
	{"", "DELETE semaphore/{}", `{"outcome":"granted",…}`},
	{"an event", "event/{}/wait?maxwait=0",
		`{"outcome":"refused","granted":false,"message":"","decision":"d…",` +
			`"detail":"event/{}: wait not granted …; only another …"}`},
	{"", "event/{}/send?message=a%3Cb", `{"outcome":"granted","granted":true}`},
	{"", "event/{}/wait", `{"outcome":"granted","granted":true,"message":"a…b"}`},
	{"", "event/{}/send", `{"outcome":"conflict","granted":false,"detail":"event/{} …"}`},
	{"a watchdog", "watchdog/{}/kick?expires=0", `{"outcome":"granted","granted":true}`},
	{"", "watchdog/{}/wait", `{"outcome":"granted","granted":true}`},
	{"a counter", "counter/{}/count?amount=-7", `{"outcome":"granted","granted":true,"value":-7}`},
	{"", "counter/{}/value", `{"outcome":"granted","granted":true,"value":-7}`},
	{"", "counter/{}/reset", `{"outcome":"granted","granted":true}`},
	{"a barrier", "barrier/{}/wait?size=1", `{"outcome":"granted","granted":true}`},
}

// With details=true every decision is 200 and an object, through GET and POST, with v1 and without, whatever
// Accept says.
func TestDetails(t *testing.T) {
	t.Parallel()
	name := ""
	for _, d := range details {
		if d.fact != "" {
			name = fresh(t)
		}
		request := strings.ReplaceAll(withDetails(d.request), "{}", name)
		want := strings.ReplaceAll(d.want, "{}", name)
		a := shared().get(t, request)
		if !a.is("200 " + want) {
			t.Errorf("%s = %s, want 200 %s", request, a, want)
		}
		if !json.Valid([]byte(a.body)) || a.header.Get("Content-Type") != "application/json" {
			t.Errorf("%s = %s of type %s, want JSON", request, a, a.header.Get("Content-Type"))
		}
	}
	name = fresh(t)
	for _, request := range []string{
		"/counter/{}/count?details=true", "POST /v1/counter/{}/count?DETAILS=true",
		"/v1/counter/{}/count?details=false&details=true",
	} {
		shared().want(t, strings.ReplaceAll(request, "{}", name),
			`200 {"outcome":"granted","granted":true,"value":…}`)
	}
	for _, accept := range []string{"application/json", "application/problem+json", "*/*"} {
		a := shared().get(t, "/v1/counter/"+name+"/value?details=false", "Accept: "+accept)
		if !a.is("200 3") {
			t.Errorf("without details, and Accept: %s = %s, want 200 3", accept, a)
		}
	}
}

// withDetails completes a path below /v1/ and adds the parameter.
func withDetails(request string) string {
	method := ""
	if rest, ok := strings.CutPrefix(request, "DELETE "); ok {
		method, request = "DELETE ", rest
	}
	separator := "?"
	if strings.Contains(request, "?") {
		separator = "&"
	}
	return method + path(request) + separator + "details=true"
}

// Who waits is answered the same way, and so is one whose name is deleted.
func TestDetailsOfWaiters(t *testing.T) {
	t.Parallel()
	name := fresh(t)
	w := shared().wait(t, "/v1/event/"+name+"/wait?details=true")
	shared().want(t, "/v1/event/"+name+"/send?message=now", "204")
	if a := w.answer(); !a.is(`200 {"outcome":"granted","granted":true,"message":"now"}`) {
		t.Errorf("a waiter = %s", a)
	}
	w = shared().wait(t, "/v1/barrier/"+name+"/wait?details=true")
	shared().want(t, "DELETE /v1/barrier/"+name, "204")
	if a := w.answer(); !a.is(`200 {"outcome":"deleted","granted":false,"detail":"barrier/` + name +
		` was deleted…"}`) {
		t.Errorf("a waiter at what was deleted = %s", a)
	}
	lock := shared().get(t, "/v1/lock/"+name+"/acquire?details=true")
	var got struct {
		Key   string
		Fence json.Number
	}
	if err := json.Unmarshal([]byte(lock.body), &got); err != nil || len(got.Key) != 36 ||
		lock.header.Get("Gatehouse-Fence") != got.Fence.String() {
		t.Errorf("an acquire without a key = %s with %v, want the key it made, and the fence of the header",
			lock, lock.header)
	}
}

// What is no decision is a problem, with a code in one word and, where it passes, when to try again.
func TestProblems(t *testing.T) {
	t.Parallel()
	name := fresh(t)
	s := start(t, "--max-names", "1", "--max-line", "1")
	s.want(t, "/v1/lock/full/acquire?expires=0", "200")
	const details, accept = "&details=true", "Accept: application/problem+json"
	for _, c := range []struct{ request, header, want string }{
		{"counter/{}/count?amount=x" + details, "",
			`400 {…"status":400,"detail":"amount is …","code":"invalid"}`},
		{"counter/{}/count?amount=x" + details, accept, `400 {…,"code":"invalid"}`},
		{"counter/{}/count?details=1", accept,
			`400 {…details is \"1\", want true or false","code":"invalid"}`},
		{"counter/{}/count?refusal=400", accept,
			`400 {…refusal is \"400\", want 408 or 429","code":"invalid"}`},
		{"counter/%00/count?id=" + details, "", `400 {…,"code":"invalid"}`},
		{"counter/{}/count?id=" + details, "",
			`503 {…"status":503,"detail":"…all 1 names of this server are in use…",` +
				`"code":"exhausted","retry_after_ms":1000}`},
		{"counter/{}/count", accept, `503 {…,"code":"exhausted","retry_after_ms":1000}`},
		{"counter/{}/count", "", `503 …all 1 names …`},
		{"lock/full/release?key=x", accept, `409 {…,"code":"conflict"}`},
		{"lock/none/stats", accept, `404 {…,"code":"missing"}`},
		{"lock/full/acquire?maxwait=0", accept,
			`408 {…"code":"refused","violated-policies":["lock"],"decision":"d…"}`},
		{"lock/full/acquire?maxwait=0", "", `408 …`},
		{"lock/full/acquire?maxwait=0&refusal=429", accept, `429 {…"status":429,…"code":"refused",…}`},
		{"nothing/x", accept, `404 {…,"code":"not_found"}`},
		{"lock/full", accept, `405 {…,"code":"method_not_allowed"}`},
		{"lock/full/stats", "Sec-Fetch-Site: cross-site|" + accept, `403 {…,"code":"forbidden"}`},
	} {
		request := "/v1/" + strings.ReplaceAll(c.request, "{}", name)
		var headers []string
		if c.header != "" {
			headers = strings.Split(c.header, "|")
		}
		if a := s.get(t, request, headers...); !a.is(c.want) {
			t.Errorf("%s with %q = %s, want %s", request, headers, a, c.want)
		}
	}
	var got struct {
		Retry int64 `json:"retry_after_ms"`
	}
	s.want(t, "DELETE /v1/lock/full", "204")
	until(t, "there is room for a name again", func() bool {
		return s.get(t, "/v1/lock/held/acquire").is("200")
	})
	a := s.get(t, "/v1/lock/held/acquire?maxwait=0", accept)
	if err := json.Unmarshal([]byte(a.body), &got); err != nil || got.Retry < 30000 || got.Retry > 60000 {
		t.Errorf("a refusal for a minute = %s, want up to 60000 as retry_after_ms", a)
	}
}

// A refusal is 408, or what the request or else the server's settings say; the server's limits are 503.
func TestRefusalStatus(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ flags, status string }{{"408", "408"}, {"429", "429"}} {
		s := start(t, "--refusal-status", c.flags, "--max-line", "1")
		s.want(t, "/v1/lock/l/acquire?key=a", "200")
		for query, want := range map[string]string{
			"maxwait=0": c.status, "maxwait=20": c.status, "maxwait=0&refusal=408": "408",
			"maxwait=0&refusal=429": "429", "maxwait=20&REFUSAL=429": "429",
		} {
			a := s.want(t, "/v1/lock/l/acquire?"+query, want)
			if a.header.Get("Retry-After") == "" || a.header.Get("RateLimit") == "" {
				t.Errorf("a refusal with %s has the headers %v, want Retry-After and RateLimit", query,
					a.header)
			}
		}
		for _, request := range []string{
			"/v1/gcra/g/peek?size=0", "/v1/gcra/g/delay?size=0", "/v1/gcra/g/reserve?size=0",
			"/lock/l/acquire?maxwait=0",
			"/v1/event/e/wait?maxwait=0", "/v1/watchdog/w/wait?maxwait=0", "/v1/barrier/b/wait?maxwait=0",
		} {
			s.want(t, request, c.status)
		}
		w := s.wait(t, "/v1/lock/l/acquire?maxwait=60000&key=b")
		s.want(t, "/v1/lock/l/acquire?refusal=429", "503 …1 requests wait in this line already…")
		s.want(t, "/v1/lock/l/release?key=a", "204")
		if a := w.answer(); !a.is("200 b") {
			t.Errorf("who waited = %s, want 200 b", a)
		}
	}
}

// Both protocols tell the same about a decision, under the same names.
func TestDetailsAreThoseOfRESP(t *testing.T) {
	t.Parallel()
	s := start(t)
	redis := dialRedis(t, s.redisAddress(t))
	for _, request := range []string{
		"tokenbucket/{}/acquire?size=2&interval=60000", "tokenbucket/{}/peek", "tokenbucket/{}/delay",
		"tokenbucket/{}/acquire?size=2&interval=60000&cost=2&maxwait=0",
		"gcra/{}/acquire?limits=1/1m,5/1h&maxwait=0",
		"gcra/{}/acquire?limits=1/1m,5/1h&maxwait=0", "pace/{}/reserve?size=1&interval=60000&key=a",
		"pace/{}/cancel?key=b", "semaphore/{}/acquire?size=2&key=a",
		"semaphore/{}/acquire?size=2&key=b&cost=2&maxwait=0",
		"semaphore/{}/renew?key=a", "semaphore/{}/release?key=a", "lock/{}/acquire?key=a",
		"event/{}/wait?maxwait=0",
		"event/{}/send?message=m", "event/{}/wait", "watchdog/{}/kick", "counter/{}/count?amount=7",
		"counter/{}/value",
		"counter/{}/stats", "barrier/{}/wait?size=1",
	} {
		command := redisForm(strings.ReplaceAll(request, "{}", "resp"))
		request = strings.ReplaceAll(request, "{}", "http")
		a := s.get(t, withDetails(request))
		redis.send(command + " WITH DETAILS")
		got, want := memberNames(t, a.body), redis.mapNames()
		// Every refusal has a sentence here; there only one that has more to say than the figures.
		want = slices.DeleteFunc(want, func(name string) bool { return name == "detail" })
		if strings.Contains(a.body, `"outcome":"conflict"`) {
			want = []string{"granted"} // an error there
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s = %s with %q, want the members of %s, %q", request, a, got, command, want)
		}
	}
}

// redisForm is a request as a command.
func redisForm(request string) string {
	place, query, _ := strings.Cut(request, "?")
	slash := strings.LastIndex(place, "/")
	words := strings.NewReplacer("=", " ", "&", " ").Replace(query)
	return "GH." + strings.ToUpper(place[slash+1:]) + " " + place[:slash] + " " + words
}

// memberNames are the names of an object's members, those that RESP does not have left out.
func memberNames(t *testing.T, body string) (names []string) {
	t.Helper()
	members := map[string]any{}
	if err := json.Unmarshal([]byte(body), &members); err != nil {
		t.Fatal(err)
	}
	for name := range members {
		if name != "outcome" && name != "detail" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// mapNames reads a map, and returns the names in it; none if the answer is an error.
func (c *redisConn) mapNames() (names []string) {
	c.t.Helper()
	line, err := c.reader.ReadString('\n')
	if err != nil {
		c.t.Fatal(err)
	}
	n, _ := strconv.Atoi(strings.TrimSpace(line[1:]))
	for i := range n {
		part, err := c.read()
		if err != nil {
			c.t.Fatal(err)
		}
		if i%2 == 0 {
			names = append(names, part)
		}
	}
	slices.Sort(names)
	return names
}
