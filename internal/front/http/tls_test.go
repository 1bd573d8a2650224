package http

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/valyala/fasthttp"
)

// A tlsRig is a rig that speaks TLS.
type tlsRig struct {
	*rig
	ca     *certstest.Authority
	failed atomic.Int64 // handshakes
}

func newTLSRig(t *testing.T, config Config) *tlsRig {
	t.Helper()
	return newTLSRigOn(t, config, memory.New(memory.Config{}))
}

// newTLSRigOn is newTLSRig with a store of the test's.
func newTLSRigOn(t *testing.T, config Config, store gate.Store) *tlsRig {
	t.Helper()
	r := &tlsRig{ca: certstest.New(t)}
	config.TLS = &tlsconn.Config{
		TLS:    r.ca.Open(certs.AuthOptional).Config("http/1.1"),
		Failed: func(error) { r.failed.Add(1) },
	}
	r.rig = newRigOn(t, config, store)
	return r
}

// dialTLS returns a client in one version of TLS, 0 for the newest.
func (r *tlsRig) dialTLS(t *testing.T, version uint16) *client {
	t.Helper()
	conn := r.ca.Handshake(r.dial(t).Conn, version)
	return &client{conn, t, bufio.NewReader(conn)}
}

func (c *client) tls() *tls.Conn    { return c.Conn.(*tls.Conn) }
func (c *client) tcp() *net.TCPConn { return c.tls().NetConn().(*net.TCPConn) }

// A request that waits is answered over TLS, and so are those that were sent behind it: in the same record,
// in records of their own, and in pieces of one.
func TestTLSParks(t *testing.T) {
	for name, version := range certstest.Versions {
		t.Run(name, func(t *testing.T) {
			r := newTLSRig(t, Config{})
			other := r.dialTLS(t, version)
			c := r.dialTLS(t, version)
			c.send("/counter/c/count", "/event/a/wait", "/counter/c/count")
			c.want(200, "1")
			r.waiting(t, 1)
			c.send("/counter/c/count")
			halves := "GET /event/b/wait HTTP/1.1\r\nHost: loc"
			if _, err := io.WriteString(c, halves); err != nil {
				t.Fatal(err)
			}
			other.send("/event/a/send?message=done")
			other.want(204, "")
			c.want(200, "done")
			c.want(200, "2")
			c.want(200, "3")
			if _, err := io.WriteString(c, "alhost\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			r.waiting(t, 1)
			other.send("/event/b/send?message=again")
			other.want(204, "")
			c.want(200, "again")
			c.send("/counter/c/count")
			c.want(200, "4")
		})
	}
}

// However a client leaves, its request is taken out of line: also when all that it says is that it will send
// no more.
func TestTLSHangUp(t *testing.T) {
	for name, version := range certstest.Versions {
		for how, hangUp := range map[string]func(c *client) error{
			"close":              func(c *client) error { return c.tls().Close() },
			"notify":             func(c *client) error { return c.tls().CloseWrite() },
			"end without notice": func(c *client) error { return c.tcp().Close() },
			"half-close":         func(c *client) error { return c.tcp().CloseWrite() },
			"reset":              func(c *client) error { _ = c.tcp().SetLinger(0); return c.tcp().Close() },
			"no record": func(c *client) error {
				_, err := io.WriteString(c.tcp(), strings.Repeat("x", 100))
				return err
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				r := newTLSRig(t, Config{})
				holder, gone, next := r.dialTLS(t, version), r.dialTLS(t, version), r.dialTLS(t, version)
				holder.send("/semaphore/s/acquire?key=holder")
				holder.want(200, "holder")
				gone.send("/semaphore/s/acquire?key=gone")
				r.waiting(t, 1)
				next.send("/semaphore/s/acquire?key=next")
				r.waiting(t, 2)
				if err := hangUp(gone); err != nil {
					t.Fatal(err)
				}
				r.waiting(t, 1)
				holder.send("/semaphore/s/release?key=holder")
				holder.want(204, "")
				next.want(200, "next")
			})
		}
	}
}

// A client that stops in the handshake is cut after ReadTimeout, whatever it has sent, and others are served.
func TestTLSHandshakeThatStops(t *testing.T) {
	hello := recordClientHello(t)
	r := newTLSRig(t, Config{ReadTimeout: 200 * time.Millisecond})
	for name, begin := range map[string][]byte{
		"nothing": nil, "a byte": hello[:1], "half": hello[:len(hello)/2], "a hello": hello,
	} {
		t.Run(name, func(t *testing.T) {
			c := r.dial(t)
			if _, err := c.Write(begin); err != nil {
				t.Fatal(err)
			}
			other := r.dialTLS(t, 0)
			other.send("/counter/c/count?amount=0")
			other.want(200, "0")
			_ = other.Close()
			_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.Copy(io.Discard, c.Conn); err != nil && !isReset(err) {
				t.Errorf("reading after a handshake that stopped: %v, want the end", err)
			}
		})
	}
	await.True(t, "no connection is open", func() bool { return r.open.Load() == 0 })
}

func isReset(err error) bool { return strings.Contains(err.Error(), "reset") }

// recordClientHello returns what a client sends first.
func recordClientHello(t *testing.T) []byte {
	t.Helper()
	here, there := net.Pipe()
	defer here.Close()  //nolint:errcheck // it cannot fail
	defer there.Close() //nolint:errcheck // it cannot fail
	go func() {
		client := tls.Client(here, &tls.Config{ServerName: "localhost", MinVersion: tls.VersionTLS12})
		_ = client.HandshakeContext(t.Context())
	}()
	b := make([]byte, 16<<10)
	n, err := there.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	return b[:n]
}

// One that speaks no TLS is told so if it speaks HTTP, and closed.
func TestPlainRequestWhereTLSIsWanted(t *testing.T) {
	r := newTLSRig(t, Config{})
	c := r.dial(t)
	c.send("/counter/c/count")
	c.want(400, "request came without TLS: this port speaks TLS alone, want https")
	if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("after the answer: %v, want the end", err)
	}
	other := r.dial(t)
	if _, err := io.WriteString(other, "*1\r\n$4\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := other.reader.ReadByte(); err == nil {
		t.Error("a client that speaks RESP is answered, want the end")
	}
	await.True(t, "both have failed", func() bool { return r.failed.Load() == 2 })
}

// smallBuffers has the system keep little of what is sent.
type smallBuffers struct{ net.Listener }

// Accept implements [net.Listener].
func (l smallBuffers) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err == nil {
		err = conn.(*net.TCPConn).SetWriteBuffer(4 << 10)
	}
	return conn, err
}

// An answer that a client is slow to read arrives whole, and delays no other.
func TestTLSSlowReader(t *testing.T) {
	r := newTLSRig(t, Config{})
	r.address = r.serve(t, func(l net.Listener) net.Listener { return smallBuffers{l} })
	slow, other := r.dialTLS(t, 0), r.dialTLS(t, 0)
	if err := slow.tcp().SetReadBuffer(8 << 10); err != nil {
		t.Fatal(err)
	}
	message := strings.Repeat("x", 4000)
	const waits, unread = 30, 6
	for i := range waits {
		slow.send(fmt.Sprintf("/event/e%d/wait", i))
	}
	for i := range waits {
		r.waiting(t, 1)
		other.send(fmt.Sprintf("/event/e%d/send?message=%s", i, message))
		other.want(204, "")
		if i >= unread {
			slow.want(200, message)
		}
	}
	for range unread {
		slow.want(200, message)
	}
}

// An answer that is too large for the loop goes out as records, among others, and also to a client that is
// slow to read it.
func TestTLSLargeAnswer(t *testing.T) {
	text := strings.Repeat("large", 300<<10)
	r := newTLSRig(t, Config{Routes: map[string]func(*fasthttp.RequestCtx, string) error{
		"GET /large": func(ctx *fasthttp.RequestCtx, _ string) error { ctx.SetBodyString(text); return nil },
	}})
	r.address = r.serve(t, func(l net.Listener) net.Listener { return smallBuffers{l} })
	for name, version := range certstest.Versions {
		t.Run(name, func(t *testing.T) {
			c := r.dialTLS(t, version)
			for range 3 {
				c.send("/counter/c/count?amount=0", "/large", "/counter/c/count?amount=0")
				c.want(200, "0")
				c.want(200, text)
				c.want(200, "0")
			}
		})
	}
	await.True(t, "nothing of the budget is taken but for records", func() bool {
		return r.open.Load() > 0 || r.config.Budget.Used() == 0
	})
}

// A heldConn keeps what is written until it is let go, so that the end of a handshake and a request go out
// together.
type heldConn struct {
	net.Conn
	holds bool
	held  []byte
}

// Write implements [net.Conn].
func (c *heldConn) Write(b []byte) (int, error) {
	if c.held = append(c.held, b...); c.holds {
		return len(b), nil
	}
	held := c.held
	c.held = nil
	_, err := c.Conn.Write(held)
	return len(b), err
}

// Read implements [net.Conn]. What comes first is the answer to the hello.
func (c *heldConn) Read(b []byte) (int, error) {
	c.holds = true
	return c.Conn.Read(b)
}

// A request that has come together with the end of the handshake is answered, also if the server ends.
func TestTLSRequestBehindTheHandshake(t *testing.T) {
	r := newTLSRig(t, Config{})
	first := r.dialTLS(t, 0)
	first.send("/counter/c/count?amount=0")
	first.want(200, "0")
	r.listenersEnded.Store(true) // as if Shutdown had come between the handshake and the loop
	held := &heldConn{Conn: r.dial(t).Conn}
	conn := tls.Client(held, r.ca.Client())
	if err := conn.HandshakeContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := &client{conn, t, bufio.NewReader(conn)}
	held.holds = false
	c.send("/counter/c/count")
	c.want(200, "1")
}

// A stream of events comes over TLS as it does without: the place in line, and the outcome.
func TestTLSStream(t *testing.T) {
	r := newTLSRig(t, Config{})
	holder, c := r.dialTLS(t, 0), r.dialTLS(t, 0)
	holder.send("/lock/l/acquire?key=holder")
	holder.want(200, "holder")
	_, err := io.WriteString(c, "POST /v1/lock/l/acquire?key=next HTTP/1.1\r\nHost: localhost\r\n"+
		"Accept: text/event-stream\r\nContent-Length: 0\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	for line := ""; line != "event: waiting\n"; {
		line, err = c.reader.ReadString('\n')
		if err != nil {
			t.Fatalf("before the place in line: %v", err)
		}
	}
	holder.send("/lock/l/release?key=holder")
	holder.want(204, "")
	text, err := io.ReadAll(c.reader)
	if err != nil || !strings.Contains(string(text), "event: granted\ndata: {") {
		t.Errorf("the rest of the stream is %q, %v, want the outcome", text, err)
	}
}

// Those who wait at the end get an answer, also over TLS.
func TestTLSShutdown(t *testing.T) {
	r := newTLSRig(t, Config{})
	c, idle := r.dialTLS(t, 0), r.dialTLS(t, 0)
	idle.send("/counter/c/count")
	idle.want(200, "1")
	c.send("/event/e/wait")
	r.waiting(t, 1)
	r.Stopping()
	r.gate.Close()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.want(503, "event/e: the server is stopping")
	for _, c := range []*client{c, idle} {
		if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
			t.Errorf("after the end: %v, want the end, told", err)
		}
	}
}

// Whatever comes instead of a handshake, or of records, the server lives and forgets the connection.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"), false)
	f.Add([]byte{22, 3, 1, 0, 5, 1, 0, 0, 1, 0}, false)
	f.Add([]byte{22, 3, 1, 0xff, 0xff}, false)
	f.Add([]byte{0x80, 0x2e, 1, 3, 1}, false)
	f.Add([]byte{21, 3, 3, 0, 2, 1, 0}, true)
	f.Add([]byte{23, 3, 3, 0, 1, 0}, true)
	f.Add([]byte{22, 3, 3, 0, 4, 0, 0, 0, 0}, true) // HelloRequest, as if to shake hands again
	f.Fuzz(func(t *testing.T, sent []byte, after bool) {
		r := newTLSRig(t, Config{ReadTimeout: 100 * time.Millisecond, IdleTimeout: 100 * time.Millisecond})
		var conn net.Conn = r.dial(t)
		if after {
			config := r.ca.Client()
			config.MaxVersion = tls.VersionTLS12
			// On a busy machine the server may have cut it, as it does with any that is slow.
			if tls.Client(conn, config).HandshakeContext(t.Context()) != nil {
				return
			}
		}
		_, _ = conn.Write(sent)
		_, _ = io.Copy(io.Discard, conn)
		_ = conn.Close()
		await.True(t, "no connection is open", func() bool { return r.open.Load() == 0 })
		if used := r.config.Budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are taken, want 0", used)
		}
	})
}
