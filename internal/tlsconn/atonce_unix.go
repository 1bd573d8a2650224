//go:build unix

package tlsconn

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// readAtOnce reads what has come. Without any it is a timeout.
func readAtOnce(conn net.Conn, b []byte) (int, error) {
	raw := rawOf(conn)
	if raw == nil {
		// What is attached, as on an event loop, has no descriptor, and answers at once by itself.
		return conn.Read(b)
	}
	var n int
	var failed error
	// Returning true keeps the runtime from waiting until there is something.
	err := raw.Read(func(fd uintptr) bool {
		n, failed = unix.Read(int(fd), b)
		return true
	})
	switch {
	case err != nil:
		return 0, err
	case errors.Is(failed, unix.EAGAIN) || errors.Is(failed, unix.EINTR):
		return 0, os.ErrDeadlineExceeded
	case failed != nil:
		return 0, failed
	// No bytes and no error is how the system says that the other end has closed.
	case n == 0 && len(b) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// writeAtOnce writes what the system takes, possibly nothing.
func writeAtOnce(conn net.Conn, b []byte) (int, error) {
	raw := rawOf(conn)
	if raw == nil {
		return conn.Write(b)
	}
	var n int
	var failed error
	// As above: the runtime is not to wait for room.
	err := raw.Write(func(fd uintptr) bool {
		n, failed = unix.Write(int(fd), b)
		return true
	})
	if err == nil && !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR) {
		err = failed
	}
	// The system's count is -1 with an error.
	return max(n, 0), err
}

// rawOf returns the descriptor of a connection; nil for one in memory.
func rawOf(conn net.Conn) syscall.RawConn {
	sc, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}
