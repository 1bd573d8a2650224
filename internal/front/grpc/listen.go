package grpc

import (
	"context"
	"crypto/x509"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/prometheus/client_golang/prometheus"
)

// tooMany is the answer to a connection beyond the limit. It is deliberately not HTTP/2: a gRPC client
// that receives HTTP/2 would consider the connection good, and come again at once.
const (
	tooMany = tooManyHead + "59\r\n\r\nserver has as many connections as it allows; try again soon"

	tooManyOfOne = tooManyHead + "77\r\n\r\n" +
		"server has as many connections from this address as it allows; try again soon"

	tooManyHead = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
		"Content-Type: text/plain; charset=utf-8\r\nContent-Length: "
)

// capListener returns a listener with the limits of the server.
func (s *Server) capListener(listener net.Listener) net.Listener {
	return peer.CapListener(listener, peer.CapConfig{
		Admit: func(conn net.Conn) (net.Conn, error) {
			// TLS is below what is counted: bytes are followed as HTTP/2, which gRPC reads and writes.
			if s.config.TLS != nil {
				conn = tlsconn.Server(conn, s.config.TLS, s.config.Budget, "")
			}
			counted, refusal := s.conns.addConn(conn, s.config.Conns)
			if refusal != "" {
				// To gRPC this connection has never come; only we count it.
				s.metrics.Refused.Inc()
				// With TLS the client could not read the answer.
				if s.config.TLS != nil {
					refusal = ""
				}
				return nil, refusal
			}
			return counted, nil
		},
		Failed: func(err error) { s.config.Unaccepted.Unaccepted(s.config.Log, "gRPC", err) },
	})
}

// conns are the open connections.
type conns struct {
	sources peer.Addresses

	mu      sync.Mutex
	open    map[*countedConn]struct{}
	closing bool // new ones are closed at once

	// Totals of all connections; see meter.go.
	calls, cuts  atomic.Int64
	lasting      [numLasting]atomic.Int64 // of calls, those that have no end of their own
	slow         prometheus.Counter       // cuts
	mostCalls    int64
	budget       *budget.Budget
	writeTimeout time.Duration
}

// addConn counts a connection, unless there are as many as allowed: then it returns what to answer.
func (s *conns) addConn(conn net.Conn, most int) (counted net.Conn, refusal peer.Refusal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.open) >= most {
		return nil, tooMany
	}
	// Enter counts, so it comes after the check that can still refuse. Close calls Leave.
	if !s.sources.Enter(peer.Source(conn)) {
		return nil, tooManyOfOne
	}
	// gRPC gets a closed connection, and drops it.
	if s.closing {
		_ = conn.Close()
	}
	if s.open == nil {
		s.open = make(map[*countedConn]struct{})
	}
	c := &countedConn{Conn: conn, conns: s}
	// A client's first frame comes behind the preface, the server's first comes at once.
	c.meter.in.skip = prefaceSize
	s.open[c] = struct{}{}
	return c, ""
}

// openCount returns how many connections are open.
func (s *conns) openCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// closeWhere closes the open connections that match, and all that come later. Even a gRPC server that stops
// waits for connections that have not begun to speak HTTP/2, until their handshake times out.
func (s *conns) closeWhere(which func(c *countedConn) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closing = true
	for c := range s.open {
		if which(c) {
			_ = c.Conn.Close() // gRPC then closes c itself, which ends its being counted
		}
	}
}

func isAny(*countedConn) bool      { return true }
func isSilent(c *countedConn) bool { return !c.hasRead.Load() }

// A countedConn is counted until it is closed.
type countedConn struct {
	net.Conn
	conns   *conns
	hasRead atomic.Bool // something was read from it
	meter   connMeter
	caller  access.Caller
}

// certificateOf returns the certificate that the client of a call has shown, nil without TLS or without one.
func certificateOf(ctx context.Context) *x509.Certificate {
	if c := connOf(ctx); c != nil {
		return tlsconn.CertificateOf(c.Conn)
	}
	return nil
}

// Read implements [net.Conn].
func (c *countedConn) Read(to []byte) (n int, err error) {
	n, err = c.Conn.Read(to)
	if n > 0 && !c.hasRead.Load() {
		c.hasRead.Store(true)
	}
	// The bytes are followed before gRPC sees them, so what exceeds the budget is never kept.
	if n > 0 && !c.noteReceived(to[:n]) {
		c.cutConn()
	}
	return n, err
}

// Write implements [net.Conn].
func (c *countedConn) Write(data []byte) (n int, err error) {
	n, err = c.Conn.Write(data)
	c.noteSent(data[:n])
	return n, err
}

// RemoteAddr implements [net.Conn].
func (c *countedConn) RemoteAddr() net.Addr { return clientAddr{c.Conn.RemoteAddr(), c} }

// Close implements [net.Conn].
func (c *countedConn) Close() error {
	c.conns.mu.Lock()
	// gRPC may close a connection more than once.
	if _, open := c.conns.open[c]; open {
		// Leave undoes the Enter of addConn, once.
		delete(c.conns.open, c)
		c.conns.sources.Leave(peer.Source(c.Conn))
	}
	c.conns.mu.Unlock()
	c.forgetCalls()
	c.caller.End()
	return c.Conn.Close()
}
