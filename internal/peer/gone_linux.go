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

// UnreadBytes is how many bytes have come on a socket, which must be open, and were not read yet. It is 0
// for a socket that cannot be asked.
func UnreadBytes(fd int32) int {
	n, err := unix.IoctlGetInt(int(fd), unix.TIOCINQ) // FIONREAD by its other name
	if err != nil {
		return 0
	}
	return n
}

// pending reports whether a listener has connections that were not accepted yet.
func pending(fd int32) bool {
	fds := []unix.PollFd{{Fd: fd, Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}
