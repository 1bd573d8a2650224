package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// operations are what each kind knows, beside stats and DELETE.
var operations = map[string][]string{
	"tokenbucket":   limiterOperations,
	"gcra":          limiterOperations,
	"fixedwindow":   limiterOperations,
	"slidingwindow": limiterOperations,
	"slidinglog":    limiterOperations,
	"pace":          limiterOperations,
	"semaphore":     {"acquire", "release", "renew"},
	"lock":          {"acquire", "release", "renew"},
	"event":         {"wait", "send"},
	"watchdog":      {"wait", "kick"},
	"counter":       {"count", "value", "reset"},
	"barrier":       {"wait"},
}

var limiterOperations = []string{"acquire", "peek", "delay", "reserve", "cancel", "refund", "charge", "reset"}

// manualPages are pages of each form: lists, long tables, dialogues, a picture, code, the page of forms.
var manualPages = []string{
	"", "readme", "changelog", "protocols/http", "protocols/resp", "configuration", "operations",
	"benchmarks", "accuracy", "simulation", "architecture", "controllers/", "controllers/gcra", "decisions/",
	"decisions/0007-dependencies", "api/", "api/#/gcra/reserveGcra",
}

// brightness is the sum of what the colour behind a page has of red, green and blue.
const brightness = `getComputedStyle(document.body).backgroundColor.match(/\d+/g).reduce((a, b) => a + +b, 0)`

// The documentation works without a network, wide and light, narrow and dark. No page complains, breaks its
// content security policy or asks another host, and none is wider than its window.
func (b *browser) testManual(t *testing.T) {
	t.Parallel()
	tab, origin := b.openTab(t), "http://"+shared().address
	for i, page := range manualPages {
		if testing.Short() && i%4 > 0 {
			continue
		}
		tab.visit(origin+"/docs/"+page, 1280, false)
		for _, dark := range []bool{false, true} {
			width := map[bool]int{false: 1280, true: 390}[dark]
			tab.resize(width, dark)
			what := fmt.Sprintf("/docs/%s at %d px, dark %t", page, width, dark)
			tab.wantQuiet(what, origin)
			tab.wantEval(what, "document.documentElement.scrollWidth <= innerWidth", true)
			tab.wantEval(what, "document.querySelectorAll('h1').length", 1)
			tab.wantEval(what, brightness+" < 384", dark)
		}
	}
}

// The page of forms has every operation, under /v1 alone and folded.
func (b *browser) testTryPageHasEveryOperation(t *testing.T) {
	t.Parallel()
	tab, origin := b.openTab(t), "http://"+shared().address
	tab.visit(origin+"/docs/api/", 1280, false)
	tab.wantEval("/docs/api/", "document.querySelectorAll('article details[open]').length", 0)
	var got []string
	list := "[...document.querySelectorAll('form')].map(f => f.dataset.method + ' ' + f.dataset.path)"
	if err := json.Unmarshal([]byte(tab.eval(list)), &got); err != nil {
		t.Fatal(err)
	}
	for kind, ops := range operations {
		root := "/v1/" + kind + "/{name}"
		want := []string{"delete " + root, "get /v1/" + kind, "delete /v1/" + kind, "get " + root + "/stats"}
		for _, op := range ops {
			method := "post "
			if op == "peek" || op == "delay" || op == "value" {
				method = "get "
			}
			want = append(want, method+root+"/"+op)
		}
		for _, line := range want {
			if !slices.Contains(got, line) {
				t.Errorf("/docs/api/ does not show %s", line)
			}
		}
		for _, line := range got {
			if strings.Contains(line, " /"+kind) {
				t.Errorf("/docs/api/ shows %s, which is not under /v1", line)
			}
		}
	}
}

// A link can lead to one operation, also one of earlier versions: it is open then, and has the parameters
// that it takes, all of them empty.
func (b *browser) testTryPageOfOneOperation(t *testing.T) {
	t.Parallel()
	tab, origin := b.openTab(t), "http://"+shared().address
	tab.visit(origin+"/docs/api/#/gcra/reserveGcra", 1280, false)
	tab.wantEval("the link", "[...document.querySelectorAll('article details[open]')].map(d => d.id).join()",
		`"gcra,reserveGcra"`)
	fields := "[...document.querySelectorAll('#reserveGcra [data-in]')].map(f => f.name + f.value).join(' ')"
	tab.wantEval("the link", fields, `"name size interval burst limits zone cost key refusal details"`)

	page := tab.settle(origin + "/docs/#/gcra/reserveGcra")
	if !strings.Contains(page, `<details class="operation" id="reserveGcra" open=""`) {
		t.Errorf("the earlier link shows %.2000s", page)
	}
}

// sent presses Send in the form of an operation, and is the first line of what the page shows then.
const sent = `new Promise(done => {
	const form = document.querySelector("#%[1]s form"), out = form.querySelector(".answer");
	for (const [name, value] of Object.entries(%[2]s)) {
		form.elements[name].value = value;
	}
	new MutationObserver(() => {
		if (!out.hidden && !out.textContent.startsWith("waiting")) {
			done(out.textContent.split("\n")[0]);
		}
	}).observe(out, { childList: true, characterData: true, subtree: true });
	form.querySelector("button").click();
})`

// What is filled in is sent, and nothing else; what waits can be stopped.
func (b *browser) testTryIt(t *testing.T) {
	t.Parallel()
	s, tab, name := shared(), b.openTab(t), fresh(t)
	tab.visit("http://"+s.address+"/docs/api/", 390, false)
	for _, try := range []struct{ operation, fields, want string }{
		{"acquireTokenbucket", `{name: "NAME", size: 5}`, "204 No Content"},
		{"acquireGcra", `{name: "NAME", size: 5}`, "204 No Content"},
		{"acquireGcra", `{name: "NAME", size: 1, burst: 0, interval: 600000}`, "204 No Content"},
		{"acquireGcra", `{name: "NAME", size: 1, maxwait: 0, interval: 600000}`, "408 Request Timeout"},
		{"acquireGcra", `{name: "NAME", size: 1, maxwait: 0, refusal: 429}`, "429 Too Many Requests"},
		{"acquireGcra", `{name: "NAME", size: 1, maxwait: 0, details: true}`, "200 OK"},
		{"acquireSlidingwindow", `{name: "NAME", mode: "fine"}`, "204 No Content"},
		{"acquireSemaphore", `{name: "NAME/a b?", size: 5, key: "k&k"}`, "200 OK"},
		{"countCounter", `{name: "NAME", amount: -5}`, "200 OK"},
		{"countCounter", `{name: "NAME", amount: "x"}`, "400 Bad Request"},
		{"deleteCounter", `{name: "NAME"}`, "204 No Content"},
		{"listLock", `{limit: 5}`, "200 OK"},
		{"healthz", `{}`, "200 OK"},
	} {
		fields := strings.ReplaceAll(try.fields, "NAME", name)
		send := fmt.Sprintf(sent, try.operation, fields)
		tab.wantEval(try.operation+fields, send, fmt.Sprintf("%q", try.want))
	}
	s.want(t, "/v1/counter/"+name+"/value", "200 0")
	s.want(t, "/v1/semaphore/"+name+"%2Fa%20b%3F/release?key=k%26k", "204")

	wait := fmt.Sprintf(sent, "waitEvent", `{name: "`+name+`"}`)
	stop := strings.Replace(wait, `.click();`, `.click();
	form.querySelector("button[type=button]").click();`, 1)
	tab.wantEval("stopped", stop, `"stopped waiting"`)
}

// No page of the documentation is shown in a frame, and none does what is not on it.
func TestManualHeaders(t *testing.T) {
	t.Parallel()
	s := shared()
	for _, path := range []string{"/docs/", "/docs/api/", "/docs/openapi.json", "/docs/assets/page.js"} {
		a := s.get(t, path, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Dest: iframe")
		policy := a.header.Get("Content-Security-Policy")
		for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "script-src 'self'"} {
			if !strings.Contains(policy, part) {
				t.Errorf("%s has the policy %q, want %s in it", path, policy, part)
			}
		}
		if strings.Contains(policy, "unsafe") || a.header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s has the policy %q and the headers %v", path, policy, a.header)
		}
	}
	for request, want := range map[string]string{
		"/docs/oauth2-redirect.html": "404", "/docs/swagger-ui-bundle.js": "404", "/docs/%zz": "400",
		"/docs/controllers": "302", "/docs/controllers/gcra.md": "302", "/docs/README.md": "302",
		"/docs/api": "302", "/docs/x": "404", "/docs/docs.go": "404", "/docs/../healthz": "404",
		"/docs/%2e%2e/healthz": "404",
	} {
		if a := s.get(t, request); !a.is(want) {
			t.Errorf("%s = %.200s, want %s", request, a, want)
		}
	}
}
