package main

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// maxUnsentKernel is how many bytes of a connection the kernel keeps that have not been sent yet. Without it
// the kernel takes up to 4 MB for a client that does not read, and counts them as the container's memory.
const maxUnsentKernel = 64 << 10

// boundUnsent sets that limit on a listener; its connections inherit it.
func boundUnsent(_, _ string, raw syscall.RawConn) error {
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
