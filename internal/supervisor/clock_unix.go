//go:build linux || darwin

package supervisor

import (
	"time"

	"golang.org/x/sys/unix"
)

// Now returns the time since an instant that all processes of this machine share, by a clock that is never
// set. Go's own monotonic readings mean nothing in another process.
func Now() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		panic("clock_gettime: " + err.Error()) // the clock is always there
	}
	return time.Duration(t.Nano())
}
