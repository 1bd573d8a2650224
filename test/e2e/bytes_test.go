package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"net"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const mib = 1 << 20

// figure is a line of /metrics that has no labels, or is given with them.
func (s *server) figure(t *testing.T, name string) float64 {
	t.Helper()
	for line := range strings.Lines(s.get(t, "/metrics").body) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			number, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil {
				t.Fatal(err)
			}
			return number
		}
	}
	t.Errorf("/metrics has no %s", name)
	return math.NaN()
}

// growth is by how much the memory of a server has grown while something was done. What was collected
// meanwhile counts, because what Go once had of the system stays in this figure.
func (s *server) growth(t *testing.T, do func()) int {
	t.Helper()
	const peak = "go_memstats_sys_bytes"
	before := s.figure(t, peak)
	do()
	return int(s.figure(t, peak) - before)
}

// dialSlow connects with the smallest receive buffer there is.
func (s *server) dialSlow(t *testing.T) *conn {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var failed error
		err := raw.Control(func(fd uintptr) {
			failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2304)
		})
		if err != nil {
			return err
		}
		return failed
	}}
	tcp, err := dialer.DialContext(t.Context(), "tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tcp.Close() })
	c := &conn{TCPConn: tcp.(*net.TCPConn), t: t, reader: bufio.NewReaderSize(tcp, 64)}
	c.within(2 * patience)
	return c
}

// begun reads the first line of an answer and leaves the rest unread.
func (c *conn) begun() string {
	c.t.Helper()
	line, err := c.reader.ReadString('\n')
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	return strings.TrimSpace(line)
}

// The largest page of /docs/ is sent to all from the same bytes.
func TestAssetsCostNoMemoryPerClient(t *testing.T) {
	t.Parallel()
	s := start(t)
	const clients, idle = 400, 48 << 10 // the buffers and stacks that an active connection has anyway
	s.get(t, "/docs/api/")
	grown := s.growth(t, func() {
		readers := make([]*conn, clients)
		for i := range readers {
			readers[i] = s.dialSlow(t)
			readers[i].ask("/docs/api/")
		}
		for _, r := range readers {
			if line := r.begun(); line != "HTTP/1.1 200 OK" {
				t.Fatalf("answer = %s, want 200", line)
			}
		}
	})
	t.Logf("%d clients that do not read: memory grew by %d KiB", clients, grown>>10)
	if grown > clients*idle {
		t.Errorf("%d clients that do not read made memory grow by %d MiB, want less than %d",
			clients, grown/mib, clients*idle/mib)
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	s := shared()
	const path = "/docs/assets/style.css"
	plain, packed := s.get(t, path), s.get(t, path, "Accept-Encoding: gzip")
	if plain.header.Get("Content-Encoding") != "" || packed.header.Get("Content-Encoding") != "gzip" ||
		len(packed.body) >= len(plain.body) || plain.header.Get("Vary") != "Accept-Encoding" {
		t.Errorf("plain %v of %d bytes, packed %v of %d", plain.header, len(plain.body), packed.header,
			len(packed.body))
	}
	if got := plain.header.Get("Content-Type"); got != "text/css; charset=utf-8" {
		t.Errorf("Content-Type = %q, want that of a style sheet", got)
	}
	again := s.get(t, path, "If-None-Match: "+plain.header.Get("ETag"))
	if again.status != 304 || again.body != "" {
		t.Errorf("with the tag of what is known: %.40s, want 304 without a body", again)
	}
	s.want(t, "/docs/nothing.css", "404 path is…")
	s.want(t, "/docs/%zz", `400 path is "/docs/%zz", want every % followed by two hexadecimal digits`)
}

// What a client announces costs nothing until it comes. All of them are answered before the peak is read.
func TestAnnouncedBodiesCostNothing(t *testing.T) {
	t.Parallel()
	s := start(t, "--read-timeout", "3s", "--idle-timeout", "1h")
	const clients, idle = 1000, 40 << 10
	targets := []string{"POST /anything", "POST /v1/capacity/get"}
	grown := s.growth(t, func() {
		conns := make([]*conn, clients)
		for i := range conns {
			conns[i] = s.dial(t)
			headers := []string{"Content-Length: 65536"}
			if i%4 < 2 {
				headers = append(headers, "Expect: 100-continue")
			}
			conns[i].ask(targets[i%2], headers...)
		}
		for _, c := range conns { // behind a "100 Continue" too it is the read timeout that counts
			a, err := c.read()
			if err == nil && a.status == 100 {
				a, err = c.read()
			}
			if err != nil || a.status != 408 {
				t.Fatalf("a body that does not come is answered with %v, %v, want 408", a, err)
			}
		}
	})
	t.Logf("%d announced bodies: memory grew by %d KiB", clients, grown>>10)
	if grown > clients*idle {
		t.Errorf("%d announced bodies made memory grow by %d MiB, want less than %d",
			clients, grown/mib, clients*idle/mib)
	}
}

// A body that no route reads is thrown away, and what comes behind it is the next request, also when the
// connection is parked in between.
func TestBodiesAreDiscarded(t *testing.T) {
	t.Parallel()
	c := shared().dial(t)
	name := fresh(t)
	whole := strings.Repeat("GET /v1/counter/"+name+"/count HTTP/1.1\r\n", 1500)[:60_000]
	sized := "Content-Length: " + strconv.Itoa(len(whole))
	chunk := strconv.FormatInt(int64(len(whole)), 16) + "\r\n" + whole + "\r\n0\r\n\r\n"
	for _, request := range []string{
		"/v1/event/" + name + "/wait?maxwait=1", "/v1/counter/" + name + "/value",
	} {
		for _, raw := range []string{
			rawRequest(request, sized) + whole, rawRequest(request, "Transfer-Encoding: chunked") + chunk,
		} {
			c.send(raw + rawRequest("/v1/counter/"+name+"/value"))
			if a := c.answer(); a.status != 408 && !a.is("200 0") {
				t.Errorf("%s with a body = %s, want what it is without", request, a)
			}
			if a := c.answer(); !a.is("200 0") {
				t.Errorf("what comes behind the body of %s = %s, want 200 0", request, a)
			}
		}
	}
}

// Bodies count while they arrive, and are given back.
func TestBodiesAreBudgeted(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-buffered", "256KiB")
	part := strings.Repeat(" ", 60_000)
	var refused int
	var conns []*conn
	for range 10 {
		c := s.dial(t)
		c.ask("POST /v1/capacity/get", "Content-Length: 65536")
		c.send(part)
		conns = append(conns, c)
	}
	until(t, "those beyond the budget are refused", func() bool {
		return s.figure(t, "gatehouse_buffered_refusals_total") >= 6
	})
	if used := s.figure(t, "gatehouse_buffered_bytes"); used == 0 || used > 256<<10 {
		t.Errorf("%v bytes are buffered, want some, and at most 256 KiB", used)
	}
	for _, c := range conns {
		c.send(part[:65536-len(part)])
		a, err := c.read()
		if err != nil || a.is("503 server buffers as many bytes as it allows; try again soon") {
			refused++
		} else if a.status != 400 { // JSON it is not
			t.Errorf("a body within the budget = %s, want 400", a)
		}
		_ = c.Close()
	}
	if refused < 6 {
		t.Errorf("%d bodies were refused, want at least 6", refused)
	}
	if used := s.figure(t, "gatehouse_buffered_bytes"); used != 0 {
		t.Errorf("%v bytes are buffered in the end, want 0", used)
	}
}

// A list ends at 256 KiB of names, and clients that do not read it share the budget.
func TestListsEndByBytes(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-buffered", "2MiB")
	const names, readers = 1000, 100
	filler := strings.Repeat("%3C", 508) // each "<" would be six bytes in JSON that is meant for HTML too
	c := s.dial(t)
	for i := range names {
		c.ask(fmt.Sprintf("/v1/event/%04d%s/send", i, filler))
		c.answer()
	}
	var list struct {
		Names []string
		Next  string
	}
	seen, after, pages := 0, "", 0
	for more := true; more; more = list.Next != "" {
		a := s.get(t, "/v1/event?limit=1000&after="+url.QueryEscape(after))
		if err := json.Unmarshal([]byte(a.body), &list); err != nil || len(a.body) > 300<<10 {
			t.Fatalf("a list has %d bytes, %v, want at most 300 KiB", len(a.body), err)
		}
		seen, after, pages = seen+len(list.Names), list.Next, pages+1
	}
	if seen != names || pages != 2 {
		t.Errorf("%d lists have %d names, want 2 with %d", pages, seen, names)
	}
	var slow []*conn
	grown := s.growth(t, func() {
		counts := make(map[string]int)
		for range readers {
			r := s.dialSlow(t)
			r.ask("/v1/event?limit=1000")
			counts[r.begun()]++
			slow = append(slow, r)
		}
		if counts["HTTP/1.1 200 OK"] < 5 || counts["HTTP/1.1 503 Service Unavailable"] < readers/2 {
			t.Errorf("clients that do not read got %v, want some 200, and 503 for the rest", counts)
		}
	})
	t.Logf("%d clients that do not read lists: memory grew by %d KiB", readers, grown>>10)
	if grown > 24*mib {
		t.Errorf("%d clients that do not read lists made memory grow by %d MiB, want at most 24",
			readers, grown/mib)
	}
	if used := s.figure(t, "gatehouse_buffered_bytes"); used == 0 || used > 2*mib {
		t.Errorf("%v bytes are buffered, want some, and at most 2 MiB", used)
	}
	for _, r := range slow {
		_ = r.Close()
	}
	until(t, "what they had is given back", func() bool {
		return s.figure(t, "gatehouse_buffered_bytes") == 0
	})
}

// What is sent behind a request that waits takes no more room than it has bytes, and counts.
func TestBytesBehindAWait(t *testing.T) {
	t.Parallel()
	s := start(t)
	const clients, behind = 1000, 7 << 10
	name := fresh(t)
	wait := rawRequest("/v1/event/" + name + "/wait")
	padding := rawRequest("/v1/counter/"+name+"/count", "X-Padding: "+strings.Repeat("x", behind))
	padding = padding[:behind] // half a request
	var conns []*conn
	grown := s.growth(t, func() {
		for range clients {
			c := s.dial(t)
			c.send(wait + padding)
			conns = append(conns, c)
		}
		until(t, "all wait", func() bool { return s.figure(t, "gatehouse_waiting") == clients })
		// A connection is parked, and what is behind its request counts, some milliseconds after that waits.
		until(t, "what is behind them counts", func() bool {
			return s.figure(t, "gatehouse_buffered_bytes") == clients*behind
		})
	})
	t.Logf("%d bytes behind each of %d waiters: memory grew by %d KiB", behind, clients, grown>>10)
	if grown > clients*40<<10 { // with the buffers of connections under way, and what is not collected yet
		t.Errorf("memory grew by %d KiB a waiter, want at most 40", grown/clients>>10)
	}
	s.want(t, "/v1/event/"+name+"/send", "204")
	for _, c := range conns {
		if a := c.answer(); !a.is("204") {
			t.Fatalf("a waiter got %s, want 204", a)
		}
		_ = c.Close()
	}
	until(t, "it is given back", func() bool { return s.figure(t, "gatehouse_buffered_bytes") == 0 })
}

// A long message is in the body: proxies have 4 or 8 KB for headers.
func TestLongMessage(t *testing.T) {
	t.Parallel()
	s := shared()
	for _, c := range []struct {
		length int
		want   string
	}{{682, "204"}, {683, "200 "}, {2500, "200 "}} {
		name := fresh(t)
		message := strings.Repeat("\x01", c.length)
		s.want(t, "/v1/event/"+name+"/send?message="+strings.Repeat("%01", c.length), "204")
		a := s.get(t, "/v1/event/"+name+"/wait")
		escaped := a.header.Get("X-Bouncer-Message")
		if c.want == "200 " && (a.status != 200 || a.body != message || escaped != "") ||
			c.want == "204" && (a.status != 204 || escaped != url.PathEscape(message)) {
			t.Errorf("a message of %d control characters = %s, header of %d bytes, want %s",
				c.length, a.line, len(escaped), c.want)
		}
	}
}

// All listeners share one budget: what a RESP client does not read is missing for large answers over HTTP,
// and for them alone.
func TestOneBudgetForAllListeners(t *testing.T) {
	t.Parallel()
	s := startCapacity(t, "--grpc", "localhost:0", "--capacity-config", writeTemplates(t, shares),
		"--max-buffered", "1MiB")
	var asks []string
	for i := range 1000 {
		asks = append(asks, fmt.Sprintf(`{"resource_id":"resource-%04d","wants":1}`, i))
	}
	body := `{"client_id":"c","resource":[` + strings.Join(asks, ",") + `]}`
	c := s.dial(t)
	c.send(rawRequest("POST /v1/capacity/get", "Content-Length: "+strconv.Itoa(len(body))) + body)
	if a := c.answer(); a.status != 200 || len(a.body) < 64<<10 {
		t.Fatalf("leases on 1000 resources = %.200s, want 200 and a large answer", a)
	}
	const page = "/capacity?limit=1000&format=json"
	s.want(t, page, "200")
	// Several clients, because buffers double: one alone has half of what is left, or is cut.
	clients, next := make([]*redisConn, 6), 0
	echoes := strings.Repeat(redisCommand("ECHO "+strings.Repeat("x", 8000)), 8)
	until(t, "answers are left unread, and large ones over HTTP have no room", func() bool {
		client := &clients[next%len(clients)]
		next++
		if *client == nil {
			*client = dialRedis(t, s.redisAddress(t))
			if err := (*client).SetReadBuffer(2304); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := (*client).Write([]byte(echoes)); err != nil { // it had more than there is, and was cut
			*client = nil
		}
		return s.get(t, page).is("503 server buffers as many bytes as it allows; try again soon")
	})
	s.want(t, "/v1/counter/c/count", "200 1")
	s.want(t, "/metrics", "200")
	for _, client := range clients {
		if client != nil {
			_ = client.Close()
		}
	}
	until(t, "they are given back", func() bool { return s.get(t, page).status == 200 })
}

// Answers of up to 64 KiB count like larger ones: there may be as many of them as connections. What a
// decision is answered with is never refused.
func TestSmallerAnswersShareTheBudget(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-buffered", "1MiB")
	const names, readers = 100, 60
	c := s.dial(t)
	for i := range names {
		c.ask(fmt.Sprintf("/v1/event/%04d%s/send", i, strings.Repeat("x", 508)))
		c.answer()
	}
	for range readers {
		r := s.dialSlow(t)
		for range 4 { // the system takes the first
			r.ask("/v1/event?limit=100")
		}
	}
	until(t, "some are refused", func() bool {
		return s.figure(t, "gatehouse_buffered_refusals_total") > 0
	})
	if used := s.figure(t, "gatehouse_buffered_bytes"); used > mib {
		t.Errorf("%v bytes are buffered, want at most 1 MiB", used)
	}
	s.want(t, "/v1/counter/c/count", "200 1")
}
