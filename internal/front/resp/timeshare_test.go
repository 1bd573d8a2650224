package resp

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/panjf2000/gnet/v2"
)

// A pipeline that is longer than any share is answered whole and in order, also by those who share a loop.
func TestSharesLoseNothing(t *testing.T) {
	start := time.Now()
	d := open(t, Config{Now: func() time.Duration { return time.Since(start) }})
	const each = 20_000
	clients := make([]*client, 3*runtime.GOMAXPROCS(0))
	for i := range clients {
		c := d.dial(t)
		clients[i] = c
		var pipeline strings.Builder
		for n := range each {
			fmt.Fprintf(&pipeline, "ECHO %d\r\n", n)
		}
		go c.send(pipeline.String())
	}
	for _, c := range clients {
		for n := range each {
			if got := c.answer(); got != fmt.Sprint(n) {
				t.Fatalf("answer %d = %s, want %d", n, got, n)
			}
		}
	}
}

// A list of the connections is made outside of the event loops, and one at a time.
func TestClientListBlocksItsConnectionAlone(t *testing.T) {
	d := open(t, Config{})
	turn := d.config.Budget.List // somebody else's is being made
	if !turn.Begin(t.Context()) {
		t.Fatal(t.Context().Err())
	}
	c := d.dial(t)
	c.want("CLIENT ID", "1")
	c.send(strings.Repeat(wire("CLIENT", "LIST", "ID", "1"), 1000) + wire("PING"))
	for range 2 * runtime.GOMAXPROCS(0) { // some at each event loop
		d.dial(t).want("PING", "PONG")
	}
	gone := d.dial(t)
	gone.send(wire("CLIENT", "LIST"))
	_ = gone.Close()
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if b, err := c.reader.ReadByte(); err == nil {
		t.Errorf("CLIENT LIST was answered with %q while another was made, want it to wait", b)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	turn.End()
	for range 1000 {
		if got := c.answer(); !strings.HasPrefix(got, "id=1 addr=127.0.0.1:") {
			t.Fatalf("CLIENT LIST ID 1 = %s, want connection 1", got)
		}
	}
	if got := c.answer(); got != "PONG" {
		t.Errorf("PING behind it = %s, want PONG", got)
	}
	c.want("CLIENT LIST ID 77 1 1", c.ask("CLIENT LIST ID 1"))
	c.want("CLIENT LIST ID 77", "")
}

// Lists that others have asked for before cannot keep one waiting for longer than an answer may take, and a
// delete of many names not at all.
func TestListsInFront(t *testing.T) {
	d := open(t, Config{WriteTimeout: 50 * time.Millisecond})
	turn := d.config.Budget.List
	if !turn.Begin(t.Context()) {
		t.Fatal(t.Context().Err())
	}
	defer turn.End()
	c := d.dial(t)
	const others = "-EXHAUSTED server makes one such answer at a time, and others came first; try again soon"
	c.want("CLIENT LIST", others)
	c.want("GH.LIST lock", others)
	c.want("GH.DELETEPREFIX lock a CONFIRM lock", "[0 ]")
}

// What is told about commands is made once.
func TestDescriptionsAreNotMadeAnew(t *testing.T) {
	for _, three := range []bool{false, true} {
		d := open(t, Config{})
		s := &session{server: d.Server, loop: d.loopOf(nil), three: three}
		for _, run := range []func(){func() { s.commandDocs(nil) }, func() { s.commandInfo(nil) }} {
			run()
			again := func() {
				s.loop.reply.out = s.loop.reply.out[:0]
				run()
			}
			if n := testing.AllocsPerRun(10, again); n > 0 {
				t.Errorf("it took %v allocations, want 0", n)
			}
		}
	}
}

// What begins as another protocol is not read for commands.
func TestOtherProtocols(t *testing.T) {
	d := open(t, Config{})
	for _, c := range []struct{ sent, want string }{
		{"GET / HTTP/1.1\r\n", "-ERR Protocol error: HTTP is not spoken here"},
		{"PUT / HTTP/1.1\r\nContent-Length: 4\r\n\r\n", "-ERR Protocol error: HTTP is not spoken here"},
		{"get / http/1.1\r\n", "-ERR Protocol error: HTTP is not spoken here"},
		{"PING  HTTP/1.0\n", "-ERR Protocol error: HTTP is not spoken here"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "-ERR Protocol error: HTTP is not spoken here"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n", "-ERR Protocol error: TLS is not spoken here"},
	} {
		other := d.dial(t)
		other.send(c.sent + "GH.COUNT counter/x\r\n")
		if got := other.answer(); got != c.want {
			t.Errorf("%q = %s, want %s", c.sent, got, c.want)
		}
		other.over()
	}
	d.dial(t).want("GH.COUNT counter/x", "1")
}

// A connection without a command is closed after the idle timeout, if there is one, and one that waits is
// not.
func TestIdleTimeout(t *testing.T) {
	d := open(t, Config{IdleTimeout: 50 * time.Millisecond})
	silent, waiting, once := d.dial(t), d.dial(t), d.dial(t)
	waiting.send(wire("GH.WAIT", "event/a"))
	once.want("PING", "PONG")
	silent.over()
	once.over()
	d.dial(t).want("GH.SEND event/a", "OK")
	if got := waiting.answer(); got != "" {
		t.Errorf("who waited longer than the idle timeout = %q, want the event", got)
	}
	waiting.over()
}

// A client that goes on sending does not keep the server from ending in good order.
func TestShutdownWhileAClientSends(t *testing.T) {
	d := open(t, Config{})
	c := d.dial(t)
	c.want("PING", "PONG")
	go func() { _, _ = io.Copy(io.Discard, c) }()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for pipeline := strings.Repeat("PING\r\n", 10_000); ; {
			if _, err := io.WriteString(c, pipeline); err != nil {
				return
			}
		}
	}()
	until(t, "it sends", func() bool { return d.config.Budget.Used() > 0 })
	d.drainWithin(t, 2*time.Second)
	_ = c.Close()
	<-sent
}

// A wakingConn notes that it was woken.
type wakingConn struct {
	gnet.Conn
	woken chan struct{}
}

func (c *wakingConn) Wake(gnet.AsyncCallback) error {
	c.woken <- struct{}{}
	return nil
}

// The timer of a session that has ended may run after that of the next one. The turns go on all the same.
func TestTurnsAfterALateTimer(t *testing.T) {
	var line wakeQueue
	waking := func() *session { return &session{conn: &wakingConn{woken: make(chan struct{}, 1)}} }
	gone, here, last := waking(), waking(), waking()
	line.addSession(gone)
	late := line.next
	line.removeSession(gone)
	line.addSession(here)
	<-here.conn.(*wakingConn).woken
	late.came.Store(true)
	line.markServed(here)
	line.addSession(last)
	if line.next == nil || line.next.session != last {
		t.Fatal("the last session is not woken: the turns stand still")
	}
	<-last.conn.(*wakingConn).woken
	line.removeSession(last)
	if line.next != nil || len(line.in) > 0 {
		t.Errorf("at the end %v is woken, and %d sessions have a turn, want none", line.next, len(line.in))
	}
}
