package resp

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/redis/go-redis/v9"
)

// A tlsDoor is a door that speaks TLS.
type tlsDoor struct {
	*door
	ca *certstest.Authority
}

func openTLS(t *testing.T, config Config) *tlsDoor {
	t.Helper()
	return openTLSStore(t, config, memory.New(memory.Config{}))
}

func openTLSStore(t *testing.T, config Config, store gate.Store) *tlsDoor {
	t.Helper()
	ca := certstest.New(t)
	config.TLS = &tlsconn.Config{TLS: ca.Open(certs.AuthOptional).Config()}
	return &tlsDoor{openStore(t, config, store), ca}
}

// dialTLS connects in one version of TLS, 0 for the newest.
func (d *tlsDoor) dialTLS(t *testing.T, version uint16, pairs ...certstest.Pair) *client {
	t.Helper()
	conn := d.ca.Handshake(d.dial(t).Conn, version, pairs...)
	return &client{conn, t, bufio.NewReader(conn)}
}

func (c *client) tls() *tls.Conn    { return c.Conn.(*tls.Conn) }
func (c *client) tcp() *net.TCPConn { return c.tls().NetConn().(*net.TCPConn) }

// Commands come in whatever records, and answers too: one by one, thousands at once, and in pieces.
func TestTLSCommands(t *testing.T) {
	for name, version := range certstest.Versions {
		t.Run(name, func(t *testing.T) {
			d := openTLS(t, Config{})
			c := d.dialTLS(t, version)
			c.want("PING", "PONG")
			const many = 20_000
			go c.send(strings.Repeat(wire("GH.COUNT", "counter/c"), many))
			for i := range many {
				if got := c.answer(); got != fmt.Sprint(i+1) {
					t.Fatalf("answer %d is %s", i+1, got)
				}
			}
			for _, piece := range []string{"*1\r\n$4\r", "\nPI", "NG\r\n*1\r\n", "$4\r\nPING\r\n"} {
				c.send(piece)
			}
			if one, two := c.answer(), c.answer(); one != "PONG" || two != "PONG" {
				t.Errorf("commands in pieces are answered %s and %s, want PONG", one, two)
			}
			long := strings.Repeat("x", 4<<10)
			if got := c.ask("ECHO " + long); got != long {
				t.Errorf("ECHO of %d bytes = %.100s", len(long), got)
			}
			if list := c.ask("CLIENT LIST"); !strings.Contains(list, "addr="+c.LocalAddr().String()) {
				t.Errorf("CLIENT LIST = %s, want the address %s", list, c.LocalAddr())
			}
			c.want("QUIT", "OK")
			c.over()
		})
	}
}

// However a client leaves, its command is taken out of line.
func TestTLSHangUp(t *testing.T) {
	for name, version := range certstest.Versions {
		for how, hangUp := range map[string]func(c *client) error{
			"close":  func(c *client) error { return c.tls().Close() },
			"notify": func(c *client) error { return c.tls().CloseWrite() },
			"notify behind commands": func(c *client) error {
				c.send(wire("PING") + wire("PING"))
				return c.tls().CloseWrite()
			},
			"end without notice": func(c *client) error { return c.tcp().Close() },
			"half-close":         func(c *client) error { return c.tcp().CloseWrite() },
			"reset":              func(c *client) error { _ = c.tcp().SetLinger(0); return c.tcp().Close() },
			"no record": func(c *client) error {
				_, err := io.WriteString(c.tcp(), strings.Repeat("x", 100))
				return err
			},
		} {
			t.Run(name+"/"+how, func(t *testing.T) {
				d := openTLS(t, Config{})
				holder, gone, next := d.dialTLS(t, version), d.dialTLS(t, version), d.dialTLS(t, version)
				holder.want("GH.ACQUIRE lock/l KEY holder", "holder")
				gone.send(wire("GH.ACQUIRE", "lock/l", "KEY", "gone"))
				d.inLine(t, 1)
				next.send(wire("GH.ACQUIRE", "lock/l", "KEY", "next"))
				d.inLine(t, 2)
				if err := hangUp(gone); err != nil {
					t.Fatal(err)
				}
				d.inLine(t, 1)
				holder.want("GH.RELEASE lock/l KEY holder", "OK")
				if got := next.answer(); got != "next" {
					t.Errorf("the next gets %s, want next", got)
				}
			})
		}
	}
}

// What a client has sent before it ends its half is answered.
func TestTLSLastCommands(t *testing.T) {
	d := openTLS(t, Config{})
	c := d.dialTLS(t, 0)
	c.send(wire("GH.COUNT", "counter/c") + wire("GH.COUNT", "counter/c"))
	if err := c.tls().CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if one, two := c.answer(), c.answer(); one != "1" || two != "2" {
		t.Errorf("the last commands are answered %s and %s, want 1 and 2", one, two)
	}
	c.over()
}

// A client that takes no answers is cut off, and what they grant is taken back.
func TestTLSClientThatDoesNotRead(t *testing.T) {
	d := openTLS(t, Config{WriteTimeout: 100 * time.Millisecond})
	c := d.dialTLS(t, 0)
	long := strings.Repeat("x", 4<<10)
	for range 4000 {
		c.send(wire("ECHO", long))
	}
	c.send(wire("GH.ACQUIRE", "lock/l", "KEY", "gone", "EXPIRES", "0"))
	until(t, "it is cut", func() bool { return d.open.Load() == 0 })
	d.dialTLS(t, 0).want("GH.ACQUIRE lock/l KEY next MAXWAIT 20000", "next")
	if used := d.config.Budget.Used(); used > 64<<10 {
		t.Errorf("%d bytes of the budget are taken, want those of one connection at most", used)
	}
}

// A client that stops in the handshake is cut, holds nobody up, and counts as a connection meanwhile.
func TestTLSHandshakeThatStops(t *testing.T) {
	d := openTLS(t, Config{ReadTimeout: 500 * time.Millisecond, Conns: 2})
	garbage := d.dial(t)
	garbage.send("GET / HTTP/1.1\r\n\r\n")
	if _, err := garbage.reader.ReadByte(); err != nil && !errors.Is(err, io.EOF) {
		t.Errorf("a client that speaks no TLS: %v, want the end", err)
	}
	until(t, "it is no connection any more", func() bool { return d.shaking.Load() == 0 })
	silent := d.dial(t)
	until(t, "another client says nothing", func() bool { return d.shaking.Load() == 1 })
	other := d.dialTLS(t, 0)
	other.want("PING", "PONG")
	beyond := d.dial(t)
	if _, err := io.ReadAll(beyond.reader); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("one connection too many: %v, want the end", err)
	}
	if _, err := silent.reader.ReadByte(); err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("a client that says nothing: %v, want the end", err)
	}
	until(t, "its place is free", func() bool { return d.shaking.Load() == 0 })
	d.dialTLS(t, 0).want("PING", "PONG")
}

// The end of the server does not wait for clients that shake hands.
func TestTLSEnd(t *testing.T) {
	d := openTLS(t, Config{ReadTimeout: time.Hour})
	d.dial(t)
	c := d.dialTLS(t, 0)
	c.send(wire("GH.WAIT", "event/e"))
	d.inLine(t, 1)
	d.shut(t)
	if got := c.answer(); !strings.Contains(got, "stopping") {
		t.Errorf("a command that waits is answered %s, want that the server is stopping", got)
	}
	c.over()
}

func TestTLSGoRedis(t *testing.T) {
	redis.SetLogger(complaints{t})
	d := openTLS(t, Config{})
	c := redis.NewClient(&redis.Options{Addr: d.address, TLSConfig: d.ca.Client(), ReadTimeout: -1})
	defer func() { _ = c.Close() }()
	pipe := c.Pipeline()
	for range 1000 {
		pipe.Do(t.Context(), "CL.THROTTLE", "name", 15, 30, 60)
	}
	if answers, err := pipe.Exec(t.Context()); err != nil || len(answers) != 1000 {
		t.Errorf("a pipeline of 1000 = %d answers, %v", len(answers), err)
	}
}

// The certificate of a session is that of its client.
func TestTLSCertificate(t *testing.T) {
	d := openTLS(t, Config{})
	d.dialTLS(t, 0, d.ca.Issue("ci-runner", time.Hour)).want("PING", "PONG")
	for _, s := range d.allSessions() {
		if cert := s.certificate(); cert == nil || cert.Subject.CommonName != "ci-runner" {
			t.Errorf("the certificate of a session is %v, want that of ci-runner", cert)
		}
	}
}

// Whatever comes instead of records, the server lives and forgets the connection.
func FuzzRecords(f *testing.F) {
	f.Add([]byte("PING\r\n"), false)
	f.Add([]byte{22, 3, 1, 0xff, 0xff}, false)
	f.Add([]byte{21, 3, 3, 0, 2, 1, 0}, true)
	f.Add([]byte{22, 3, 3, 0, 4, 0, 0, 0, 0}, true) // HelloRequest, as if to shake hands again
	f.Fuzz(func(t *testing.T, sent []byte, after bool) {
		d := openTLS(t, Config{ReadTimeout: 50 * time.Millisecond, IdleTimeout: 50 * time.Millisecond})
		var conn net.Conn = d.dial(t)
		if after {
			config := d.ca.Client()
			config.MaxVersion = tls.VersionTLS12
			// On a busy machine the server may have cut it, as it does with any that is slow.
			if tls.Client(conn, config).HandshakeContext(t.Context()) != nil {
				return
			}
		}
		_, _ = conn.Write(sent)
		_, _ = io.Copy(io.Discard, conn)
		until(t, "it is gone", func() bool { return d.open.Load()+d.shaking.Load() == 0 })
		if used := d.config.Budget.Used(); used != 0 {
			t.Errorf("%d bytes of the budget are taken, want 0", used)
		}
	})
}
