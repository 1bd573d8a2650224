package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

// noFollow does nothing there.
const noFollow = 0

// othersMayWrite reports false: the modes of files say nothing there.
func othersMayWrite(string) bool { return false }

// flock takes the lock of a file if nobody has it: of a byte behind what is written in it, which others may
// read. The system lets go of it when the process ends, however it does.
func flock(file *os.File) bool {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	place := windows.Overlapped{Offset: 1 << 20}
	return windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, &place) == nil
}

// syncDir does nothing: names last by themselves there.
func syncDir(*os.File) error { return nil }
