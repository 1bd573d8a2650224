package tlsconn_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
)

// connect returns both ends of a connection whose handshake is over.
func connect(
	t *testing.T, shared *budget.Budget, auth string, shown ...string,
) (*tlsconn.Connection, *tls.Conn) {
	t.Helper()
	ca := certstest.New(t)
	server := ca.Open(auth)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "localhost:0")
	must(t, err)
	defer func() { must(t, listener.Close()) }()
	var pairs []certstest.Pair
	for _, name := range shown {
		pairs = append(pairs, ca.Issue(name, time.Hour))
	}
	accepted := make(chan *tlsconn.Connection, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			accepted <- nil
			return
		}
		c := tlsconn.Server(conn, &tlsconn.Config{TLS: server.Config()}, shared, "")
		_ = c.Handshake()
		accepted <- c
	}()
	dialer := &tls.Dialer{Config: ca.Client(pairs...)}
	conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
	must(t, err)
	c := <-accepted
	if c == nil {
		t.Fatal("no connection was accepted")
	}
	t.Cleanup(func() { _, _ = c.Close(), conn.Close() })
	return c, conn.(*tls.Conn)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// To close a connection says so to the client, and does not wait for one that reads nothing.
func TestCloseDoesNotWait(t *testing.T) {
	c, client := connect(t, budget.New(0), certs.AuthNone)
	if err := c.Close(); err != nil {
		t.Errorf("Close() = %v", err)
	}
	if n, err := client.Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Errorf("a client that reads: %d, %v, want the end, told", n, err)
	}
	c, _ = connect(t, budget.New(0), certs.AuthNone)
	socket := c.NetConn()
	must(t, socket.SetWriteDeadline(time.Now().Add(200*time.Millisecond)))
	for err := error(nil); err == nil; {
		_, err = socket.Write(make([]byte, 1<<20)) // until the system takes no more
	}
	began := time.Now()
	_ = c.Close()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("closing took %s, want no waiting", took)
	}
}

// Large records count to the budget until the end of the connection, as the buffer for them lasts as long.
func TestRecordsAreInTheBudget(t *testing.T) {
	shared := budget.New(1 << 20)
	c, client := connect(t, shared, certs.AuthNone)
	b := make([]byte, 16<<10)
	if _, err := client.Write([]byte("small")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(b); err != nil || shared.Used() != 0 {
		t.Errorf("a small record takes %d bytes, %v, want 0", shared.Used(), err)
	}
	go func() { _, _ = client.Write(make([]byte, 256<<10)) }()
	for read := 0; read < 256<<10; {
		n, err := c.Read(b)
		must(t, err)
		read += n
	}
	// The buffer doubles twice at most: what has come of later records is read with the one that is wanted.
	if used := shared.Used(); used < 16<<10 || used > 96<<10 {
		t.Errorf("16 large records take %d bytes, want those of 1 to 6", used)
	}
	_ = c.Close()
	if shared.Used() != 0 {
		t.Errorf("after the end %d bytes are taken, want 0", shared.Used())
	}
}

// What a client shows is known if it is valid, and nothing is known of others.
func TestCertificates(t *testing.T) {
	c, _ := connect(t, budget.New(0), certs.AuthOptional, "ci-runner")
	if cert := tlsconn.CertificateOf(c); cert == nil || cert.Subject.CommonName != "ci-runner" {
		t.Errorf("certificate = %v, want that of ci-runner", cert)
	}
	c, _ = connect(t, budget.New(0), certs.AuthOptional)
	if cert := tlsconn.CertificateOf(c); cert != nil {
		t.Errorf("certificate of a client that shows none = %v", cert.Subject)
	}
	if cert := tlsconn.CertificateOf(c.NetConn()); cert != nil {
		t.Errorf("certificate of a connection without TLS = %v", cert.Subject)
	}
}
