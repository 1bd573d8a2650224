package resp

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// What has arrived is done, however its client leaves while the store works on the first of it.
func TestCommandsOfAClientThatLeaves(t *testing.T) {
	for how, leave := range map[string]func(c *net.TCPConn){
		"ends what it sends": func(c *net.TCPConn) { _ = c.CloseWrite() },
		"closes":             func(c *net.TCPConn) { _ = c.Close() },
		"resets": func(c *net.TCPConn) {
			_ = c.SetLinger(0)
			_ = c.Close()
		},
	} {
		t.Run(how, func(t *testing.T) {
			s := newFar()
			d := openStore(t, Config{}, s)
			gone := d.dial(t)
			commandsOfOneThatLeaves(t, s, leaver{gone, func() { leave(gone.Conn.(*net.TCPConn)) }}, d.dial(t))
		})
		t.Run(how+", with TLS", func(t *testing.T) {
			s := newFar()
			d := openTLSStore(t, Config{}, s)
			gone := d.dialTLS(t, 0)
			commandsOfOneThatLeaves(t, s, leaver{gone, func() { leave(gone.tcp()) }}, d.dialTLS(t, 0))
		})
	}
	t.Run("ends TLS", func(t *testing.T) {
		s := newFar()
		d := openTLSStore(t, Config{}, s)
		gone := d.dialTLS(t, 0)
		commandsOfOneThatLeaves(t, s, leaver{gone, func() { _ = gone.tls().CloseWrite() }}, d.dialTLS(t, 0))
	})
}

// A leaver leaves in some way.
type leaver struct {
	*client
	leave func()
}

func commandsOfOneThatLeaves(t *testing.T, s *farStore, gone leaver, other *client) {
	t.Helper()
	letGo := s.hold("far")
	const holds = 40
	text := wire("GH.COUNT", "counter/far")
	for i := range holds {
		key := fmt.Sprintf("k%d", i)
		other.want("GH.ACQUIRE semaphore/s SIZE 40 EXPIRES 0 KEY "+key, key)
		text += wire("GH.RELEASE", "semaphore/s", "KEY", key)
	}
	gone.send(text)
	await.True(t, "the store works", func() bool { return s.under.Load() == 1 })
	gone.leave()
	letGo()
	await.True(t, "all are released", func() bool {
		return strings.Contains(other.ask("GH.LIST semaphore WITH DETAILS"), " holders 0 ")
	})
}

// The same for what the event loop has not read when it finds in a write that the client is gone.
func TestUnreadCommandsOfAClientThatResets(t *testing.T) {
	t.Run("without TLS", func(t *testing.T) {
		s := storetest.NewLeftStore()
		d := openStore(t, Config{}, s)
		gone := d.dial(t)
		unreadCommandsOfOneThatResets(t, s, resetter{d, gone, gone.Conn.(*net.TCPConn)}, d.dial(t))
	})
	t.Run("with TLS", func(t *testing.T) {
		s := storetest.NewLeftStore()
		d := openTLSStore(t, Config{}, s)
		gone := d.dialTLS(t, 0)
		unreadCommandsOfOneThatResets(t, s, resetter{d.door, gone, gone.tcp()}, d.dialTLS(t, 0))
	})
}

// A resetter is a client of a door that resets its connection.
type resetter struct {
	*door
	*client
	conn *net.TCPConn
}

func unreadCommandsOfOneThatResets(t *testing.T, s *storetest.LeftStore, gone resetter, other *client) {
	t.Helper()
	const commands = 1500 // more than is read in one go, and less than the system keeps
	// A session has its number before it counts as open.
	until(t, "both are there", func() bool { return gone.open.Load() == 2 })
	sent := make(chan struct{})
	s.Leave <- func() {
		<-sent
		gone.awaitReset(t, gone.conn)
	}
	gone.send(wire("GH.COUNT", "counter/left") + strings.Repeat(wire("GH.COUNT", "counter/c"), commands))
	close(sent)
	until(t, "it is gone", func() bool { return gone.open.Load() == 1 })
	other.want("GH.VALUE counter/c", strconv.Itoa(commands))
}

// A brokenSocket ends its session at the first write, as gnet's connections do when the client is gone.
type brokenSocket struct {
	pipe
	session *session
	touched bool // after the end, when its descriptor may be that of another connection
}

func (c *brokenSocket) Write([]byte) (int, error) {
	c.session.endSession()
	return 0, errors.New("broken pipe")
}

func (c *brokenSocket) Fd() int {
	c.touched = c.touched || c.session.closed
	return -1
}

// A connection that ends when TLS tells its end is touched no more.
func TestTLSConnectionThatEndsInItsLastWrite(t *testing.T) {
	ca := certstest.New(t)
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	shaken := make(chan *tlsconn.Connection, 1)
	go func() { // ends with the handshake
		conn, _ := listener.Accept()
		_ = listener.Close()
		config := &tlsconn.Config{TLS: ca.Open(certs.AuthNone).Config()}
		secure := tlsconn.Server(conn, config, budget.New(0), "")
		_ = secure.Handshake()
		shaken <- secure
	}()
	_ = ca.Handshake((&door{address: listener.Addr().String()}).dial(t).Conn, 0)
	c := new(brokenSocket)
	s := newPiped(&c.pipe)
	c.session = s
	s.server.config.Budget = budget.New(0)
	s.conn, s.last = eventloop.NewSecure(c, <-shaken), true
	if s.finishConnection() || c.touched || !s.closed {
		t.Errorf("it goes on, or was touched: %t, or did not end: %t", c.touched, !s.closed)
	}
}

// What came behind a list is done, though the list is not made for a client that has left.
func TestCommandBehindAListOfAClientThatLeaves(t *testing.T) {
	for _, first := range []string{"GH.LIST counter", "CLIENT LIST"} {
		t.Run(first, func(t *testing.T) {
			d := open(t, Config{})
			gone, other := d.dial(t), d.dial(t)
			gone.send(first + "\r\n" + first + "\r\n" + wire("GH.COUNT", "counter/c"))
			_ = gone.Close()
			await.True(t, "it is counted", func() bool { return other.ask("GH.VALUE counter/c") == "1" })
		})
		t.Run(first+", with TLS", func(t *testing.T) {
			d := openTLS(t, Config{})
			gone, other := d.dialTLS(t, 0), d.dialTLS(t, 0)
			gone.send(first + "\r\n" + first + "\r\n" + wire("GH.COUNT", "counter/c"))
			_ = gone.tls().CloseWrite()
			await.True(t, "it is counted", func() bool { return other.ask("GH.VALUE counter/c") == "1" })
		})
	}
}
