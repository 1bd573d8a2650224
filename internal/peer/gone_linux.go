package peer

import "golang.org/x/sys/unix"

// Gone reports whether the other end of a socket, which must be open, is known to be gone at this
// instant. One that cannot be asked counts as gone.
func Gone(fd int32) bool {
	fds := []unix.PollFd{{Fd: fd, Events: unix.POLLRDHUP}}
	for {
		n, err := unix.Poll(fds, 0)
		if err == unix.EINTR {
			continue
		}
		return err != nil || n > 0
	}
}
