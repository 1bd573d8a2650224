package e2e

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// A browser asks on behalf of other people's pages, and ahead of time; every GET here has an effect.
var browsers = []struct {
	fact    string
	headers []string
	cors    string // the flag
	status  int
	allowed string // Access-Control-Allow-Origin
}{
	{"not a browser", nil, "", 200, ""},
	{"typed in", []string{"Sec-Fetch-Site: none"}, "", 200, ""},
	{"our own page", []string{"Sec-Fetch-Site: same-origin"}, "", 200, ""},
	{"another site", []string{"Sec-Fetch-Site: cross-site"}, "", 403, ""},
	{"a script of another site",
		[]string{"Sec-Fetch-Site: cross-site", "Origin: https://a.example"}, "", 403, ""},
	{"an origin that is allowed", []string{"Sec-Fetch-Site: cross-site", "Origin: https://a.example"},
		"https://a.example", 200, "https://a.example"},
	{"one of several", []string{"Sec-Fetch-Site: cross-site", "Origin: https://b.example"},
		"https://a.example,https://b.example", 200, "https://b.example"},
	{"an origin that is not", []string{"Sec-Fetch-Site: cross-site", "Origin: https://a.example.evil"},
		"https://a.example", 403, ""},
	{"an origin of another scheme", []string{"Sec-Fetch-Site: cross-site", "Origin: http://a.example"},
		"https://a.example", 403, ""},
	{"no origin, where some are allowed",
		[]string{"Sec-Fetch-Site: cross-site"}, "https://a.example", 403, ""},
	{"a page without origin",
		[]string{"Sec-Fetch-Site: cross-site", "Origin: null"}, "https://a.example", 403, ""},
	{"all are allowed", []string{"Sec-Fetch-Site: cross-site", "Origin: https://c.example"}, "*", 200,
		"https://c.example"},
	{"a prefetch", []string{"Sec-Purpose: prefetch"}, "", 403, ""},
	{"a prerendered page", []string{"Sec-Purpose: prefetch;prerender"}, "", 403, ""},
	{"a prefetch of older browsers", []string{"Purpose: prefetch"}, "", 403, ""},
	{"a prefetch of Firefox", []string{"X-Moz: prefetch"}, "", 403, ""},
	{"a prefetch of an allowed origin", []string{"Sec-Purpose: prefetch", "Sec-Fetch-Site: cross-site",
		"Origin: https://a.example"}, "https://a.example", 403, "https://a.example"},
	{"another site, by its origin alone", []string{"Origin: https://a.example"}, "", 403, ""},
	{"an allowed origin alone",
		[]string{"Origin: https://a.example"}, "https://a.example", 200, "https://a.example"},
	{"a page at another port", []string{"Sec-Fetch-Site: same-site", "Origin: http://localhost:3000"}, "",
		403, ""},
	{"an allowed page at another port", []string{"Sec-Fetch-Site: same-site",
		"Origin: http://localhost:3000"},
		"http://localhost:3000", 200, "http://localhost:3000"},
	{"an image by plain HTTP", []string{"User-Agent: Mozilla/5.0", "Accept: image/webp,*/*"}, "", 403, ""},
	{"another site, by its Referer", []string{"User-Agent: Mozilla/5.0", "Referer: http://a.example/"}, "",
		403, ""},
	{"our own page, by its Referer", []string{"User-Agent: Mozilla/5.0", "Referer: http://localhost/docs/"},
		"",
		200, ""},
	{"our own page, by its origin alone", []string{"Origin: http://localhost"}, "", 200, ""},
}

func TestBrowserHeaders(t *testing.T) {
	t.Parallel()
	servers := map[string]*server{}
	for _, b := range browsers {
		s := servers[b.cors]
		if s == nil {
			s = start(t, "--cors", b.cors)
			servers[b.cors] = s
		}
		name := fresh(t)
		a := s.get(t, "/v1/counter/"+name+"/count", b.headers...)
		if a.status != b.status || a.header.Get("Access-Control-Allow-Origin") != b.allowed {
			t.Errorf("%s = %s, allowing %q, want %d, allowing %q", b.fact, a,
				a.header.Get("Access-Control-Allow-Origin"), b.status, b.allowed)
		}
		s.want(t, "/v1/counter/"+name+"/value", fmt.Sprintf("200 %d", (403-b.status)/203))
	}
}

// An allowed origin may ask first.
func TestPreflight(t *testing.T) {
	t.Parallel()
	s := start(t, "--cors", "https://a.example")
	c := s.dial(t)
	c.ask("OPTIONS /v1/counter/c", "Origin: https://a.example", "Sec-Fetch-Site: cross-site",
		"Access-Control-Request-Method: DELETE")
	a := c.answer()
	if a.status != 200 || a.header.Get("Access-Control-Allow-Origin") != "https://a.example" ||
		!strings.Contains(a.header.Get("Access-Control-Allow-Methods"), "DELETE") {
		t.Errorf("preflight = %s with %v, want 200 and DELETE allowed to the origin", a, a.header)
	}
}

// reboundName is a name of another site that has this machine's address.
const reboundName = "rebound.example"

// chromiumFlags are what the browser here is started with: it reaches nothing but this machine.
func chromiumFlags(t *testing.T) []string {
	t.Helper()
	return []string{
		"--remote-debugging-pipe", "--headless", "--no-sandbox", "--disable-gpu",
		"--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update",
		"--disable-sync", "--disable-dev-shm-usage",
		"--host-resolver-rules=MAP " + reboundName + " 127.0.0.1, MAP * ~NOTFOUND, " +
			"EXCLUDE localhost, EXCLUDE 127.0.0.1",
		"--user-data-dir=" + profile(t),
	}
}

// profile makes a folder for a browser, some of whose processes still write there when it has ended.
func profile(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "chromium") //nolint:usetesting // TempDir fails the test at once
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		await.True(t, "the folder of the browser is gone", func() bool { return os.RemoveAll(folder) == nil })
	})
	return folder
}

// attack is a page that tries what a page can to make a browser ask another site.
const attack = `<!doctype html><title>attack</title><body><pre id="out"></pre>
<img src="%[1]s?id=img"><script src="%[1]s?id=script"></script><link rel="stylesheet" href="%[1]s?id=css">
<link rel="prefetch" href="%[1]s?id=prefetch"><iframe src="%[1]s?id=iframe"></iframe>
<object data="%[1]s?id=object"></object><video src="%[1]s?id=video"></video>
<form id="form" action="%[1]s" target="there"><input name="id" value="form"></form>
<iframe name="there"></iframe>
<script>
const out = document.getElementById("out");
const tell = what => { out.textContent += what + ";" };
fetch("%[1]s?id=cors").then(r => r.text()).then(text => tell("read " + text), () => tell("cors failed"));
fetch("%[1]s?id=nocors", {mode: "no-cors"})
	.then(r => tell("no-cors " + r.type), () => tell("no-cors failed"));
navigator.sendBeacon("%[1]s?id=beacon");
document.getElementById("form").submit();
</script>`

// A page of another site gets nothing through: the counter it would count stays 0. The same page counts
// where its origin is allowed, which shows that it tries.
func (b *browser) testPageOfAnotherSite(t *testing.T) {
	t.Parallel()
	for _, allowed := range []bool{false, true} {
		target, name := "", fresh(t)
		page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			_, _ = fmt.Fprintf(w, attack, target) // what does not arrive is noticed below
		}))
		t.Cleanup(page.Close)
		origin := page.URL // http://127.0.0.1:…, which is another site than localhost
		s := start(t, "--cors", map[bool]string{true: origin}[allowed])
		_, port, _ := net.SplitHostPort(s.address)
		target = "http://localhost:" + port + "/v1/counter/" + name + "/count"
		_, shown, _ := strings.Cut(b.openTab(t).settle(origin), `<pre id="out">`)
		shown, _, _ = strings.Cut(shown, "</pre>")
		count := s.get(t, "/v1/counter/"+name+"/value").body
		switch {
		case !strings.Contains(shown, "no-cors"):
			t.Errorf("the page did not come to its end, it shows %q", shown)
		case !allowed && (count != "0" || strings.Contains(shown, "read ")):
			t.Errorf("a page of another site counted to %s and shows %q, want 0", count, shown)
		case allowed && (count == "0" || !strings.Contains(shown, "read ")):
			t.Errorf("a page of an allowed origin counted to %s and shows %q, want at least 1", count, shown)
		}
	}
}
