//go:build unix

package tlsconn

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// writeAtOnce writes what the system takes, possibly nothing.
func writeAtOnce(conn net.Conn, b []byte) (int, error) {
	sc, ok := conn.(syscall.Conn)
	if !ok { // an event loop has it, and never waits
		return conn.Write(b)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return 0, err
	}
	var n int
	var failed error
	// Returning true keeps the runtime from waiting until there is room.
	err = raw.Write(func(fd uintptr) bool {
		n, failed = unix.Write(int(fd), b)
		return true
	})
	if err == nil {
		err = failed
	}
	// The system's count is -1 with an error.
	return max(n, 0), err
}
