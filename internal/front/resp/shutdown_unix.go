//go:build unix

package resp

import (
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// shutdownWrite ends what is sent on the connection, and reports whether it could.
func shutdownWrite(conn gnet.Conn) bool { return unix.Shutdown(conn.Fd(), unix.SHUT_WR) == nil }
