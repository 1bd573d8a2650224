package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// shows waits until an expression is true in a page.
func (d *tab) shows(t *testing.T, what, expression string) {
	t.Helper()
	until(t, what, func() bool { return d.eval(expression) == "true" })
}

// says waits until all of some texts are shown.
func (d *tab) says(t *testing.T, what string, texts ...string) {
	t.Helper()
	list, err := json.Marshal(texts)
	if err != nil {
		t.Fatal(err)
	}
	d.shows(t, what, string(list)+".every(text => "+shownText+".includes(text))")
}

// shownText is what a page shows behind its header.
const shownText = "document.querySelector('main').innerText"

// photograph keeps a picture of a page among the artifacts of the test (go test -artifacts).
func (d *tab) photograph(t *testing.T, name string) {
	t.Helper()
	var picture struct{ Data string }
	d.call("Page.captureScreenshot", map[string]any{"format": "png"}, &picture)
	data, err := base64.StdEncoding.DecodeString(picture.Data)
	if err != nil || len(data) < 1000 {
		t.Fatalf("the picture %s has %d bytes, %v", name, len(data), err)
	}
	if err := os.WriteFile(filepath.Join(t.ArtifactDir(), name+".png"), data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// useNames has names of each kind, one of which has holders and a line.
func useNames(t *testing.T, s *server) {
	t.Helper()
	for range 7 {
		s.get(t, "/v1/gcra/partner/acquire?limits=5/1h,100/24h&maxwait=0")
	}
	for _, path := range []string{
		"/v1/lock/deploy/acquire?key=a&expires=600000&owner=ci-17&host=build-3&purpose=release+4.2",
		"/v1/semaphore/gpu/acquire?size=4&key=a&expires=600000&owner=train-1&host=g1",
		"/v1/semaphore/gpu/acquire?size=4&key=b&expires=600000&owner=train-2&host=g2",
		"/v1/semaphore/gpu/acquire?size=4&key=c&expires=0&owner=train-3&host=g2",
		"/v1/tokenbucket/mail/acquire?size=1000&interval=3600000&cost=640",
		"/v1/event/migrated/send?message=schema+42",
		"/v1/watchdog/worker-7/kick?expires=60000", "/v1/counter/builds/count",
	} {
		s.get(t, path)
	}
	s.wait(t, "/v1/lock/deploy/acquire?key=b&owner=ci-18&host=build-4&purpose=hotfix")
	s.wait(t, "/v1/lock/deploy/acquire?key=c&owner=ci-19&host=build-1")
	s.inLine(t, "lock/deploy", 2)
}

// Each view is as wide as its window, wide and light, narrow and dark, and complains of nothing.
func (b *browser) testPageLooks(t *testing.T) {
	t.Parallel()
	s := start(t)
	useNames(t, s)
	tab, origin := b.openTab(t), "http://"+s.address
	for _, dark := range []bool{false, true} {
		width := map[bool]int{false: 1280, true: 390}[dark]
		tab.visit(origin+"/", width, dark)
		tab.shows(t, "the page", "!!document.querySelector('.status.live')")
		tab.wantEval("the page", brightness+" < 384", dark)
		for _, view := range views {
			what := fmt.Sprintf("%s-%d", view.name, width)
			tab.eval("location.hash = '" + view.hash + "'")
			tab.shows(t, what+" is ready", view.ready)
			tab.wantEval(what, "document.documentElement.scrollWidth <= innerWidth", true)
			tab.wantEval(what, "document.querySelectorAll('h1').length", 1)
			tab.wantEval(what, unnamed, "[]")
			tab.photograph(t, what)
		}
		tab.wantQuiet("the page", origin)
	}
}

// views are all views of the page, and when each of them is ready.
var views = []struct{ name, hash, ready string }{
	{"names", "#/", "!!document.querySelector('tbody tr')"},
	{"lock", "#/lock/deploy", shownText + ".includes('ci-19') && !!document.querySelector('canvas')"},
	{"limiter", "#/gcra/partner", shownText + ".includes('5 an hour, 100 a day')"},
	{"server", "#/server", shownText + ".includes('--max-names')"},
	{"capacity", "#/capacity", shownText + ".includes('No resources yet')"},
	{"decision", "#/decision", shownText + ".includes('Why was it refused?')"},
}

// unnamed are the controls of a page that have no name for those who do not see it.
const unnamed = `[...document.querySelectorAll('button, a, input, select, [role=img]')].filter(e =>
	!(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.[0]?.textContent.trim() ||
		e.alt)).map(e => e.outerHTML)`

// Programs get at / what they got before there was a page; a browser gets the page, which may do nothing but
// ask its own server.
func TestPageAtTheRoot(t *testing.T) {
	t.Parallel()
	s := shared()
	for _, accept := range []string{"*/*", "application/json", ""} {
		a := s.get(t, "/", "Accept: "+accept)
		if to := a.header.Get("Location"); a.status != 302 || to != "/docs/" {
			t.Errorf("/ with Accept %q = %s, leading to %q, want 302 and /docs/", accept, a, to)
		}
	}
	a := s.get(t, "/", "Accept: text/html,*/*;q=0.8")
	if !a.is("200 <!doctype html>…") {
		t.Errorf("/ for a browser = %s, want the page", a)
	}
	policy := a.header.Get("Content-Security-Policy")
	for _, want := range []string{"default-src 'none'", "script-src 'self'", "frame-ancestors 'none'"} {
		if !strings.Contains(policy, want) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy of the page is %q, want %s", policy, want)
		}
	}
	if got := a.header.Get("X-Content-Type-Options"); got != "nosniff" {
		t.Errorf("the page has X-Content-Type-Options %q, want nosniff", got)
	}
	s.want(t, "/page/app.js", "200 …")
	s.want(t, "/page/../page.go", "404 …")
	s.want(t, "/page/", "404 …")
	s.want(t, "POST /v1/names", "405 …")
	for path, detail := range map[string]string{
		"/v1/names?kind=x": `kind is "x"`, "/v1/names?sort=x": `sort is "x"`,
		"/v1/names?limit=501": `limit is "501"`,
		"/v1/names?reverse=1": `reverse is "1"`, "/v1/names?x=1": `parameter "x" is unknown`,
		"/v1/activity/lock/a?x=1": `parameter "x" is unknown`,
	} {
		s.want(t, path, "400 …"+detail+"…")
	}
	s.want(t, "/v1/activity/nothing/x", "404 …")
	s.want(t, "/v1/activity/lock/", "404 …")
}
