package jarl

import "golang.org/x/sys/unix"

// hungUp reports whether the client is known to be gone at this instant.
func (c *connection) hungUp() bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	gone := false
	err = raw.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}} // #nosec G115 -- a descriptor
		n, err := unix.Poll(fds, 0)
		gone = err == nil && n > 0
	})
	return gone || err != nil
}
