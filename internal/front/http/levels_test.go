package http

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// get is a GET, with a header if one stands behind a bar.
func get(target string) string {
	target, header, _ := strings.Cut(target, "|")
	if header != "" {
		header += "\r\n"
	}
	return fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", target, header)
}

const (
	orgAndTeam = "parents=fixedwindow/org%25257:7/day;fixedwindow/team:5/day,6/week"
	underBoth  = "size=10&interval=day&" + orgAndTeam
)

// Requests with parents are answered as requests for one name are, and say which level decided.
func TestParents(t *testing.T) {
	r := newRig(t, Config{})
	const json = "|Accept: application/json"
	for _, v := range []struct{ request, want, limit string }{
		{"/v1/fixedwindow/user/peek?cost=5&" + underBoth, "204 ", `"fixedwindow/team:5/day";r=5;t=…`},
		{"/v1/fixedwindow/user/delay?cost=5&" + underBoth, "200 0", ""},
		{"/v1/fixedwindow/user/peek", "404 fixedwindow/user does not exist", ""},
		{"/v1/fixedwindow/user/acquire?cost=4&" + underBoth, "204 ", `"fixedwindow/team:5/day";r=1;t=…, ` +
			`"fixedwindow/user";r=6;t=…, "fixedwindow/org%257";r=3;t=…, "fixedwindow/team:6/week";r=2;t=…`},
		{"/v1/fixedwindow/user/acquire?maxwait=0&cost=2&" + underBoth,
			"408 fixedwindow/user: acquire not granted at once: its parent fixedwindow/team allows no " +
				"more; try again in …", `"fixedwindow/team:5/day";r=1;t=…, "fixedwindow/user";r=6, ` +
				`"fixedwindow/org%257";r=3, "fixedwindow/team:6/week";r=2`},
		{"/v1/fixedwindow/user/peek?refusal=429&cost=2&" + underBoth + json,
			`429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",…,"status":429,` +
				`"detail":"fixedwindow/user: peek not granted: its parent fixedwindow/team allows no…",` +
				`"code":"refused","retry_after_ms":…,"violated-policies":["fixedwindow/team:5/day"],` +
				`"binding":{"fixedwindow":"team",…},"want":[{"fixedwindow":"user","cost":2,"outcome":` +
				`"granted",…},` +
				`{"fixedwindow":"org%7",…},{"fixedwindow":"team",…}]}`, ""},
		{"/v1/fixedwindow/user/acquire?details=true&cost=1&" + underBoth, `200 {"outcome":"granted",` +
			`"granted":true,"limit":5,"remaining":0,…,"windows":[…],"binding":{"fixedwindow":"team",` +
			`"cost":1,"limit":5,` +
			`"remaining":0,…},"want":[{"fixedwindow":"user","cost":1,"limit":10,"remaining":5,…},…]}`, ""},
		{"/v1/fixedwindow/user/delay?cost=2&details=true&" + underBoth, `200 {"outcome":"granted",…,` +
			`"delay":…,"binding":{"fixedwindow":"team",…,"delay":…},"want":[` +
			`{"fixedwindow":"user",…,"delay":0},…]}`, ""},
		{"/v1/fixedwindow/user/acquire?maxwait=0&cost=6&limits=5/day&" + orgAndTeam,
			"400 fixedwindow/user: cost 6 can never fit a size of 5", ""},
		{"/v1/fixedwindow/user/acquire?maxwait=0&cost=6&" + underBoth,
			"400 fixedwindow/team: cost 6 can never fit a size of 5", ""},
		{"/v1/gcra/user/acquire?parents=gcra/stop:0/1s&maxwait=0",
			"408 gcra/user: acquire not granted at once: its parent gcra/stop allows no more; only another " +
				"request can change that", `"gcra/stop";r=0, "gcra/user";r=1`},
		{"/v1/gcra/user/acquire?size=1&parents=gcra/wide:9/1m&maxwait=0", "204 ",
			`"gcra/user";r=0;t=1, "gcra/wide";r=8;t=7`},
		{"/v1/gcra/user/acquire?size=1&interval=60000&parents=gcra/wide:9/1m&maxwait=0",
			"408 gcra/user: acquire not granted at once: it allows no more itself; try again in …",
			`"gcra/user";r=0;t=…, "gcra/wide";r=8`},
		{"/gcra/old/acquire?parents=gcra/older:9/1m", "204 ", `"gcra/old";r=0;…`}, // bouncer's path
		{"/v1/gcra/new/peek?parents=gcra/older:9/1m", "404 gcra/new does not exist", ""},

		{"/v1/lock/l/acquire?parents=gcra/a:1/1s", "400 parents is for acquire, peek and delay of…", ""},
		{"/v1/gcra/a/charge?parents=gcra/b:1/1s", "400 parents is for acquire, peek and delay of…", ""},
		{"/v1/gcra/a/stats?parents=gcra/b:1/1s", "400 parents is for acquire, peek and delay of…", ""},
		{"/v1/gcra/a/acquire?parents=gcra/a:1/1s", "400 parents has gcra/a, want other names…", ""},
		{"/v1/gcra/a/acquire?parents=", "204 ", `"gcra";r=0;t=1`},
	} {
		got, header := r.visit(t, get(v.request))
		if !like(got, v.want) {
			t.Errorf("%s = %s, want %s", v.request, got, v.want)
		}
		if limit := header.Get("RateLimit"); v.limit != "" && !like(limit, v.limit) {
			t.Errorf("%s has RateLimit %s, want %s", v.request, limit, v.limit)
		}
	}
	_, header := r.visit(t, get("/v1/fixedwindow/user/peek?"+underBoth))
	want := `"fixedwindow/user";q=10;w=86400, "fixedwindow/org%257";q=7;w=86400, ` +
		`"fixedwindow/team:5/day";q=5;w=86400, "fixedwindow/team:6/week";q=6;w=604800`
	if got := header.Get("RateLimit-Policy"); got != want {
		t.Errorf("RateLimit-Policy is %s, want %s", got, want)
	}
}

// like reports whether a text is as a pattern, in which … stands for anything.
func like(text, pattern string) bool {
	parts := strings.Split(pattern, "…")
	if !strings.HasPrefix(text, parts[0]) {
		return false
	}
	text = text[len(parts[0]):]
	for i, part := range parts[1:] {
		if i == len(parts)-2 && part != "" {
			return strings.HasSuffix(text, part)
		}
		at := strings.Index(text, part)
		if at < 0 {
			return false
		}
		text = text[at+len(part):]
	}
	return len(parts) > 1 || text == ""
}

// Many long names would make headers that proxies refuse. Then only the level that decided is told.
func TestLongLevels(t *testing.T) {
	r := newRig(t, Config{})
	var parents []string
	for i := range gatehouse.MaxParents {
		parents = append(parents, fmt.Sprintf("gcra/%d%s:%d/1m", i, strings.Repeat("n", 500), 10+i))
	}
	got, header := r.visit(t, get("/v1/gcra/a/acquire?size=20&parents="+strings.Join(parents, ";")))
	if limit := header.Get("RateLimit"); got != "204 " || !like(limit, `"gcra/0n…";r=9;t=…`) ||
		strings.Contains(limit, "gcra/1") {
		t.Errorf("answer %s with RateLimit %s, want the one that decided", got, limit)
	}
}

// A request with parents waits as any does, and is taken out of line when its client hangs up.
func TestParentsWait(t *testing.T) {
	r := newRig(t, Config{})
	const path = "/v1/gcra/user/acquire?size=1&interval=300&parents=gcra/team:1/100ms"
	c := r.dial(t)
	c.send(path, path, "/counter/behind/count")
	c.want(204, "")
	header := c.want(204, "") // it has waited
	if got := header.Get("RateLimit"); !strings.HasPrefix(got, `"gcra/user";r=0`) {
		t.Errorf("RateLimit is %s, want that of the user", got)
	}
	c.want(200, "1")
	c.send(strings.Replace(path, "100ms", "60s", 1))
	r.waiting(t, 1)
	_ = c.Close()
	r.waiting(t, 0)
}

// A granted request with parents that has waited is taken back if its client is gone.
func TestParentsOfAClientThatHangsUp(t *testing.T) {
	fake := new(fakeGrants)
	r := newRig(t, Config{Gate: fake})
	c := r.dial(t)
	c.send("/v1/gcra/user/acquire?parents=gcra/team:1/1m")
	asked := fake.asked(t, 1)
	if asked.Command.ID != "" || len(asked.Command.Want) != 2 || asked.Command.MaxWait != gatehouse.Forever {
		t.Errorf("the gate was asked %+v, want two names and no record", asked.Command)
	}
	_ = c.Close()
	fake.cancels(t, 1)
	asked.Err = gatehouse.Errorf(gatehouse.CodeTimeout, "canceled")
	asked.Decided(asked)
}

// streamed sends a grant that is answered as a stream.
func (c *client) streamed(body string) {
	c.t.Helper()
	text := strings.Replace(postText(grantsPath, body), "\r\n\r\n",
		"\r\nAccept: text/event-stream\r\n\r\n", 1)
	if _, err := c.Write([]byte(text)); err != nil {
		c.t.Fatal(err)
	}
}

// event reads one event, or a line of headers.
func (c *client) event(name, want string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	for {
		line, err := c.reader.ReadString('\n')
		if err != nil {
			c.t.Fatalf("no event %s: %v", name, err)
		}
		if line != "event: "+name+"\n" {
			if strings.HasPrefix(line, "event: ") && !strings.HasPrefix(line, "event: waiting") {
				c.t.Fatalf("event %q, want %s", line, name)
			}
			continue
		}
		data, err := c.reader.ReadString('\n')
		if err != nil || !like(strings.TrimSpace(data), "data: "+want) {
			continue // of the other line, or told before
		}
		return
	}
}

// A grant that waits is told its place in each line, and its outcome in the end.
func TestStreamOfAGrant(t *testing.T) {
	r := newRig(t, Config{})
	r.dial(t).streamed(`{"want":[{"lock":"l"}]}`)
	got, _ := r.visit(t, strings.Replace(postText(grantsPath, `{"want":[{"gcra":"g"}]}`), "\r\n\r\n",
		"\r\nAccept: text/event-stream\r\n\r\n", 1))
	if !like(got, `406 {…"detail":"Accept is text/event-stream, which needs an id,…"not_acceptable"}`) {
		t.Errorf("a stream without an id = %s, want 406", got)
	}
	c := r.dial(t)
	c.streamed(`{"id":"a","want":[{"lock":"l"},{"semaphore":"s"}]}`) // at once
	c.event("granted", `{"id":"a","fence":…,"expires_in":…,"want":[{"lock":"l",…},{"semaphore":"s",…}]}`)
	c = r.dial(t)
	c.streamed(`{"id":"b","want":[{"lock":"l"},{"semaphore":"s"}],"owner":{"name":"train-b"}}`)
	c.event("waiting", `{"semaphore":"s","id":"w…","owner":"train-b",…,"grant":"b","position":1,…`)
	r.visit(t, postText(grantsPath+"/a/release", ""))
	c.event("granted", `{"id":"b",…`)
	if _, err := c.reader.ReadByte(); err != nil { // the end of the event
		t.Error(err)
	}
	if _, err := c.reader.ReadByte(); err == nil {
		t.Error("something follows the outcome, want the end")
	}
	c = r.dial(t)
	c.streamed(`{"id":"c","maxwait":300,"want":[{"lock":"l"}]}`)
	c.event("waiting", `{"lock":"l",…`)
	c.event("refused", `{…"status":429,"detail":"acquire of 1 names not granted within maxwait=300 ms: `+
		`lock/l is full: 1 of 1 held, train-b for …","code":"refused",…,"want":[{"lock":"l",…}]}`)
	c = r.dial(t)
	c.streamed(`{"id":"c","want":[{"lock":"l"}]}`)
	c.event("waiting", `{"lock":"l",…`)
	_ = c.Close()
	r.waiting(t, 0)
	await.True(t, "nothing is followed", func() bool { return r.gate.Waiting() == 0 })
}

// Owners of a grant reach the gate.
func TestOwnerOfAGrant(t *testing.T) {
	fake := &fakeGrants{decide: grants}
	r := newRig(t, Config{Gate: fake})
	r.visit(t, postText(grantsPath, `{"want":[{"lock":"l"}],"Owner":{"Name":"a","host":"h","purpose":"p"}}`))
	asked := fake.asked(t, 1)
	want := gatehouse.Owner{Name: "a", Host: "h", Purpose: "p"}
	if got := asked.Command.Owner; got == nil || *got != want || !asked.Command.Explain {
		t.Errorf("the owner is %+v, want %+v", got, want)
	}
}
