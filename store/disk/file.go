package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
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

// A file has a bucket for each kind, named as the kind, in which a name has a record; the holds of
// semaphores have records of their own in holdsBucket, and headBucket has one record about the file.
const (
	headBucket  = "gatehouse"
	headKey     = "head"
	holdsBucket = "semaphore holds"

	// ballastBucket is what makes room for later: see room.go.
	ballastBucket = "ballast"
)

// allBuckets are all buckets of a file.
func allBuckets() []string {
	names := []string{headBucket, holdsBucket, ballastBucket}
	for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
		names = append(names, kind.String())
	}
	return names
}

// holdKey is the key of the hold of a holder. A name has no zero byte.
func holdKey(name, holder string) []byte { return append(append([]byte(name), 0), holder...) }

// A record ends with the sum of where it is and what it says, so that a record in a wrong place is
// damaged too.
const sumSize = 4

// sealRecord appends the checksum of the record of key in a bucket.
func sealRecord(bucket string, key, record []byte) []byte {
	return binary.LittleEndian.AppendUint32(record, checksum(bucket, key, record))
}

func checksum(bucket string, key, record []byte) uint32 {
	t := crc32.MakeTable(crc32.Castagnoli)
	sum := crc32.Update(0, t, []byte(bucket))
	// The zero byte and the length separate the parts, so that a byte cannot move from one to the next.
	sum = crc32.Update(sum, t, []byte{0})
	sum = crc32.Update(sum, t, binary.AppendUvarint(nil, uint64(len(key))))
	sum = crc32.Update(sum, t, key)
	return crc32.Update(sum, t, record)
}

var errDamaged = errors.New("is damaged: its checksum is wrong")

// openRecord checks a sealed record and returns what it says.
func openRecord(bucket string, key, sealed []byte) ([]byte, error) {
	n := len(sealed) - sumSize
	if n < 0 || checksum(bucket, key, sealed[:n]) != binary.LittleEndian.Uint32(sealed[n:]) {
		return nil, errDamaged
	}
	return sealed[:n], nil
}

// A fileHead is what a file says about itself.
type fileHead struct {
	tx    uint64 // the number of the transaction that wrote it: no other page is from an older one
	last  int64  // the last instant of the store's clock that was written down, Unix ns
	count uint64 // of the records of all kinds, holds included
	sum   uint64 // of their prints, so that none can be missing or old
}

const headVersion = 1

func (h *fileHead) encode() []byte {
	data := []byte{headVersion}
	for _, number := range [...]uint64{h.tx, uint64(h.last), h.count, h.sum} { // the instant as bits
		data = binary.LittleEndian.AppendUint64(data, number)
	}
	return sealRecord(headBucket, []byte(headKey), data)
}

func decodeHead(sealed []byte) (h fileHead, err error) {
	data, err := openRecord(headBucket, []byte(headKey), sealed)
	switch {
	case err != nil:
		return h, err
	// One byte for the version and four numbers of eight.
	case len(data) != 33 || data[0] != headVersion:
		return h, fmt.Errorf("is of another version, of %d bytes, than this program's", len(data))
	}
	h.tx = binary.LittleEndian.Uint64(data[1:])
	h.last = int64(binary.LittleEndian.Uint64(data[9:])) // as bits
	h.count = binary.LittleEndian.Uint64(data[17:])
	h.sum = binary.LittleEndian.Uint64(data[25:])
	return h, nil
}

// writeHead writes the head, as the last change of a transaction.
func (h *fileHead) writeHead(tx *bolt.Tx) error {
	// The number is stored twice, here and in bbolt's own head, so that a page from an older transaction is
	// noticed.
	h.tx = uint64(tx.ID()) // it counts up from 1
	return tx.Bucket([]byte(headBucket)).Put([]byte(headKey), h.encode())
}

// fingerprint is a number of a sealed record at its place. The sum of all tells whether the right ones are
// there.
func fingerprint(bucket string, key, sealed []byte) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(bucket))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(key)
	_, _ = h.Write([]byte{0})
	_, _ = h.Write(sealed)
	return h.Sum64()
}

// trackedSemaphore is the state when its holds have records of their own.
func trackedSemaphore(key gatehouse.Key, state control.State) *control.Semaphore {
	if key.Kind != gatehouse.Semaphore || state == nil {
		return nil
	}
	return state.(*control.Semaphore)
}
