package main

import (
	"cmp"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsentKernel is the most bytes of a connection that the kernel keeps before they are sent. Without it
// the kernel takes up to 4 MB for a client that does not read, and counts them as memory of the container.
const maxUnsentKernel = 64 << 10

// setOptions sets the options of a listener, which its connections inherit: maxUnsentKernel, and that urgent
// bytes are bytes like others. Linux would leave them out of what is read, and count what is unread only up
// to them, so that a client which has left could hide behind one.
func setOptions(_, _ string, raw syscall.RawConn) error {
	// Two errors: that of setting the options, and that of reaching the socket at all.
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = cmp.Or(
			unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsentKernel),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_OOBINLINE, 1))
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("setting the options of a listener: %w", err)
	}
	return nil
}
