package http

import (
	"crypto/x509"
	"errors"
	"io"
	"net"

	"github.com/gatehousehq/gatehouse/internal/tlsconn"
)

// A connection with TLS parks like any other: the poller watches its socket. Three things differ. What comes
// behind a request that waits is read and decrypted at once, because the end of the client's sending half is
// a record (readRecords). An answer is written in whole records, and what is left of them goes to Flush
// (writeRest). And the first read of a connection begins with the handshake, in the time that a request has.

// certificateOf returns the certificate that the client of a connection has shown, nil without TLS or without
// one.
func certificateOf(conn net.Conn) *x509.Certificate {
	if c := pacedConnOf(conn); c != nil {
		return tlsconn.CertificateOf(c.Conn)
	}
	return nil
}

// secure returns the connection with TLS below; nil if there is none.
func (p *parkedConn) secure() *tlsconn.Connection {
	t, _ := p.Conn.(*tlsconn.Connection)
	return t
}

// hasTooMuchBehind reports the same of a parked connection.
func (p *parkedConn) hasTooMuchBehind() bool {
	return hasTooMuchUnread(p.pacedConn) || p.secure() != nil && len(p.readAhead) > maxUnread
}

// readRecords reads what has come on a connection with TLS behind a request that waits, and reports whether
// the client has ended its sending half: with TLS that is a record like others, until it is decrypted. The
// caller holds the lock.
func (p *parkedConn) readRecords() (ended bool) {
	if p.waiter == nil || p.closed || p.handedBack || p.secure() == nil {
		return false
	}
	var chunk [512]byte
	for len(p.readAhead) <= maxUnread {
		n, err := p.pacedConn.Read(chunk[:]) // it is parked, so this does not wait
		p.readAhead = append(p.readAhead, chunk[:n]...)
		// It goes to the budget in any case: maxUnread bounds it for each connection.
		p.charged += n
		p.server.config.Budget.Move(n, p.charged)
		if err != nil {
			return errors.Is(err, io.EOF)
		}
	}
	return false
}

// writeRest writes what writeNow has left of a message, and waits for the client.
func (p *parkedConn) writeRest(rest []byte) error {
	if t := p.secure(); t != nil && t.Parked() {
		return t.Flush()
	}
	_, err := p.Write(rest)
	return err
}
