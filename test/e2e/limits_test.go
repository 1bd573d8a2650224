package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

// bouncer keeps every name of every GET for ever.
func TestNamesAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-names", "3")
	for _, name := range []string{"a", "b", "c"} {
		s.want(t, "/v1/counter/"+name+"/count", "200 1")
	}
	for _, request := range []string{
		"/v1/counter/d/count", "/v1/semaphore/a/acquire", "/v1/tokenbucket/a/acquire?interval=60000",
		"/v1/event/a/send", "/v1/watchdog/a/kick", "/v1/barrier/a/wait?size=1",
	} {
		a := s.want(t, request, "503 …all 3 names of this server are in use")
		if got := a.header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After of %s = %q, want 1", request, got)
		}
	}
	s.want(t, "/v1/counter/a/count", "200 2") // names that are there go on
	s.want(t, "DELETE /v1/counter/b", "204")
	until(t, "there is room for a name again", func() bool {
		return s.get(t, "/v1/counter/d/count").is("200 1")
	})
	s.want(t, "/v1/counter/e/count", "503")
}

// A name that is at rest makes room for another, however long it might have been in use.
func TestReleasedNamesMakeRoom(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-names", "3")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		until(t, "there is room for another semaphore", func() bool {
			return s.get(t, "/v1/semaphore/"+name+"/acquire?key=k").is("200 k")
		})
		s.want(t, "/v1/semaphore/"+name+"/release?key=k", "204")
	}
}

// Controllers that are as good as new make room for others.
func TestNamesAtRestMakeRoom(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-names", "3", "--keep", "200ms")
	s.want(t, "/v1/semaphore/kept/acquire?key=a", "200")
	for i := range 6 {
		for _, request := range []string{
			"/v1/tokenbucket/%d/acquire?interval=1", "/v1/semaphore/%d/acquire?expires=1",
			"/v1/event/%d/send", "/v1/counter/%d/count", "/v1/barrier/%d/wait?size=1",
			"/v1/watchdog/%d/kick?expires=1",
		} {
			request = fmt.Sprintf(request, i)
			until(t, "there is room for "+request, func() bool { return s.get(t, request).status < 300 })
		}
	}
	s.want(t, "/v1/semaphore/kept/acquire?maxwait=0", "408") // what is worth something stays
	s.want(t, "/v1/semaphore/kept/release?key=a", "204")
}

// bouncer: one client can park as many requests as it likes.
func TestWaitersAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-waiters", "3")
	first := s.wait(t, "/v1/event/e/wait")
	s.wait(t, "/v1/barrier/b/wait")
	s.wait(t, "/v1/semaphore/s/acquire?size=0")
	for _, request := range []string{
		"/v1/event/e/wait", "/v1/tokenbucket/t/acquire?size=0", "/v1/watchdog/w/wait?maxwait=60000",
	} {
		a := s.want(t, request, "503 …3 requests wait at this server already, the most it allows")
		if got := a.header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After of %s = %q, want 1", request, got)
		}
	}
	s.want(t, "/v1/event/e/wait?maxwait=0", "408") // what need not wait is answered
	s.want(t, "/v1/counter/c/count", "200 1")
	first.hangUp()
	s.inLine(t, "event/e", 0)
	w := s.wait(t, "/v1/event/e/wait")
	s.want(t, "/v1/event/e/send", "204")
	if a := w.answer(); !a.is("204") {
		t.Errorf("a waiter after one had left = %s, want 204", a)
	}
}

func TestLinesAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-line", "2")
	w1, w2 := s.wait(t, "/v1/event/e/wait"), s.wait(t, "/v1/event/e/wait")
	a := s.want(t, "/v1/event/e/wait",
		"503 event/e: 2 requests wait in this line already, the most it allows")
	if got := a.header.Get("Retry-After"); got != "1" {
		t.Errorf("Retry-After = %q, want 1", got)
	}
	other := s.wait(t, "/v1/event/other/wait")
	s.want(t, "/v1/event/e/send", "204")
	s.want(t, "/v1/event/other/send", "204")
	for i, w := range []*conn{w1, w2, other} {
		if a := w.answer(); !a.is("204") {
			t.Errorf("waiter %d = %s, want 204", i+1, a)
		}
	}
	s.want(t, "/v1/event/e/wait", "204")
}

func TestConnectionsAreLimited(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-connections", "3")
	var conns []*conn
	for range 3 {
		c := s.dial(t)
		c.ask("/v1/counter/c/count")
		c.answer()
		conns = append(conns, c)
	}
	for range 3 {
		c := s.dial(t)
		c.ask("/v1/counter/c/count")
		a := c.answer()
		if !a.is("503 server has as many connections as it allows; try again soon") || !a.last ||
			a.header.Get("Retry-After") != "1" {
			t.Errorf("a connection too many = %s, closing %t, Retry-After %q, want 503, true, 1",
				a, a.last, a.header.Get("Retry-After"))
		}
		if _, err := c.read(); err == nil {
			t.Error("a connection too many got two answers, want the end after the first")
		}
	}
	conns[0].ask("/v1/counter/c/count")
	if a := conns[0].answer(); !a.is("200 4") {
		t.Errorf("a connection that was there = %s, want 200 4: those too many counted nothing", a)
	}
	conns[1].hangUp()
	until(t, "there is room for a connection", func() bool {
		c := s.dial(t)
		c.ask("/v1/counter/c/count")
		a, err := c.read()
		_ = c.Close()
		return err == nil && a.is("200 5")
	})
}

// bouncer: one slow client holds a goroutine and a buffer of up to a megabyte for half a minute.
func TestSlowSendersAreCut(t *testing.T) {
	t.Parallel()
	s := start(t, "--read-timeout", "3s")
	for fact, pieces := range map[string][]string{
		"one byte":              {"G"},
		"half a request line":   {"GET /v1/coun"},
		"half the headers":      {"GET /v1/counter/c/count HTTP/1.1\r\nHost: localhost\r\nA: b"},
		"all but the last byte": {"GET /v1/counter/c/count HTTP/1.1\r\nHost: localhost\r\n\r"},
		"half a body": {"GET /v1/counter/c/count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n" +
			"abc"},
		"half a chunk": {"GET /v1/counter/c/count HTTP/1.1\r\nHost: localhost\r\n" +
			"Transfer-Encoding: chunked\r\n\r\n" +
			"9\r\nabc"},
		"a byte at a time": strings.Split("GET /v1/counter/c/count HTTP/1.1\r\n", ""),
	} {
		t.Run(fact, func(t *testing.T) {
			t.Parallel()
			begun := time.Now()
			c := s.dial(t)
			for _, piece := range pieces {
				c.send(piece)
				if len(pieces) > 1 {
					s.passes(t, 150*time.Millisecond)
				}
			}
			if a := c.answer(); !a.is("408 request did not arrive within 3s") || !a.last {
				t.Errorf("%s and then silence = %s, closing %t, want 408 and the end", fact, a, a.last)
			}
			if _, err := c.read(); err == nil {
				t.Error("a second answer came, want the end of the connection")
			}
			if took := time.Since(begun); took < 2700*time.Millisecond || took > patience/2 {
				t.Errorf("it was cut after %s, want about 3s", took)
			}
			s.want(t, "/v1/counter/c/value", "200 0")
		})
	}
}

// Who never reads its answers is cut too, and nobody else notices.
func TestWhoDoesNotReadIsCut(t *testing.T) {
	t.Parallel()
	s := start(t, "--write-timeout", "1s", "--read-timeout", "2s")
	s.want(t, "/v1/event/e/send?message="+strings.Repeat("m", 4000), "204")
	greedy := s.dial(t)
	_ = greedy.SetReadBuffer(4096)
	cut := make(chan struct{})
	go func() {
		request := strings.Repeat(rawRequest("/event/e/wait"), 100)
		for {
			if _, err := io.WriteString(greedy.TCPConn, request); err != nil {
				close(cut)
				return
			}
		}
	}()
	kept := s.dial(t)
	for {
		select {
		case <-cut:
			return
		default:
		}
		s.passes(t, 20*time.Millisecond)
		kept.ask("/v1/counter/c/count")
		kept.answer()
		if took := time.Since(kept.asked); took > 5*time.Second {
			t.Fatalf("another client was answered after %s, want it not to notice", took)
		}
	}
}

// bouncer: a name with a line end forges lines of its log. Names here have none, and are escaped.
func TestLogLinesAreNotForged(t *testing.T) {
	t.Parallel()
	for _, format := range []string{"json", "text"} {
		s := start(t, "--log-level", "debug", "--log-format", format, "--max-connections", "1000")
		for _, name := range []string{
			"%22%7D%7B%22level%22:%22ERROR%22", "a%20level=ERROR%20msg=forged", "a%22%20level=ERROR%20b=%22",
			`\n%5Cn`,
			"a%0Alevel=ERROR%20msg=forged", "%1b%5B2J", "%e2%80%ae", "%3Cscript%3E",
		} {
			s.get(t, "/v1/counter/"+name+"/count")
			s.get(t, "/v1/semaphore/"+name+"/acquire?key="+name+"&id="+name)
			s.get(t, "/"+name+"?"+name)
		}
		c := s.dial(t)
		c.send("GET /forged\nlevel=ERROR msg=forged HTTP/1.1\r\n\r\n")
		c.answer()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		lines, _, _ := s.journal.all()
		for _, line := range lines {
			if !wellFormed(format, line) || strings.Contains(line, `"level":"ERROR"`) {
				t.Errorf("log line %q, want one of the server's own, in %s", line, format)
			}
		}
		if len(lines) < 10 {
			t.Errorf("the log has %d lines, want one for each request", len(lines))
		}
	}
}

// wellFormed reports whether a log line is one entry, and of a level that was called for.
func wellFormed(format, line string) bool {
	if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return false
	}
	if format == "json" {
		entry := map[string]any{}
		return json.Unmarshal([]byte(line), &entry) == nil && entry["level"] != "ERROR"
	}
	_, rest, _ := strings.Cut(line, " level=")
	level, _, _ := strings.Cut(rest, " ")
	return strings.HasPrefix(line, "time=") && (level == "DEBUG" || level == "INFO")
}

// bouncer's newest writes a line for every request.
func TestRequestsAreNotLogged(t *testing.T) {
	t.Parallel()
	s := start(t, "--max-connections", "1000") // so that there is no warning of few files
	for range 20 {
		s.want(t, "/v1/counter/c/count", "200")
		s.want(t, "/v1/counter/c/count?x=1", "400")
	}
	lines, _, _ := s.journal.all()
	other := func(line string) bool { return !strings.Contains(line, `"msg":"serving `) }
	if slices.ContainsFunc(lines, other) {
		t.Errorf("after 40 requests the log has\n%s\nwant only where it serves", s.journal)
	}
}
