//go:build !windows

package main

import (
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a write beyond the largest size of a file (ulimit -f) an error, as on a full disk,
// and not the end of the process.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }
