package grpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/valyala/fasthttp"
)

// take gives a client a lease.
func (r *webRig) take(t *testing.T, client, resource string, wants float64) {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"client_id": client, "resource": []any{map[string]any{"resource_id": resource, "wants": wants}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := r.ask(t, getPath+string(body)); !strings.HasPrefix(got, "200 ") {
		t.Fatalf("a lease on %q for %q = %s, want 200", resource, client, got)
	}
}

// spaces are runs of them, which do not matter in HTML.
var spaces = regexp.MustCompile(`\s+`)

// page is a page with its spaces made single.
func (r *webRig) page(t *testing.T, path string, headers ...string) string {
	t.Helper()
	got, _ := r.ask(t, "GET "+path, headers...)
	return spaces.ReplaceAllString(got, " ")
}

// has reports texts that are not in a page.
func has(t *testing.T, where, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%s does not have %q:\n%s", where, text, page)
		}
	}
}

func TestPages(t *testing.T) {
	has(t, "without templates", newWebRig(t, Config{}).page(t, "/capacity"),
		"<dt>Loaded</dt><dd>never: nothing is granted without <code>--capacity-config</code></dd>")
	has(t, "below a parent", newWebRig(t, Config{Parents: []string{"root:5506"}}).page(t, "/capacity"),
		"<dt>Loaded</dt><dd>never: capacity comes from the parents</dd>")
	r := newWebRig(t, Config{Address: "us:5506", Source: "file:capacity.yaml"})
	has(t, "before there are templates", r.page(t, "/capacity"), "200 <!doctype html>",
		"not yet: nothing is granted until then", "Nobody has asked for any.")
	r.Configure(some(), "v1")
	r.take(t, "ada", "fair", 80)
	r.take(t, "bob", "fair", 40)
	r.take(t, "bob", "other", 4.5)
	has(t, "/capacity", r.page(t, "/capacity"),
		"<dt>Server</dt><dd>us:5506</dd>", "<dd>this is the master</dd>", "<dt>Master</dt><dd>us:5506</dd>",
		"<dt>Source</dt><dd>file:capacity.yaml</dd>", "<dt>Version</dt><dd>v1</dd>",
		`<time datetime="2027-01-15T08:00:00Z">in 0s</time>`,
		"a fair share", "priority strict", `<td class="number">a share</td>`, `<td class="number">2.5</td>`,
		`<a href="/capacity/fair">fair</a></td> <td>FAIR_SHARE</td> <td class="number">100</td> `+
			`<td class="number">100</td> <td class="number">120</td> <td class="number">2</td>`,
		`<a href="/capacity/other">other</a></td> <td>PROPORTIONAL_SHARE</td> <td class="number">10</td> `+
			`<td class="number">4.5</td> <td class="number">4.5</td> <td class="number">1</td>`)
	has(t, "/capacity/fair", r.page(t, "/capacity/fair"),
		"<h1>fair</h1>", "<dt>Safe</dt><dd>50, for each client",
		`<td class="name">ada</td> <td class="number">80</td> <td class="number"></td> `+
			`<td class="number">80</td> <td>0: 80</td> `+
			`<td><time datetime="2027-01-15T08:01:00Z">in 1m0s</time></td> <td class="number">15</td>`,
		`<td class="name">bob</td> <td class="number">20</td>`)
	got, header := r.ask(t, "GET /capacity/unknown")
	const want = `404 resource "unknown" is unknown: no client holds a lease on it or requested one lately`
	if got != want {
		t.Errorf("GET /capacity/unknown = %s, want %s", got, want)
	}
	if kind := header.Get("Content-Type"); kind != "text/plain; charset=utf-8" {
		t.Errorf("its type is %s, want text/plain", kind)
	}
}

// Why the newest configuration is not used is on the page, not only in a log.
func TestPageShowsWhyTheConfigurationIsStale(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	r.ConfigFailed(errors.New(`capacity.yaml:3:5: capasity is unknown, want <capacity>`))
	const why = "capacity.yaml:3:5: capasity is unknown, want "
	has(t, "/capacity", r.page(t, "/capacity"),
		"The newest configuration was refused", why+"&lt;capacity&gt;", "<dt>Version</dt><dd>v1</dd>")
	var view overview
	readView(t, r, "/capacity?format=json", &view)
	c := view.Configuration
	if !c.Stale || c.Why != why+"<capacity>" || c.Version != "v1" || len(c.Templates) != 2 {
		t.Errorf("as JSON it is %+v, want it stale, and why", c)
	}
	r.Configure(some(), "v2")
	if page := r.page(t, "/capacity"); strings.Contains(page, "refused") {
		t.Errorf("with a new one that is right it is\n%s\nwant nothing refused", page)
	}
}

func readView(t *testing.T, r *webRig, path string, view any) {
	t.Helper()
	got, header := r.ask(t, "GET "+path)
	text, ok := strings.CutPrefix(got, "200 ")
	if !ok || header.Get("Content-Type") != "application/json" {
		t.Fatalf("GET %s = %s, %v, want 200 and JSON", path, got, header)
	}
	if err := json.Unmarshal([]byte(text), view); err != nil {
		t.Fatalf("GET %s = %s: %v", path, got, err)
	}
}

func TestPagesAsJSON(t *testing.T) {
	r := newWebRig(t, Config{Address: "us:5506"})
	r.Configure(some(), "v1")
	r.take(t, "ada", "fair", 80)
	var all overview
	readView(t, r, "/capacity?format=json", &all)
	if !all.Master || all.MasterAddress != "us:5506" || all.MasterUntil != nil || len(all.Resources) != 1 {
		t.Errorf("/capacity is %+v, want the master for ever, and one resource", all)
	}
	var one resourceDetail
	readView(t, r, "/capacity/fair?format=json", &one)
	got := one.Resource
	if got.Has != 80 || got.Safe != 100 || got.Kind != "FAIR_SHARE" || got.LearnsUntil != nil {
		t.Errorf("/capacity/fair has %+v, want 80 of FAIR_SHARE, 100 without a lease, and no learning", got)
	}
	want := leaseView{Client: "ada", Has: 80, Taken: 80, Expiry: begin().Add(time.Minute).UTC(), Refresh: 15,
		Sum: 80, Bands: 1, Wants: []capacity.Demand{{Priority: 0, Clients: 1, Wants: 80}}}
	if got := fmt.Sprintf("%+v", one.Leases); got != fmt.Sprintf("%+v", []leaseView{want}) {
		t.Errorf("its leases are %s, want %+v", got, want)
	}
	for _, accept := range []string{"application/json", "text/html;q=0.5, application/json"} {
		if got, _ := r.ask(t, "GET /capacity", "Accept: "+accept); !strings.HasPrefix(got, `200 {"server"`) {
			t.Errorf("Accept: %s = %.60s, want JSON", accept, got)
		}
	}
	page := r.page(t, "/capacity?format=html", "Accept: application/json")
	if !strings.HasPrefix(page, "200 <!doc") {
		t.Errorf("format=html = %.60s, want HTML", page)
	}
}

func TestPageParameters(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	r.take(t, "ada", "fair", 80)
	for query, want := range map[string]string{
		"limit=0":    `400 limit is "0", want a whole number from 1 to 1000`,
		"limit=1001": `400 limit is "1001", want a whole number from 1 to 1000`,
		"limit=":     `400 limit is "", want a whole number from 1 to 1000`,
		"format=xml": `400 format is "xml", want json or html`,
		"order=has":  `400 parameter "order" is unknown, want one of after format limit resource`,
		"after=%zz":  `400 query: invalid URL escape "%zz"`,
		"resource=nope": `404 resource "nope" is unknown: ` +
			`no client holds a lease on it or requested one lately`,
	} {
		if got, _ := r.ask(t, "GET /capacity?"+query); got != want {
			t.Errorf("?%s = %s, want %s", query, got, want)
		}
	}
	if got, _ := r.ask(t, "GET /capacity/fair?resource=fair"); !strings.HasPrefix(got, "400 ") {
		t.Errorf("a resource that is named twice = %s, want 400", got)
	}
}

// A page has at most so many rows, and leads to the next.
func TestPagesHaveALimit(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	for i := range 7 {
		r.take(t, fmt.Sprintf("c&%d", i), "r", 1)
		r.take(t, "ada", fmt.Sprintf("s/%d", i), 1)
	}
	for path, row := range map[string]string{
		"/capacity": "<td>PROPORTIONAL_SHARE</td>", "/capacity/r": ">in 20s<",
	} {
		rows, turns := 0, 0
		for next := path + "?limit=3"; next != ""; turns++ {
			page := r.page(t, next)
			n := strings.Count(page[strings.LastIndex(page, "<h2>"):], row)
			if n == 0 || n > 3 {
				t.Errorf("%s has %d rows, want 1 to 3:\n%s", next, n, page)
			}
			rows += n
			next = linkOf(page, "Next page")
		}
		if want := map[string]int{"/capacity": 8, "/capacity/r": 7}[path]; rows != want || turns != 3 {
			t.Errorf("%s has %d rows on %d pages, want %d on 3", path, rows, turns, want)
		}
	}
}

// linkOf is where a link of a page leads, by its text.
func linkOf(page, text string) string {
	before, _, ok := strings.Cut(page, `">`+text+`</a>`)
	if !ok {
		return ""
	}
	return html.UnescapeString(before[strings.LastIndex(before, `"`)+1:])
}

// Whatever a resource or a client is called, its page is found, and shows it as text.
func TestPagesOfHostileNames(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	for _, name := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`,
		`</title></style><svg onload=alert(1)>`, `javascript:alert(1)`, `a/b/c`, `/`, `//x`, `a/`, `.`, `..`,
		`a/../b`, `a b`, ` `, `a?b=c&d#e`, `%41`, `%`, `+`,
		`{{.Server}}`, "\u202egnp.exe", `日本`, `'`, `\`, strings.Repeat("x", 512),
	} {
		r.take(t, name, name, 1)
		var all overview
		readView(t, r, "/capacity?format=json&limit=1000", &all)
		page := r.page(t, "/capacity?limit=1000")
		link := linkOf(page, escaped(doormanpb.ShowName(name)))
		if link == "" {
			t.Errorf("/capacity has no link to %q:\n%s", name, page)
			continue
		}
		page = r.page(t, link)
		head := spaces.ReplaceAllString(escaped(doormanpb.ShowName(name)), " ")
		has(t, link, page, "200 <!doctype", "<h1>"+head+"</h1>")
		for _, bad := range []string{"<script", "<img", "<svg", "\u202e"} {
			if strings.Contains(page, bad) {
				t.Errorf("the page of %q has %q:\n%s", name, bad, page)
			}
		}
		parsed, err := url.Parse("http://localhost" + link)
		if err != nil || parsed.ResolveReference(&url.URL{}).String() != "http://localhost"+link {
			t.Errorf("the link to %q is %s, which a browser takes for another: %v", name, link, err)
		}
	}
}

// escaped is a text as html/template writes it.
func escaped(text string) string {
	return strings.ReplaceAll(html.EscapeString(text), "+", "&#43;")
}

func TestPagesAllowNoScripts(t *testing.T) {
	r := newWebRig(t, Config{})
	for _, path := range []string{"/capacity", "/capacity?limit=1"} {
		_, header := r.ask(t, "GET "+path)
		policy := header.Get("Content-Security-Policy")
		for _, want := range []string{"default-src 'none'; style-src 'sha256-", "frame-ancestors 'none'"} {
			if !strings.Contains(policy, want) {
				t.Errorf("%s has the policy %q, want %q in it", path, policy, want)
			}
		}
		for _, bad := range []string{"script-src", "unsafe", "*"} {
			if strings.Contains(policy, bad) {
				t.Errorf("%s has the policy %q, want no %q in it", path, policy, bad)
			}
		}
		if header.Get("X-Content-Type-Options") != "nosniff" || header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s has the headers %v, want nosniff and no-store", path, header)
		}
	}
}

// While a page is written, the server goes on deciding.
func TestPagesAreWrittenWithoutTheLock(t *testing.T) {
	r := newWebRig(t, Config{})
	r.Configure(some(), "v1")
	view := r.makeOverview(&pageRequest{limit: 1})
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, asJSON := range []bool{false, true} {
		var ctx fasthttp.RequestCtx
		err := newPages().writeView(&ctx, "overview", view, asJSON)
		if err != nil || len(ctx.Response.Body()) == 0 {
			t.Errorf("the page has %d bytes, %v, want some", len(ctx.Response.Body()), err)
		}
	}
}

func TestPageOfAServerBelow(t *testing.T) {
	r := newWebRig(t, Config{Parents: []string{"root:5506"}, Election: elsewhere{}, Address: "us:5506"})
	r.onMastership(Mastership{Leading: true, Until: begin().Add(10 * time.Second)})
	has(t, "/capacity", r.page(t, "/capacity"), "<dt>Parents</dt><dd>root:5506</dd>",
		"<dt>Parent</dt><dd>none answers; it did never yet</dd>",
		`this is the master, until <time datetime="2027-01-15T08:00:10Z">in 10s</time>`)
	r.mu.Lock()
	r.parent.address, r.parent.answeredAt = "root-2:5506", begin().Add(-3*time.Second)
	r.parent.fault = errors.New("root-2:5506: <nobody> there")
	r.mu.Unlock()
	has(t, "/capacity", r.page(t, "/capacity"), "<dt>Parent</dt><dd>root-2:5506, which answered "+
		`<time datetime="2027-01-15T07:59:57Z">3s ago</time></dd>`,
		"<dt>Trouble</dt><dd>root-2:5506: &lt;nobody&gt; there</dd>")
	r.onMastership(Mastership{Leader: "them:5506"})
	has(t, "/capacity", r.page(t, "/capacity"),
		"<dd>not the master</dd>", "<dt>Master</dt><dd>them:5506</dd>", "for this is not the master")
	for leader, want := range map[string]string{
		"them:5506": `404 resource "r" is unknown here: this server is not the master, which is at them:5506`,
		"":          `404 resource "r" is unknown here: this server is not the master, and there is none`,
	} {
		r.onMastership(Mastership{Leader: leader})
		if got, _ := r.ask(t, "GET /capacity/r"); got != want {
			t.Errorf("GET /capacity/r = %s, want %s", got, want)
		}
	}
}

// A page shows where templates come from, and nobody's password.
func TestPageShowsNoPasswords(t *testing.T) {
	for source, want := range map[string]string{
		"": "", "capacity.yaml": "capacity.yaml", "file:a@b.yaml": "file:a@b.yaml",
		"etcd://a:2379,b:2379/c/d":           "etcd://a:2379,b:2379/c/d",
		"etcd://me:p%40ss@a:2379,b:2379/c@d": "etcd://a:2379,b:2379/c@d",
		"etcd://me:p@ss@a:2379":              "etcd://a:2379",
	} {
		r := newWebRig(t, Config{Source: source})
		var view overview
		readView(t, r, "/capacity?format=json", &view)
		if got := view.Configuration.Source; got != want {
			t.Errorf("the source %s is shown as %s, want %s", source, got, want)
		}
	}
}

// What a server learns, it shows, until when, and why it gives so little.
func TestPageShowsLearning(t *testing.T) {
	r := newWebRig(t, Config{})
	templates := some()
	templates[1].Algorithm.Learning = nil // as long as a lease
	r.Configure(templates, "v1")
	r.take(t, "ada", "r", 3)
	has(t, "/capacity/r", r.page(t, "/capacity/r"), "<dt>Learning</dt><dd>at most until "+
		`<time datetime="2027-01-15T08:00:20Z">in 20s</time>: clients keep what they say they have`)
	has(t, "/capacity", r.page(t, "/capacity"), `<time datetime="2027-01-15T08:00:20Z">in 20s</time></td>`)
	later := begin().Add(time.Hour)
	ahead := []time.Time{begin(), later}
	below := newWebRig(t, Config{Parents: []string{"localhost:1"}, Now: func() time.Time {
		now := ahead[0]
		ahead = ahead[len(ahead)-1:] // it begins at the one and goes on at the other
		return now
	}})
	below.take(t, "ada", "r", 3)
	has(t, "/capacity/r", below.page(t, "/capacity/r"),
		"<dt>Learning</dt><dd>until its parent answers: clients")
}
