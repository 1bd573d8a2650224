package http

import (
	"context"
	"crypto/x509"
	"net"

	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
)

// shakeHands has a client begin to speak TLS, and hands its connection to an event loop, which knows nothing
// of TLS: docs/decisions/0079.
func (s *Server) shakeHands(conn net.Conn, origin *connOrigin) {
	defer s.serving.Done()
	source := peer.Source(conn) // which is gone after Enroll
	origin.secure = tlsconn.Server(conn, s.config.TLS, s.config.Budget, wantsTLS)
	ctx, cancel := context.WithTimeout(s.handshakes, s.config.ReadTimeout)
	defer cancel()
	err := origin.secure.HandshakeContext(ctx)
	if err == nil {
		err = s.enroll(conn, origin)
	}
	if err != nil {
		s.countClosed(source)
		_ = origin.secure.Close()
		s.log.Debug("a connection did not begin to speak TLS", "client", source, "error", err)
	}
}

// certificate is what the client has shown, nil without TLS or without one.
func (c *httpConn) certificate() *x509.Certificate {
	if c.secure == nil {
		return nil
	}
	return c.secure.Certificate()
}
