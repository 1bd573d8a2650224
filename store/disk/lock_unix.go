//go:build !windows

package disk

import (
	"os"
	"syscall"
)

// noFollow makes opening a symbolic link an error.
const noFollow = syscall.O_NOFOLLOW

// othersMayWrite reports whether users other than the owner may write in a directory.
func othersMayWrite(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.Mode().Perm()&0o022 != 0
}

// tryLockFile locks a file if no other process has its lock. The system unlocks it when the process ends, in
// whatever way.
func tryLockFile(file *os.File) bool {
	fd := int(file.Fd()) // it was an int
	return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// syncDir makes the names in a directory last.
func syncDir(dir *os.File) error { return dir.Sync() }
