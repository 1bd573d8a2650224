package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// A conn is one connection to a server, on which requests are written as they are.
type conn struct {
	*net.TCPConn
	t      *testing.T
	reader *bufio.Reader
	asked  time.Time // when the last request was sent
	method string    // of the last request
	// bounded says that the test has said how long all further answers may take.
	bounded bool
}

// dial connects for the length of the test.
func (s *server) dial(t *testing.T) *conn {
	t.Helper()
	var dialer net.Dialer
	tcp, err := dialer.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	c := &conn{TCPConn: tcp.(*net.TCPConn), t: t, reader: bufio.NewReader(tcp)}
	c.renew()
	return c
}

// renew gives the next answer all the time it may need, unless the test has said how long it may take.
func (c *conn) renew() {
	if !c.bounded {
		_ = c.SetDeadline(time.Now().Add(2 * patience))
	}
}

// within gives all further answers together so much time from now.
func (c *conn) within(d time.Duration) {
	c.t.Helper()
	c.bounded = true
	if err := c.SetDeadline(time.Now().Add(d)); err != nil {
		c.t.Fatal(err)
	}
}

// send writes bytes as they are. That the server does not want them any more is no failure.
func (c *conn) send(raw string) {
	c.t.Helper()
	c.asked = time.Now()
	c.renew()
	c.method, _, _ = strings.Cut(raw, " ")
	_, _ = io.WriteString(c.TCPConn, raw)
}

// ask sends a request: "/path", or "METHOD /path".
func (c *conn) ask(request string, headers ...string) {
	c.t.Helper()
	c.send(rawRequest(request, headers...))
}

// rawRequest is a request on the wire: of "/path", or "METHOD /path".
func rawRequest(request string, headers ...string) string {
	if strings.HasPrefix(request, "/") {
		request = "GET " + request
	}
	lines := append([]string{request + " HTTP/1.1", "Host: localhost"}, headers...)
	return strings.Join(lines, "\r\n") + "\r\n\r\n"
}

// hangUp ends the connection now. Close alone may not: a child process that is just being started has
// the socket too, for a moment.
func (c *conn) hangUp() {
	_ = c.CloseWrite()
	_ = c.Close()
}

// An answer is a response that was read to its end.
type answer struct {
	status int
	line   string // such as "204 No Content"
	body   string
	header http.Header
	last   bool // it ends its connection
}

// String is the status and the body, as the tables write them.
func (a *answer) String() string {
	if a.body == "" {
		return a.line
	}
	return a.line + ": " + a.body
}

// read reads the next answer on the connection.
func (c *conn) read() (*answer, error) {
	c.renew()
	resp, err := http.ReadResponse(c.reader, &http.Request{Method: c.method})
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(resp.Body)
	a := &answer{resp.StatusCode, resp.Status, string(body), resp.Header, resp.Close}
	return a, errors.Join(err, resp.Body.Close())
}

// answer reads the next answer, which must be there and be well-behaved.
func (c *conn) answer() *answer {
	c.t.Helper()
	a, err := c.read()
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	for _, fault := range a.faults(c.method) {
		c.t.Errorf("answer %s: %s", a, fault)
	}
	return a
}

// faults is what no answer may do, whatever it answers.
func (a *answer) faults(method string) (faults []string) {
	note := func(wrong bool, format string, args ...any) {
		if wrong {
			faults = append(faults, fmt.Sprintf(format, args...))
		}
	}
	h := a.header
	for name := range h {
		own := name == "X-Content-Type-Options" || name == "X-Bouncer-Message"
		note(strings.HasPrefix(name, "X-") && !own, "header %s, want none of ours that begins with X-", name)
	}
	if a.status == http.StatusNoContent {
		note(a.body != "" || h["Content-Length"] != nil || h["Content-Type"] != nil,
			"headers %v, want no body, Content-Length or Content-Type", h)
	}
	if a.status == http.StatusServiceUnavailable {
		note(h.Get("Retry-After") == "", "no Retry-After, want one")
	}
	if a.status < 400 || method == http.MethodHead {
		return faults
	}
	note(h.Get("X-Content-Type-Options") != "nosniff", "no X-Content-Type-Options: nosniff, want it")
	if h.Get("Content-Type") != "application/problem+json" {
		note(h.Get("Content-Type") != "text/plain; charset=utf-8",
			"Content-Type = %q, want text/plain; charset=utf-8", h.Get("Content-Type"))
		note(a.body == "" || strings.ContainsAny(a.body, "\r\n"), "want one sentence without line ends")
	}
	return faults
}

// get makes one request on a connection of its own.
func (s *server) get(t *testing.T, request string, headers ...string) *answer {
	t.Helper()
	c := s.dial(t)
	c.ask(request, headers...)
	a := c.answer()
	_ = c.Close()
	return a
}

// want makes one request, which must be answered as the pattern says.
func (s *server) want(t *testing.T, request, pattern string) *answer {
	t.Helper()
	a := s.get(t, request)
	if !a.is(pattern) {
		t.Errorf("%s = %s, want %s", request, a, pattern)
	}
	return a
}

// is compares with "204", or "200 body": … in the body stands for anything, "" for none. Without a
// body, any will do.
func (a *answer) is(pattern string) bool {
	status, body, hasBody := strings.Cut(pattern, " ")
	if body == `""` {
		body = ""
	}
	return status == strconv.Itoa(a.status) && (!hasBody || matches(body, a.body))
}

// matches compares a text with a pattern in which … stands for anything.
func matches(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "…")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !wild {
		return ok && text == ""
	}
	for i := 0; i <= len(text); i++ {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}

// stats are the figures of a controller, at "kind/name"; nil when there is none.
func (s *server) stats(t *testing.T, place string) map[string]any {
	t.Helper()
	a := s.get(t, "/v1/"+place+"/stats")
	if a.status == http.StatusNotFound {
		return nil
	}
	figures := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader([]byte(a.body)))
	decoder.UseNumber()
	if err := decoder.Decode(&figures); err != nil || a.status != http.StatusOK {
		t.Fatalf("stats of %s = %s, want a JSON object", place, a)
	}
	return figures
}

// stat is one figure, 0 when the controller does not exist.
func (s *server) stat(t *testing.T, place, name string) int {
	t.Helper()
	figures := s.stats(t, place)
	if figures == nil {
		return 0
	}
	number, _ := figures[name].(json.Number)
	value, err := strconv.Atoi(string(number))
	if err != nil {
		t.Fatalf("stat %s of %s = %v, want a whole number", name, place, figures[name])
	}
	return value
}

// wait sends a request that has to wait, and returns when it stands in line.
func (s *server) wait(t *testing.T, request string) *conn {
	t.Helper()
	place := placeOf(request)
	before := s.stat(t, place, "waiting")
	c := s.dial(t)
	c.ask(request)
	s.inLine(t, place, before+1)
	return c
}

// inLine waits until so many wait at a place.
func (s *server) inLine(t *testing.T, place string, count int) {
	t.Helper()
	until(t, fmt.Sprintf("%d wait at %s", count, place), func() bool {
		return s.stat(t, place, "waiting") == count
	})
}

// placeOf is "kind/name" of a path.
func placeOf(path string) string {
	path, _, _ = strings.Cut(path, "?")
	path = strings.TrimPrefix(strings.TrimPrefix(path, "/v1"), "/")
	return path[:strings.LastIndex(path, "/")]
}

// until waits for a condition that comes about by itself.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	await.True(t, what, holds)
}

// pause is how long those wait between two requests who ask as long as a test lasts: without it they would
// take all processors from the tests beside them.
const pause = 5 * time.Millisecond

// passes returns when so much time has passed by the clock of the server: it waits for an event that is not
// sent.
func (s *server) passes(t *testing.T, d time.Duration) {
	t.Helper()
	s.want(t, fmt.Sprintf("/v1/event/%s/wait?maxwait=%d", fresh(t), max(d.Milliseconds(), 0)), "408")
}

// quietUntil reads until so much time has passed since the last request, or an answer comes.
func (c *conn) quietUntil(since time.Duration) {
	c.t.Helper()
	_ = c.SetReadDeadline(c.asked.Add(since))
	_, _ = c.reader.Peek(1)
	c.bounded = false
	c.renew()
}

// fresh returns a name that nobody has used.
func fresh(t *testing.T) string {
	t.Helper()
	name := t.Name()[strings.LastIndex(t.Name(), "/")+1:]
	clean := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, name)
	return clean[:min(len(clean), 40)] + "-" + strconv.FormatUint(rand.Uint64(), 36)
}
