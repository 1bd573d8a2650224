package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsentKernel is the most bytes of a connection that the kernel keeps before they are sent. Without it
// the kernel takes up to 4 MB for a client that does not read, and counts them as memory of the container.
const maxUnsentKernel = 64 << 10

// boundUnsent sets maxUnsentKernel on a listener, whose connections inherit it.
func boundUnsent(_, _ string, raw syscall.RawConn) error {
	// Two errors: that of setting the option, and that of reaching the socket at all.
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, maxUnsentKernel)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("bounding what the kernel keeps unsent: %w", err)
	}
	return nil
}
