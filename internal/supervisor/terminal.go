//go:build linux || darwin

package supervisor

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// A terminal is the one a process was started from. It has one process group in the foreground, which may
// read from it and gets the signals of its keys.
type terminal struct {
	file       *os.File
	foreground bool // this process was in it when the terminal was opened
}

// openTerminal returns the terminal of this process, or nil if there is none.
func openTerminal() *terminal {
	file, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	group, err := unix.IoctlGetInt(int(file.Fd()), unix.TIOCGPGRP)
	return &terminal{file, err == nil && group == unix.Getpgrp()}
}

// inForeground is whether this process was in the foreground of a terminal.
func (t *terminal) inForeground() bool { return t != nil && t.foreground }

// takeBack puts this process into the foreground again, if it was there.
func (t *terminal) takeBack() {
	if !t.inForeground() {
		return
	}
	// A process in the background that changes the foreground is stopped, unless it ignores the signal.
	signal.Ignore(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.file.Fd()), unix.TIOCSPGRP, unix.Getpgrp())
	signal.Reset(syscall.SIGTTOU)
}

// close closes the terminal of this process, if there is one.
func (t *terminal) close() {
	if t != nil {
		_ = t.file.Close()
	}
}
