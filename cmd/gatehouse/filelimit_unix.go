//go:build !windows

package main

import (
	"math"
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a write beyond the largest size of a file (ulimit -f) fail, as on a full disk.
// Without it, the signal ends the process.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }

// openFileLimit returns how many files and connections the process may have open (ulimit -n), or 0 if that is
// unknown. The Go runtime has raised it to the hard limit at the start.
func openFileLimit() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(limit.Cur, math.MaxInt64)) // of another type on FreeBSD
}
