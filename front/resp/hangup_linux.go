package resp

import (
	"github.com/panjf2000/gnet/v2"
	"golang.org/x/sys/unix"
)

// hungUp reports whether the client is known to be gone at this instant.
func hungUp(conn gnet.Conn) bool {
	fds := []unix.PollFd{{Fd: int32(conn.Fd()), Events: unix.POLLRDHUP}} // #nosec G115 -- a descriptor
	for {
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return err != nil || n > 0
	}
}
