//go:build !windows

package main

import (
	"math"
	"os/signal"
	"syscall"
)

// ignoreFileLimit makes a write beyond the largest size of a file (ulimit -f) an error, as on a full disk,
// and not the end of the process.
func ignoreFileLimit() { signal.Ignore(syscall.SIGXFSZ) }

// openFileLimit is how many files and connections the process may have open (ulimit -n), 0 if unknown. Go has
// raised it as far as it may.
func openFileLimit() int64 {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return 0
	}
	return int64(min(limit.Cur, math.MaxInt64)) // #nosec G115 -- of another type on FreeBSD
}
