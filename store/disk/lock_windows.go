package disk

import (
	"os"

	"golang.org/x/sys/windows"
)

// noFollow does nothing there.
const noFollow = 0

// othersMayWrite reports false: the modes of files say nothing there.
func othersMayWrite(string) bool { return false }

// tryLockFile locks a file if no other process has its lock. The lock is that of a byte behind the text in
// the file, which others may read. The system unlocks it when the process ends, in whatever way.
func tryLockFile(file *os.File) bool {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	place := windows.Overlapped{Offset: 1 << 20}
	return windows.LockFileEx(windows.Handle(file.Fd()), flags, 0, 1, 0, &place) == nil
}

// syncDir does nothing: names last by themselves there.
func syncDir(*os.File) error { return nil }
