package http

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// A fakeGrants is a gate whose grants the test decides.
type fakeGrants struct {
	*gate.Gate
	decide func(r *gate.GrantRequest) // nil leaves the request undecided

	mu        sync.Mutex
	submitted []*gate.GrantRequest
	canceled  []*gate.GrantRequest
}

func (f *fakeGrants) SubmitGrant(r *gate.GrantRequest) {
	f.mu.Lock()
	f.submitted = append(f.submitted, r)
	f.mu.Unlock()
	if f.decide != nil {
		f.decide(r)
		r.Decided(r)
	}
}

func (f *fakeGrants) CancelGrant(r *gate.GrantRequest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.canceled = append(f.canceled, r)
}

// asked waits until so many requests were submitted, and returns the last.
func (f *fakeGrants) asked(t *testing.T, n int) (last *gate.GrantRequest) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d requests were submitted", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n > 0 && len(f.submitted) == n {
			last = f.submitted[n-1]
		}
		return len(f.submitted) == n
	})
	return last
}

// cancels waits until so many requests were canceled.
func (f *fakeGrants) cancels(t *testing.T, n int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d requests were canceled", n), func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return len(f.canceled) == n
	})
}

// grants decides that a request is granted.
func grants(r *gate.GrantRequest) {
	r.Decision = gatehouse.GrantDecision{
		Outcome: gatehouse.Granted, ID: r.Command.ID, Fence: 7, ExpiresAfter: time.Minute, Binding: -1,
	}
	for _, m := range r.Command.Want {
		r.Decision.Want = append(r.Decision.Want, gatehouse.MemberDecision{
			Key: m.Key, Cost: m.Cost, Decision: gatehouse.Decision{
				Outcome: gatehouse.Granted, Limit: 10, Remaining: 10 - m.Cost,
				ResetAfter: 1500 * time.Microsecond,
			},
		})
	}
}

// postText is a POST with a body.
func postText(path, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s",
		path, len(body), body)
}

// post sends a POST, without waiting for an answer.
func (c *client) post(path, body string) {
	c.t.Helper()
	if _, err := io.WriteString(c.Conn, postText(path, body)); err != nil {
		c.t.Fatal(err)
	}
}

// What a body says is what the gate is asked.
func TestGrantRequests(t *testing.T) {
	const minute = `"expires":60000`
	for _, test := range []struct{ path, body, want string }{
		{grantsPath, `{"want":[{"gcra":"a","limits":"500/1m"}]}`,
			"acquire  wait=-1ns expires=0s debt estimate gcra/a limits=500/1m cost=1"},
		{grantsPath, ` { "id" : "op-7f" , ` +
			`"maxwait":30000,"expires":120000,"overrun":"cap","on-expiry":"last",` +
			`"want":[{"limits":"500/1m","gcra":"openai/rpm"},` +
			`{"tokenbucket":"openai/tpm","size":200000,"interval":60000,"cost":3200,"fit":"clip"},` +
			`{"semaphore":"openai/inflight","size":20,"cost":2},{"lock":"region/eu"}]}` + "\n",
			"acquire op-7f wait=30s expires=2m0s cap last gcra/openai/rpm limits=500/1m cost=1 " +
				"tokenbucket/openai/tpm 200000/1m0s cost=3200 clip semaphore/openai/inflight 20/0s cost=2 " +
				"lock/region/eu 0/0s cost=1"},
		{grantsPath, `{"id":"x","maxwait":0,"want":[{"gcra":"a"}]}`,
			"acquire x wait=0s expires=1m0s debt estimate gcra/a in force cost=1"},
		{grantsPath, `{"id":"x","want":[{"semaphore":"a"},{"semaphore":"\u00e4\/\"b"}]}`,
			"acquire x wait=-1ns expires=1m0s debt estimate semaphore/a in force cost=1 " +
				`semaphore/ä/"b in force cost=1`},
		{grantsPath, `{"want":[{"fixedwindow":"a","interval":"day",` +
			`"zone":"Europe/Berlin","size":5}],"expires":1}`,
			"acquire random wait=-1ns expires=1ms debt estimate fixedwindow/a 5/day Europe/Berlin cost=1"},
		{grantsPath, `{"want":[{"pace":"a","mode":"paced","guard":5,"interval":10},{"lock":"a"}]}`,
			"acquire random wait=-1ns expires=1m0s debt estimate pace/a 1/10ms paced guard=5ms cost=1 " +
				"lock/a 0/0s cost=1"},
		{grantsPath + "/op-7f/renew", "", "renew op-7f wait=0s expires=-1ns debt estimate"},
		{grantsPath + "/op-7f/renew", "{}", "renew op-7f wait=0s expires=-1ns debt estimate"},
		{grantsPath + "/op-7f/renew", `{` + minute + `,"fence":1764165123000001}`,
			"renew op-7f wait=0s expires=1m0s debt estimate fence=1764165123000001"},
		{grantsPath + "/op%2D7f/settle", `{"tokenbucket/openai/tpm":4100,"gcra/a":0}`,
			"settle op-7f wait=0s expires=0s debt estimate tokenbucket/openai/tpm=4100 gcra/a=0"},
		{grantsPath + "/a/topup", `{"gcra/a":5,"maxwait":-1}`,
			"topup a wait=-1ns expires=0s debt estimate gcra/a=5"},
		{grantsPath + "/a/topup", `{"gcra/a":5}`, "topup a wait=0s expires=0s debt estimate gcra/a=5"},
		{grantsPath + "/a/release", "", "release a wait=0s expires=0s debt estimate"},
		{grantsPath + "/a/release", `{"pace/x/y":7,"fence":3}`,
			"release a wait=0s expires=0s debt estimate pace/x/y=7 fence=3"},
	} {
		fake := &fakeGrants{decide: grants}
		r := newRig(t, Config{Gate: fake})
		got, _ := r.visit(t, postText(test.path, test.body))
		if !strings.HasPrefix(got, "200 ") {
			t.Errorf("%s %s = %s, want 200", test.path, test.body, got)
			continue
		}
		cmd := &fake.asked(t, 1).Command
		if got := describe(cmd, !strings.Contains(test.body, `"id"`)); got != test.want {
			t.Errorf("%s %s asks for\n%s, want\n%s", test.path, test.body, got, test.want)
		}
	}
}

// describe writes a command as the table above does.
func describe(cmd *gatehouse.GrantCommand, random bool) string {
	id := cmd.ID
	if random && len(id) == 36 {
		id = "random"
	}
	out := fmt.Sprintf("%s %s wait=%s expires=%s %s %s", cmd.Op, id, cmd.MaxWait, cmd.Expires, cmd.Overrun,
		cmd.OnExpiry)
	for _, m := range cmd.Want {
		out += " " + m.Key.String()
		switch {
		case m.Size == gatehouse.InForce:
			out += " in force"
		case m.Limits.Len() > 0:
			out += " limits=" + m.Limits.String()
		case m.Calendar != 0:
			out += fmt.Sprintf(" %d/%s %s", m.Size, m.Calendar, m.Zone)
		default:
			out += fmt.Sprintf(" %d/%s", m.Size, m.Interval)
		}
		if m.Mode != 0 {
			out += fmt.Sprintf(" %s guard=%s", m.Mode, m.Guard)
		}
		out += fmt.Sprintf(" cost=%d", m.Cost)
		if m.Clip {
			out += " clip"
		}
	}
	for _, c := range cmd.Costs {
		out += fmt.Sprintf(" %s=%d", c.Key, c.Cost)
	}
	if cmd.Fence != 0 {
		out += fmt.Sprintf(" fence=%d", cmd.Fence)
	}
	return out
}

// Paths that are not in the proper form are redirected, and all others are told what there is.
func TestGrantPaths(t *testing.T) {
	r := newRig(t, Config{Gate: &fakeGrants{decide: grants}, CORS: []string{"https://ours.example"}})
	for _, test := range []struct{ request, want, header string }{
		{"POST /V1/Grants", "308 ", "Location: /v1/grants"},
		{"POST /v1/grants/", "308 ", "Location: /v1/grants"},
		{"POST /v1/Batch/", "308 ", "Location: /v1/batch"},
		{"GET /v1/grants/A/", "301 ", "Location: /v1/grants/A"},
		{"POST /v1/grants/A/Renew", "308 ", "Location: /v1/grants/A/renew"},
		{"GET /v1/grants", "405 ", "Allow: POST, OPTIONS"},
		{"DELETE /v1/grants/a", "405 ", "Allow: GET, OPTIONS"},
		{"POST /v1/grants/a", "405 ", "Allow: GET, OPTIONS"},
		{"GET /v1/grants/a/renew", "405 ", "Allow: POST, OPTIONS"},
		{"GET /v1/batch", "405 ", "Allow: POST, OPTIONS"},
		{"OPTIONS /v1/grants", "200 ", "Allow: POST, OPTIONS"},
		{"POST /v1/grants/a/peek", "404 ", ""},
		{"POST /v1/grants/a/renew/b", "404 ", ""},
		{"GET /v1/grants//renew", "404 ", ""},
		{"GET /v1/grantsx", "404 ", ""},
		{"GET /v1/grant/x/acquire", "404 kind \"grant\" is unknown here, want POST /v1/grants", ""},
		{"GET /v1/grant/x/peek", "404 ", ""},
		{"GET /v1/grant/x/stats", "404 ", ""},
		{"DELETE /v1/grant/x", "404 ", ""},
		{"GET /v1/grant", "404 ", ""},
		{"DELETE /v1/grant?prefix=a&confirm=grant", "404 ", ""},
		{"GET /grants/x", "404 ", ""},
		{"POST /grants", "404 ", ""},
		{"POST /batch", "404 ", ""},
		{"GET /v1/gcra/x/settle", "404 ", ""},
		{"POST /v1/gcra/x/topup", "404 ", ""},
		{"GET /v1/grants/a", `200 {"id":"a","fence":7,"expires_in":60000,"ended":false}`,
			"Gatehouse-Fence: 7"},
		{"GET /v1/grants/a", "200 ", "Gatehouse-Expires: 60000"},
		{"GET /v1/grants/a", "200 ", "Cache-Control: no-store"},
		{"GET /v1/grants/a?x=y", "400 ", "Content-Type: application/problem+json"},
		{"GET /v1/grants/a%zz", "400 ", ""},
		{"GET /v1/grants/a%20b", "400 ", ""},
		{"GET /v1/grants/" + strings.Repeat("a", 129), "400 ", ""},
		{"GET /v1/grants/a|Origin: https://other.example", "403 ", ""},
		{"GET /v1/grants/a|Origin: https://ours.example", "200 ",
			"Access-Control-Allow-Origin: https://ours.example"},
		{"OPTIONS /v1/grants|Origin: https://ours.example", "200 ",
			"Access-Control-Allow-Headers: Content-Type"},
	} {
		parts := strings.Split(test.request, "|")
		parts[0] += " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0"
		got, header := r.visit(t, strings.Join(parts, "\r\n")+"\r\n\r\n")
		if !strings.HasPrefix(got, test.want) {
			t.Errorf("%s = %s, want %s", test.request, got, test.want)
		}
		if name, value, _ := strings.Cut(test.header, ": "); header.Get(name) != value {
			t.Errorf("%s has %s %q, want %q", test.request, name, header.Get(name), value)
		}
	}
}

// refuses decides that a request is refused by the first of two names.
func refuses(r *gate.GrantRequest) {
	r.Decision = gatehouse.GrantDecision{
		Outcome: gatehouse.Refused, RetryAfter: 1500 * time.Millisecond, Binding: 0,
		Want: []gatehouse.MemberDecision{
			{Key: r.Command.Want[0].Key, Decision: gatehouse.Decision{
				Limit: 5, RetryAfter: 1500 * time.Millisecond, ResetAfter: 3 * time.Second,
			}},
			{Key: r.Command.Want[1].Key, Decision: gatehouse.Decision{
				Outcome: gatehouse.Granted, Limit: 2, Remaining: 1,
			}},
		},
	}
}

// ends decides that a request ends with an outcome.
func ends(o gatehouse.Outcome, message string) func(*gate.GrantRequest) {
	return func(r *gate.GrantRequest) {
		r.Decision = gatehouse.GrantDecision{Outcome: o, Message: message, Binding: -1}
	}
}

// grantAnswers are what decisions are answered with.
var grantAnswers = map[string]struct {
	decide       func(r *gate.GrantRequest)
	want, header string
}{
	"granted": {grants, `200 ` +
		`{"id":"x","fence":7,"expires_in":60000,"want":[{"gcra":"a","cost":1,"limit":10,` +
		`"remaining":9,"retry_after":0,"reset_after":2},{"semaphore":"b","cost":1,"limit":10,"remaining":9,` +
		`"retry_after":0}]}`, "Gatehouse-Fence: 7"},
	"no record": {func(r *gate.GrantRequest) {
		grants(r)
		r.Decision.ID, r.Decision.Want = "", r.Decision.Want[:1]
	}, `200 {"want":[{"gcra":"a","cost":1,"limit":10,"remaining":9,"retry_after":0,"reset_after":2}]}`, ""},
	"debt": {func(r *gate.GrantRequest) {
		grants(r)
		r.Decision.Want = r.Decision.Want[:1]
		r.Decision.Want[0].Booked, r.Decision.Want[0].Capped = 4, 3
	}, `200 {"id":"x","fence":7,"expires_in":60000,"want":[{"gcra":"a","cost":1,"booked":4,"capped":3,` +
		`"limit":10,"remaining":9,"retry_after":0,"reset_after":2}]}`, ""},
	"refused": {refuses, `429 {"type":"https://iana.org/assignments/http-problem-types#quota-exceeded",` +
		`"title":"Request cannot be satisfied as assigned quota has been exceeded","status":429,` +
		`"detail":"acquire of 2 names not granted within maxwait=100 ms: gcra/a allows no more; try ` +
		`again in ` +
		`1500 ms","code":"refused","retry_after_ms":1500,"violated-policies":["gcra/a"],` +
		`"binding":{"gcra":"a","cost":1,"outcome":"refused","limit":5,"remaining":0,"retry_after":1500,` +
		`"reset_after":3000},"want":[{"gcra":"a","cost":1,"outcome":"refused","limit":5,"remaining":0,` +
		`"retry_after":1500,"reset_after":3000},{"semaphore":"b","cost":1,"outcome":"granted","limit":2,` +
		`"remaining":1,"retry_after":0}]}`, "Retry-After: 2"},
	"nobody knows when": {func(r *gate.GrantRequest) {
		refuses(r)
		r.Decision.RetryAfter = gatehouse.Forever
	}, "429 …allows no more; only another request can change that…", "Retry-After: "},
	"others come first": {func(r *gate.GrantRequest) {
		refuses(r)
		r.Decision.Binding = -1
	}, "429 …others wait for these names; try again in 1500 ms…", "Retry-After: 2"},
	"conflict": {ends(gatehouse.Conflict, "grant/x wants something else"),
		`409 {"type":"about:blank","title":"Conflict","status":409,"detail":"grant/x wants something else",` +
			`"code":"conflict"}`, ""},
	"deleted":   {ends(gatehouse.Deleted, "gcra/a was deleted"), `409 …"code":"deleted"}`, ""},
	"missing":   {ends(gatehouse.Missing, ""), "404 …grant/x does not exist…", ""},
	"invalid":   {ends(gatehouse.Invalid, "no"), `400 …"detail":"no","code":"invalid"}`, ""},
	"exhausted": {ends(gatehouse.Exhausted, "full"), `503 …"code":"exhausted"…`, "Retry-After: 1"},
	"the server is full": {func(r *gate.GrantRequest) {
		r.Err = gatehouse.Errorf(gatehouse.CodeExhausted, "server has no room")
	}, `503 …"detail":"server has no room","code":"exhausted","retry_after_ms":1000}`, "Retry-After: 1"},
	"no store": {func(r *gate.GrantRequest) {
		r.Err = gatehouse.Errorf(gatehouse.CodeUnavailable, "away")
	}, `503 …"code":"unavailable"…`, "Retry-After: 1"},
}

// Each outcome has its status, and the answer names the member that binds.
func TestGrantAnswers(t *testing.T) {
	const want = `{"want":[{"gcra":"a","size":5},{"semaphore":"b"}],"id":"x","maxwait":100}`
	for name, test := range grantAnswers {
		r := newRig(t, Config{Gate: &fakeGrants{decide: test.decide}})
		got, header := r.visit(t, postText(grantsPath, want))
		if !matches(got, test.want) {
			t.Errorf("%s is answered\n%s, want\n%s", name, got, test.want)
		}
		key, value, _ := strings.Cut(test.header, ": ")
		if header.Get(key) != value {
			t.Errorf("%s has %s %q, want %q", name, key, header.Get(key), value)
		}
		if _, body, _ := strings.Cut(got, " "); !json.Valid([]byte(body)) {
			t.Errorf("%s is answered %s, want JSON", name, body)
		}
	}
}

// matches reports whether a text is the other one, in which … stands for anything.
func matches(text, pattern string) bool {
	parts := strings.Split(pattern, "…")
	if !strings.HasPrefix(text, parts[0]) || !strings.HasSuffix(text, parts[len(parts)-1]) {
		return false
	}
	for _, part := range parts {
		_, rest, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = rest
	}
	return true
}

// Requests count as those of the kind grant, with their outcomes.
func TestGrantMetrics(t *testing.T) {
	r := newRig(t, Config{Gate: &fakeGrants{decide: grants}})
	r.visit(t, postText(grantsPath, waitingGrant))
	r.visit(t, postText(grantsPath, `{"want":[]}`))
	r.visit(t, postText(grantsPath+"/w/settle", `{"gcra/a":5}`))
	got, _ := r.visit(t, "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
	for _, line := range []string{
		`gatehouse_requests_total{kind="grant",op="acquire",outcome="granted",protocol="http"} 1`,
		`gatehouse_requests_total{kind="grant",op="acquire",outcome="invalid",protocol="http"} 1`,
		`gatehouse_requests_total{kind="grant",op="settle",outcome="granted",protocol="http"} 1`,
	} {
		if !strings.Contains(got, line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
}
