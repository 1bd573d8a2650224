package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// A server on localhost takes requests by the names that it has, and no web page can have.
func TestHostsOfTheServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		flags, fact, request string
		headers              []string
		want                 string
	}{
		{"", "another name", "/v1/counter/NAME/count", []string{"evil.example:5505"},
			otherHost("evil.example")},
		{"", "another name and its Origin", "DELETE /v1/counter/NAME",
			[]string{"evil.example", "Origin: http://evil.example", "Sec-Fetch-Site: same-origin"},
			otherHost("evil.example")},
		{"", "a lease for another name", "POST /v1/capacity/get",
			[]string{"evil.example", "Origin: http://evil.example"}, otherHost("evil.example")},
		{"", "names for another name", "/v1/counter", []string{"evil.example"}, otherHost("evil.example")},
		{"", "metrics for another name", "/metrics", []string{"evil.example"}, otherHost("evil.example")},
		{"", "health for another name", "/.well-known/ready", []string{"evil.example"},
			"200 OK: I'm ready!\n"},
		{"", "a page of another port", "/v1/counter/NAME/count",
			[]string{"localhost:5505", "Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"},
			`403 Forbidden: request comes from a web page of another site, Origin "http://localhost:3000"; ` +
				"start the server with --cors ORIGIN to allow it"},
		{"", "an image for a page of plain HTTP", "/v1/counter/NAME/count",
			[]string{"127.0.0.1", "User-Agent: Mozilla/5.0", "Accept: image/avif,*/*",
				"Referer: http://a.example/b"},
			`403 Forbidden: request comes from a web page of another site, Referer "http://a.example/b", ` +
				"without an Origin; only --cors '*' allows that"},
		{"--cors http://localhost:3000", "an allowed page of another port", "/v1/counter/NAME/count",
			[]string{"localhost:5505", "Origin: http://localhost:3000", "Sec-Fetch-Site: same-site"},
			"200 OK: 1"},
		{"--hosts app.example,other.example", "a name that was given", "/v1/counter/NAME/count",
			[]string{"App.Example:443", "Origin: https://App.Example:443"}, "200 OK: 1"},
		{"--hosts app.example", "another than was given", "/v1/counter/NAME/count",
			[]string{"evil.example"}, otherHost("evil.example")},
		{"--advertise gate-1.example:5506", "the name that it tells others", "/v1/counter/NAME/count",
			[]string{"gate-1.example:5505"}, "200 OK: 1"},
		{"--http 0.0.0.0:0 --insecure", "a service of Compose", "/v1/counter/NAME/count",
			[]string{"gatehouse:5505"},
			"200 OK: 1"},
		{"--http 0.0.0.0:0 --insecure", "a page, where all addresses are listened on",
			"/v1/counter/NAME/count",
			[]string{"evil.example", "Origin: http://evil.example"}, otherHost("evil.example")},
		{"--hosts *", "any", "/v1/counter/NAME/count", []string{"evil.example"}, "200 OK: 1"},
	} {
		s, name := shared(), fresh(t)
		if c.flags != "" {
			s = start(t, strings.Fields(c.flags)...)
		}
		conn := s.dial(t)
		method, path, _ := strings.Cut(c.request, " ")
		if path == "" {
			method, path = "GET", method
		}
		conn.send(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n\r\n", method, strings.Replace(path, "NAME",
			name, 1),
			strings.Join(c.headers, "\r\n")))
		conn.method = method
		wanted := strings.Replace(c.want, `"evil.example"`, fmt.Sprintf("%q", c.headers[0]), 1)
		if got := conn.answer().String(); got != wanted {
			t.Errorf("%s, with %q = %s, want %s", c.fact, c.flags, got, wanted)
		}
		if !strings.HasPrefix(c.want, "200") {
			s.want(t, "/v1/counter/"+name+"/value", "200 0")
		}
	}
}

// toServer is a proxy that works as nginx does: it asks by the Host that its client sent when that is
// wanted, and by the server's address otherwise.
func toServer(s *server, keepHost bool) *httputil.ReverseProxy {
	to := &url.URL{Scheme: "http", Host: s.address}
	return &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(to)
		if keepHost {
			r.Out.Host = r.In.Host
		}
	}}
}

// Who comes through a proxy or a forwarded port is served, and a browser when the server knows the proxy's
// name.
func TestHostsBehindAProxy(t *testing.T) {
	t.Parallel()
	plain, named := start(t), start(t, "--hosts", "app.example")
	const browser = "Origin: https://app.example"
	for _, c := range []struct {
		fact     string
		s        *server
		keepHost bool
		headers  []string
		status   int
	}{
		{"a program, by the server's address", plain, false, nil, 200},
		{"a program, by the proxy's name", plain, true, nil, 421},
		{"a program, by the proxy's name that was given", named, true, nil, 200},
		{"a browser, by the server's address", named, false, []string{browser}, 403},
		{"a browser, by the proxy's name that was given", named, true, []string{browser}, 200},
		{"a page of another site, by that name", named, true, []string{"Origin: https://evil.example"}, 403},
	} {
		proxy := httptest.NewServer(toServer(c.s, c.keepHost))
		t.Cleanup(proxy.Close)
		proxied := &server{address: proxy.Listener.Addr().String()}
		conn := proxied.dial(t)
		conn.send("GET /v1/counter/" + fresh(t) + "/count HTTP/1.1\r\n" +
			strings.Join(append([]string{"Host: app.example"}, c.headers...), "\r\n") + "\r\n\r\n")
		if a := conn.answer(); a.status != c.status {
			t.Errorf("%s = %s, want %d", c.fact, a, c.status)
		}
	}
	forwarded := &server{address: forward(t, plain.address)}
	forwarded.want(t, "/v1/counter/"+fresh(t)+"/count", "200 1")
}

// forward hands all that comes to a port of its own to an address, as ssh -L and Docker do.
func forward(t *testing.T, to string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			go pipe(there, from)
			go pipe(from, there)
		}
	}()
	return listener.Addr().String()
}

// rebound is the page of a name whose address becomes that of the server when the page is there.
const rebound = `<!doctype html><title>rebound</title><pre id="out"></pre><script>
const out = document.getElementById("out");
const ask = (method, path, body) => fetch(path, {method, body}).then(r => r.status, () => "failed");
(async () => {
	const told = [];
	for (const [method, path, body] of [["GET", "/v1/counter/NAME/count"], ["DELETE", "/v1/counter/NAME"],
			["GET", "/v1/counter"], ["GET", "/metrics"],
			["POST", "/v1/capacity/get", '{"client_id":"a","resource":[{"resource_id":"NAME","wants":1}]}']])
		told.push(await ask(method, path, body));
	out.textContent = "told " + told.join(" ") + ";";
})();
</script>`

// A page whose name is given the server's address (DNS rebinding) reads and changes nothing. By a name that
// the server knows the same page does; that there is no capacity is then the answer.
func (b *browser) testReboundPage(t *testing.T) {
	t.Parallel()
	for flags, want := range map[string]string{
		"":                               "told 421 421 421 421 421;",
		"--hosts " + reboundName:         "told 200 204 200 200 503;",
		"--hosts some.example,a.example": "told 421 421 421 421 421;",
	} {
		s, name := start(t, strings.Fields(flags)...), fresh(t)
		s.want(t, "/v1/counter/"+name+"/count?amount=5", "200 5")
		proxy := toServer(s, true)
		site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/page" {
				w.Header().Set("Content-Type", "text/html; charset=utf-8")
				_, _ = fmt.Fprint(w, strings.ReplaceAll(rebound, "NAME", name)) // else it is noticed below
				return
			}
			proxy.ServeHTTP(w, r)
		}))
		t.Cleanup(site.Close)
		_, port, _ := net.SplitHostPort(site.Listener.Addr().String())
		page := b.openTab(t).settle("http://" + reboundName + ":" + port + "/page")
		if !strings.Contains(page, want) {
			t.Errorf("the page of a rebound name, with %q, shows %.400q, want %s", flags, page, want)
		}
		if flags == "" {
			s.want(t, "/v1/counter/"+name+"/value", "200 5")
		}
	}
}

// pipe copies what comes until one of the ends closes.
func pipe(to, from net.Conn) {
	_, _ = io.Copy(to, from)
	_ = to.Close()
	_ = from.Close()
}
