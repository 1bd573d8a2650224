//go:build unix

package eventloop

import (
	"errors"
	"net"
	"slices"
	"syscall"

	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// duplicate returns another descriptor of a connection.
func duplicate(fd int) (int, error) { return unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0) }

// appendUnread appends what has come on a descriptor and was not read yet.
func appendUnread(b []byte, fd int) []byte {
	unread := peer.UnreadBytes(int32(fd)) // a descriptor
	if unread == 0 {
		return b
	}
	b = slices.Grow(b, unread)
	n, _ := unix.Read(fd, b[len(b):len(b)+unread])
	return b[:len(b)+max(n, 0)]
}

// checkSpare returns an error if there is no file descriptor left, as a loop takes one of its own for a
// connection.
func checkSpare(conn net.Conn) (failed error) {
	socket, ok := conn.(syscall.Conn)
	if !ok { // which the loop will refuse
		return nil
	}
	if raw, err := socket.SyscallConn(); err == nil { // otherwise it is closed, as above
		_ = raw.Control(func(fd uintptr) {
			var spare int
			spare, failed = duplicate(int(fd))
			if failed == nil {
				_ = unix.Close(spare)
			}
		})
	}
	return failed
}

// ShutdownWrite ends what is sent on the connection, and reports whether it could.
func ShutdownWrite(conn gnet.Conn) bool { return unix.Shutdown(conn.Fd(), unix.SHUT_WR) == nil }

// WriteNow writes as much as the system takes without waiting, possibly nothing. Nothing may be left in the
// loop's buffer of the connection.
func WriteNow(conn gnet.Conn, b []byte) (n int, err error) {
	fd := conn.Fd()
	if fd < 0 { // it is in memory
		return conn.Write(b)
	}
	for {
		n, err = unix.Write(fd, b)
		switch {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		default:
			return max(n, 0), err
		}
	}
}
