package resp

import (
	"context"
	"crypto/x509"
	"net"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
)

// The event loops know nothing of TLS. A connection shakes hands on a goroutine of its own, which ends with
// that. Then it belongs to an event loop like any other, and what the loop reads and writes is records:
//
//	accepted ──▶ shakeHands ──▶ enrolled: gnet ──records──▶ Secure ──commands──▶ session
//	                                     gnet ◀──records── Secure ◀──answers─── session
//
// docs/decisions/0079 has the other ways and the measurements.

// shakeHands has a client begin to speak TLS, and hands its connection to an event loop.
func (s *Server) shakeHands(conn net.Conn) {
	defer s.serving.Done()
	defer s.shaking.Add(-1)
	source := peer.Source(conn) // which is gone after Enroll
	secure := tlsconn.Server(conn, s.config.TLS, s.config.Budget, "")
	ctx, cancel := context.WithTimeout(s.handshakes, s.config.ReadTimeout)
	defer cancel()
	err := secure.HandshakeContext(ctx)
	if err == nil {
		err = s.enroll(conn, secure)
	}
	if err != nil {
		s.sources.Leave(source)
		_ = secure.Close()
		s.log.Debug("a connection did not begin to speak TLS", "client", source, "error", err)
	}
}

// certificate is what the client of a session has shown, nil without TLS or without one.
func (s *session) certificate() *x509.Certificate {
	if c, ok := s.conn.(*eventloop.Secure); ok {
		return c.Certificate()
	}
	return nil
}
