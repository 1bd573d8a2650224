//go:build !windows

package disk

import (
	"os"
	"syscall"
)

// noFollow has a file not opened that is a link.
const noFollow = syscall.O_NOFOLLOW

// othersMayWrite reports whether somebody else than the owner may write in a directory.
func othersMayWrite(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&0o022 != 0
}

// flock takes the lock of a file if nobody has it. The system lets go of it when the process ends, however
// it does.
func flock(file *os.File) bool {
	fd := int(file.Fd()) // #nosec G115 -- it was an int
	return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// syncDir makes the names in a directory last.
func syncDir(dir *os.File) error { return dir.Sync() }
