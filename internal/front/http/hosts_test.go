package http

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// A distant listener says that it is where others reach it.
type distant struct{ net.Listener }

func (distant) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 5505} }

const mozilla = "User-Agent: Mozilla/5.0 (X11; Linux x86_64)"

// hostCases are requests, with their headers behind bars, and how they are answered on a loopback address
// and on another one. The server knows the name gate.example.
var hostCases = []struct {
	fact, request       string
	loopback, elsewhere int
}{
	{"localhost", "COUNT|Host: localhost:5505", 200, 200},
	{"localhost at a forwarded port", "COUNT|Host: localhost:18080", 200, 200},
	{"in other letters", "COUNT|Host: LocalHost", 200, 200},
	{"with a dot at the end", "COUNT|Host: localhost.:80", 200, 200},
	{"a name below localhost", "COUNT|Host: gate.localhost:80", 200, 200},
	{"an IPv4 address", "COUNT|Host: 127.0.0.1:5505", 200, 200},
	{"another IPv4 address", "COUNT|Host: 192.168.1.5|Origin: http://192.168.1.5", 200, 200},
	{"an IPv6 address", "COUNT|Host: [::1]:5505", 200, 200},
	{"a name it knows", "COUNT|Host: Gate.Example.:5505|Origin: http://Gate.Example.:5505", 200, 200},
	{"none, in HTTP/1.0", "COUNT 1.0", 200, 200},
	{"a service of Compose", "COUNT|Host: gatehouse:5505|User-Agent: Go-http-client/1.1", 421, 200},
	{"another name", "COUNT|Host: evil.example:5505", 421, 200},
	{"another name, in HTTP/1.0", "COUNT 1.0|Host: evil.example", 421, 200},
	{"localhost in front of a name", "COUNT|Host: localhost.evil.example", 421, 200},
	{"localhost at the end of a word", "COUNT|Host: evillocalhost", 421, 200},
	{"an address in front of a name", "COUNT|Host: 127.0.0.1.evil.example", 421, 200},
	{"below a name it knows", "COUNT|Host: a.gate.example", 421, 200},
	{"a whole URL of another name", "GET http://evil.example/v1/counter/c/count|Host: localhost", 421, 200},
	{"a whole URL of its own", "GET http://me@localhost:1/v1/counter/c/count|Host: evil.example", 200, 200},
	{"with an Origin", "COUNT|Host: evil.example|Origin: http://evil.example", 421, 421},
	{"with a Sec-Fetch header", "COUNT|Host: evil.example|Sec-Fetch-Mode: cors", 421, 421},
	{"of the same origin", "COUNT|Host: evil.example|Sec-Fetch-Site: same-origin", 421, 421},
	{"a page in a browser", "COUNT|Host: evil.example|Accept: text/html,*/*;q=0.8|" + mozilla, 421, 421},
	{"an image in a browser", "COUNT|Host: evil.example|Accept: image/avif,image/webp|" + mozilla, 421, 421},
	{"a script in a browser", "COUNT|Host: evil.example|Accept: */*|" + mozilla, 421, 421},
	{"a program that poses as one", "COUNT|Host: evil.example|Accept: text/plain|" + mozilla, 421, 200},
	{"a program that accepts all", "COUNT|Host: evil.example|Accept: */*|User-Agent: curl/8.5.0", 421, 200},
	{"a DELETE", "DELETE /v1/counter/c|Host: evil.example|Origin: http://evil.example", 421, 421},
	{"a list", "GET /v1/counter|Host: evil.example|Sec-Fetch-Site: same-origin", 421, 421},
	{"a question before a request", "OPTIONS /v1/counter/c|Host: evil.example|Origin: http://a.example",
		421, 421},
	{"a POST to a route", "POST /v1/guest/seat|Host: evil.example|Origin: http://evil.example", 421, 421},
	{"a GET of a route's call", "GET /v1/guest/seat|Host: evil.example|Sec-Fetch-Site: none", 421, 421},
	{"health", "GET /healthz|Host: evil.example|Sec-Fetch-Site: none", 200, 200},
	{"readiness", "GET /readyz|Host: 10-0-0-7.pod.cluster.local", 200, 200},
	{"readiness as of old", "GET /.well-known/ready|Host: evil.example", 200, 200},
	{"the documentation", "GET /docs/openapi.json|Host: gate.lan|Accept: text/html|" + mozilla, 421, 200},
	{"the metrics", "GET /metrics|Host: gate.lan|Sec-Fetch-Site: none", 421, 200},
	{"a page of a route", "GET /guest|Host: gate.lan|Accept: text/html|" + mozilla, 421, 200},
	{"a page below a route", "GET /guest/a|Host: gate.lan|Sec-Fetch-Site: same-origin", 421, 200},
	{"a path that there is not", "GET /nothing|Host: gate.lan|Sec-Fetch-Site: none", 421, 421},
}

// A request names the server by a name that nobody else can have, or is no browser's.
func TestHosts(t *testing.T) {
	r := newRig(t, Config{Hosts: []string{"gate.example"}, Routes: guests()})
	elsewhere := r.serve(t, func(l net.Listener) net.Listener { return distant{l} })
	for _, c := range hostCases {
		for where, want := range map[string]int{r.address: c.loopback, elsewhere: c.elsewhere} {
			status, body := askRaw(t, where, strings.Replace(c.request, "COUNT", "GET /v1/counter/c/count",
				1))
			named := strings.Contains(body, "start it with --hosts ")
			if want == http.StatusOK && strings.HasPrefix(c.request, "GET /v1/guest/seat") {
				want = http.StatusNotFound // it is there, and says that
			}
			if status != want || named != (want == http.StatusMisdirectedRequest) {
				t.Errorf("%s, elsewhere %t = %d %q, want %d", c.fact, where == elsewhere, status, body, want)
			}
		}
	}
	const want = `Host is "Evil.example:80", which is no name of this server; ` +
		"start it with --hosts Evil.example to allow it"
	if _, body := askRaw(t, r.address, "GET /v1/counter/c|Host: Evil.example:80"); body != want {
		t.Errorf("another name = %q, want %q", body, want)
	}
}

// A star lets all names in.
func TestAllHosts(t *testing.T) {
	r := newRig(t, Config{Hosts: []string{"*"}})
	status, body := askRaw(t, r.address,
		"GET /v1/counter/c/count|Host: evil.example|Origin: http://evil.example")
	if status != http.StatusOK {
		t.Errorf("another name where all are allowed = %d %q, want 200", status, body)
	}
}

// askRaw sends "METHOD target [version]" with headers behind bars, and reads the answer.
func askRaw(t *testing.T, address, request string) (status int, body string) {
	t.Helper()
	lines := strings.Split(request, "|")
	if words := strings.Fields(lines[0]); len(words) == 3 {
		lines[0] = fmt.Sprintf("%s %s HTTP/%s", words[0], words[1], words[2])
	} else {
		lines[0] += " HTTP/1.1"
	}
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err = io.WriteString(conn, strings.Join(lines, "\r\n")+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%s: %v", request, err)
	}
	return resp.StatusCode, string(text)
}
