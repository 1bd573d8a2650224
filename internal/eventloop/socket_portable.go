//go:build !unix

package eventloop

import (
	"errors"
	"net"

	"github.com/panjf2000/gnet/v2"
)

// duplicate reports that a connection has no other descriptor here.
func duplicate(int) (int, error) { return -1, errors.ErrUnsupported }

// appendUnread appends nothing here.
func appendUnread(b []byte, _ int) []byte { return b }

// checkSpare reports nothing here.
func checkSpare(net.Conn) error { return nil }

// ShutdownWrite ends what is sent on the connection, and reports whether it could. Here it cannot.
func ShutdownWrite(gnet.Conn) bool { return false }

// WriteNow has the loop write what the system does not take at once.
func WriteNow(conn gnet.Conn, b []byte) (n int, err error) { return conn.Write(b) }
