// Package tlsconn is the server's end of a connection with TLS, also where an event loop has the socket: what
// it has in memory is bounded, and to close it does not wait for the client.
package tlsconn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse/internal/budget"
)

// A Config says how a listener speaks TLS.
type Config struct {
	// TLS has the certificates.
	TLS *tls.Config

	// Failed is called with the reason when a client could not begin to speak TLS; nil is for nothing.
	Failed func(error)
}

// A Connection speaks TLS. It shakes hands at the first Read or Write. Make one with Server.
type Connection struct {
	*tls.Conn
	socket  *socket
	config  *Config
	plain   string // for a client that does not speak TLS
	settled atomic.Bool
}

// Server returns a connection that speaks TLS over another one. Records that are large count to the budget.
// plain is what a client gets that begins with HTTP and not with TLS; empty is nothing.
func Server(conn net.Conn, config *Config, shared *budget.Budget, plain string) *Connection {
	// The library speaks to this layer and not to the connection: so its records can be counted, and an event
	// loop can have them.
	s := &socket{Conn: conn, budget: shared}
	return &Connection{Conn: tls.Server(s, config.TLS), socket: s, config: config, plain: plain}
}

// HandshakeContext has the client begin to speak TLS. Of several errors only the first is reported to Failed.
func (c *Connection) HandshakeContext(ctx context.Context) error {
	if c.settled.Load() {
		return c.Handshake() // which returns the same as the first time
	}
	err := c.Conn.HandshakeContext(ctx)
	// A read and a write may both find that it failed.
	if !c.settled.Swap(true) && err != nil {
		c.refuse(err)
	}
	return err
}

// refuse tells a client that speaks HTTP without TLS what is wrong, and reports the error.
func (c *Connection) refuse(err error) {
	// A client that says nothing and leaves, such as a check of the port, has not failed.
	if c.config.Failed != nil && c.socket.hasRead() {
		c.config.Failed(err)
	}
	var notTLS tls.RecordHeaderError
	// Others would take the text for a broken record of theirs.
	if c.plain == "" || !errors.As(err, &notTLS) || notTLS.Conn == nil || !isHTTP(notTLS.RecordHeader) {
		return
	}
	// This must not wait for a client that does not read.
	c.socket.ending.Store(true)
	_, _ = c.socket.Write([]byte(c.plain))
}

// isHTTP reports whether bytes begin a request of HTTP/1 or the preface of HTTP/2.
func isHTTP(begin [5]byte) bool {
	// A record header is all that was read: five bytes.
	switch string(begin[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "DELET", "OPTIO", "PATCH", "PRI *":
		return true
	}
	return false
}

// Read implements [net.Conn]. A connection that cannot be read any more, for whatever reason but a timeout,
// has ended: nothing that comes after it could be trusted.
func (c *Connection) Read(b []byte) (int, error) {
	// What is charged is the largest record, so each read counts from 0.
	c.socket.beginRecord()
	if err := c.HandshakeContext(context.Background()); err != nil {
		return 0, endOf(err)
	}
	n, err := c.Conn.Read(b)
	return n, endOf(err)
}

// endOf returns io.EOF for an error that is no timeout.
func endOf(err error) error {
	// After a timeout crypto/tls can go on with the same record.
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return io.EOF
}

// Write implements [net.Conn]. What is not a whole record at the other end counts as not written: the client
// cannot read it.
func (c *Connection) Write(b []byte) (int, error) {
	if err := c.HandshakeContext(context.Background()); err != nil {
		return 0, err
	}
	return c.Conn.Write(b)
}

// Close implements [net.Conn]. It tells the client that this is the end if that needs no waiting.
func (c *Connection) Close() error {
	// crypto/tls sends close_notify, which must not wait for a client that does not read.
	c.socket.ending.Store(true)
	return c.Conn.Close()
}

// Attach has the connection read and write records elsewhere from now on, such as on an event loop, which has
// the socket. It is called after the handshake.
func (c *Connection) Attach(records net.Conn) { c.socket.Conn = records }

// Abandon ends the connection without a word to the client: what it was attached to is closed.
func (c *Connection) Abandon() { _ = c.socket.Close() }

// Certificate is what the client has shown, and was found valid; nil if there is none.
func (c *Connection) Certificate() *x509.Certificate {
	// A certificate without a chain was not verified, and proves nothing.
	state := c.ConnectionState()
	if len(state.VerifiedChains) == 0 {
		return nil
	}
	return state.VerifiedChains[0][0]
}

// CertificateOf is the certificate of a connection with TLS, nil for others.
func CertificateOf(conn net.Conn) *x509.Certificate {
	if c, ok := conn.(*Connection); ok {
		return c.Certificate()
	}
	return nil
}

// A socket is what is below TLS.
type socket struct {
	net.Conn
	budget *budget.Budget

	ending atomic.Bool // what is still written does not wait for the client, and may be lost

	mu      sync.Mutex
	record  int // bytes that were read for what is being read
	charged int // the most that record was, if that is much: the TLS library keeps a buffer of that size
	closed  bool
}

// beginRecord notes that something is read from the beginning.
func (s *socket) beginRecord() {
	s.mu.Lock()
	s.record = 0
	s.mu.Unlock()
}

// hasRead reports whether anything has come for what is being read.
func (s *socket) hasRead() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record > 0
}

// errBudget is the error of a record for which all connections together have no room.
var errBudget = errors.New("server buffers as many bytes as it allows")

// Read implements [net.Conn].
func (s *socket) Read(b []byte) (n int, err error) {
	n, err = s.Conn.Read(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.record += n
	// Small ones are bounded by the number of connections.
	if s.record > budget.Tiny && s.record > s.charged && !s.closed {
		// It stays charged until Close: crypto/tls keeps the buffer.
		within := s.budget.Move(s.record-s.charged, s.record)
		s.charged = s.record
		if !within {
			s.budget.Refuse()
			return 0, errBudget
		}
	}
	return n, err
}

// Write implements [net.Conn].
func (s *socket) Write(b []byte) (n int, err error) {
	if s.ending.Load() {
		return writeAtOnce(s.Conn, b)
	}
	return s.Conn.Write(b)
}

// Close implements [net.Conn].
func (s *socket) Close() error {
	s.mu.Lock()
	// A read that is under way may come after this: closed keeps it from charging again.
	s.budget.Release(s.charged)
	s.charged, s.closed = 0, true
	s.mu.Unlock()
	return s.Conn.Close()
}
