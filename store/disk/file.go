package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse"
	bolt "go.etcd.io/bbolt"
)

// The names in a store's directory.
const (
	fileName = "gatehouse.db"
	lockName = "lock"
)

func (s *Store) filePath() string { return filepath.Join(s.dir, fileName) }

// lockDir takes the directory for this process, and makes it if create says so.
func lockDir(dir string, create bool) (*os.File, error) {
	if create {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("%s: making the directory: %w", dir, err)
		}
	}
	path := filepath.Join(dir, lockName)
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	// which directory is the caller's choice
	// The file is never removed: a process that locked a removed file would lock nothing that others see.
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if !create && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		// A process that cannot write there cannot disturb one that can.
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: locking the directory: %w", dir, err)
	}
	if !tryLockFile(lock) {
		by := ""
		// The limit protects against a large file that was put there. A pid has at most 20 digits.
		if pid, err := io.ReadAll(io.LimitReader(lock, 20)); err == nil && len(pid) > 0 {
			by = ", whose pid is " + strings.TrimSpace(string(pid))
		}
		_ = lock.Close()
		return nil, gatehouse.Errorf(gatehouse.CodeUnavailable,
			"%s: is in use by another process%s; want a directory of its own for each server", dir, by)
	}
	// The pid is for the error text above. That it cannot be written does no harm.
	_ = lock.Truncate(0)
	_, _ = lock.WriteAt(fmt.Appendln(nil, os.Getpid()), 0)
	return lock, nil
}

// checkRegular refuses anything but a regular file, or none: a link may lead to a file of somebody else, and
// opening a pipe waits for its other end.
func checkRegular(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Mode().IsRegular() {
		return nil
	}
	if err != nil {
		return err
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: is %s, want a regular file or none", path,
		fileKind(info.Mode()))
}

// fileKind says what is no regular file.
func fileKind(mode fs.FileMode) string {
	switch {
	case mode&fs.ModeSymlink != 0:
		return "a link"
	case mode.IsDir():
		return "a directory"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	default:
		return "a device or a socket"
	}
}

// openFile opens a file that has been found good, or a new one, for writing.
func openFile(path string, h *fileHead) (db *bolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: opening: %v", path, p)
		}
	}()
	// The directory is locked already. The timeout is for another program that has the file open.
	db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout:        time.Second,
		PageSize:       1 << 12, // everywhere, so that a file can be taken elsewhere
		NoFreelistSync: true,    // the free pages are those that are not used
		FreelistType:   bolt.FreelistMapType,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: opening: %w", path, err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, bucket := range allBuckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(bucket)); err != nil {
				return err
			}
		}
		// What making room may have left behind.
		if err := tx.Bucket([]byte(ballastBucket)).Delete([]byte(ballastBucket)); err != nil {
			return err
		}
		return h.writeHead(tx)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: opening: %w", path, err), db.Close())
	}
	return db, nil
}

// createFile makes a file without records. It has its name once it is whole.
func createFile(path string) error {
	draft := path + ".new"
	// A crash during an earlier attempt may have left a draft without its last pages.
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := openFile(draft, new(fileHead))
	if err != nil {
		return err
	}
	// Closed before the rename, so that a file under the store's name is always whole.
	if err = db.Close(); err != nil {
		return fmt.Errorf("%s: writing the first record: %w", draft, err)
	}
	return renameFile(draft, path)
}

// renameFile gives a file another name, which lasts.
func renameFile(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	// A rename is an entry of the directory: without this sync a power failure may undo it.
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(syncDir(dir), dir.Close())
}
