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
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/boltfile"
	"github.com/gatehousehq/gatehouse/store/memory"
	bolt "go.etcd.io/bbolt"
)

// The names in a store's directory.
const (
	fileName = "gatehouse.db"
	lockName = "lock"
)

func (s *Store) path() string { return filepath.Join(s.dir, fileName) }

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
	// #nosec G304 -- which directory is the caller's choice
	lock, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|noFollow, 0o600)
	if !create && (errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS)) {
		return nil, nil // who cannot write there cannot be in the way of who can
	}
	if err != nil {
		return nil, fmt.Errorf("%s: locking the directory: %w", dir, err)
	}
	if !flock(lock) {
		by := ""
		if pid, err := io.ReadAll(io.LimitReader(lock, 20)); err == nil && len(pid) > 0 {
			by = ", whose pid is " + strings.TrimSpace(string(pid))
		}
		_ = lock.Close()
		return nil, gatehouse.Errorf(gatehouse.CodeUnavailable,
			"%s: is in use by another process%s; want a directory of its own for each server", dir, by)
	}
	// Only to tell who: that it cannot be written does no harm.
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

// load reads the file, or makes one, and opens it for writing.
func (s *Store) load() error {
	_, err := os.Lstat(s.path())
	if errors.Is(err, fs.ErrNotExist) {
		err = createFile(s.path())
	}
	if err != nil {
		return err
	}
	wall, begun := s.config.Now(), time.Now()
	l, err := s.read()
	if err != nil {
		return err
	}
	s.head = l.head
	start := s.start(wall, l.head.last)
	s.now = func() time.Time { return start.Add(time.Since(begun)) }
	s.memory = memory.New(memory.Config{
		Names: s.config.Names, Holders: s.config.Holders, Memory: s.config.Memory,
		Linger: s.config.Linger, Now: s.now, Journal: journal{s},
	})
	s.db, err = openFile(s.path(), &s.head)
	if err != nil {
		return err
	}
	expired := s.fill(l.states)
	if names := len(l.states); names > 0 {
		s.config.Log.Info("loaded", "dir", s.dir, "names", names-expired, "expired", expired,
			"took", time.Since(begun).Round(time.Millisecond).String())
	}
	if err := s.makeRoom(0); err != nil && !errors.Is(err, errFull) {
		return err
	}
	return nil
}

// fill puts what was read into the memory, but for what has expired meanwhile, which is removed from the
// file some time. A limit that is at rest stays for as long as it would have without a restart.
func (s *Store) fill(states map[gatehouse.Key]control.State) (expired int) {
	now := s.now()
	for key, state := range states {
		worth := state.Expiry()
		if control.HasLimit(state) {
			worth = worth.Add(s.memory.LingerFor(key.Kind))
		}
		if !worth.After(now) {
			expired++
			s.memory.MarkDirty(key)
			continue
		}
		control.ForgetWaiters(state, func(gatehouse.Ticket) bool { return true })
		s.memory.Put(key, state)
	}
	return expired
}

// start is where the store's clock begins: at the system's, which is read once. It goes on from the last
// instant in the file if the system's was set back meanwhile, so that no time comes twice and no fencing
// token falls.
func (s *Store) start(wall time.Time, last int64) time.Time {
	const worth = 10 * time.Second // of a warning
	earliest := time.Unix(0, last).Add(time.Millisecond)
	if last == 0 || wall.After(earliest) {
		return wall
	}
	if ahead := earliest.Sub(wall); ahead > worth {
		s.config.Log.Warn("the system's clock was set back while the store was closed: "+
			"the store's goes on from where it was", "dir", s.dir, "ahead", ahead.String())
	}
	return earliest
}

// A loading is what was read from a file.
type loading struct {
	fault    func(error) error    // is told what is wrong; its error ends the reading
	progress func(records uint64) // is told how many were read

	bytes  int64
	head   head
	states map[gatehouse.Key]control.State
	kept   func(bucket string, key, sealed []byte) // is given every good record; may be nil

	found   head // what the head should be
	hasHead bool
}

// progressEach is after how many records the log is told how far loading is.
const progressEach = 100_000

// read reads the whole file. The first thing that is wrong with it is an error.
func (s *Store) read() (*loading, error) {
	l := newLoading()
	l.fault = func(fault error) error { return fault }
	l.progress = func(records uint64) {
		if records > 0 && records%progressEach == 0 {
			s.config.Log.Info("loading", "dir", s.dir, "records", records)
		}
	}
	err := l.readFile(s.path())
	if err == nil {
		err = l.complete()
	}
	if err != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInternal, "%s: %w; \"gatehouse data check %s\" tells "+
			"all that is wrong, \"gatehouse data check --drop %s\" goes on without it",
			s.path(), err, s.dir, s.dir)
	}
	return l, nil
}

func newLoading() *loading { return &loading{states: make(map[gatehouse.Key]control.State)} }

func (l *loading) readFile(path string) error {
	if err := checkRegular(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0) // #nosec G304 -- it is the caller's
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	l.bytes = info.Size()
	return l.read(file, info.Size())
}

// read reads all records of a file of this size.
func (l *loading) read(file io.ReaderAt, size int64) error {
	return boltfile.Walk(file, size, boltfile.Visitor{
		Fault:       l.fault,
		Transaction: func(id uint64) { l.found.tx = id },
		Record: func(bucket, key, value []byte) error {
			if err := l.record(string(bucket), key, value); err != nil {
				return l.fault(&recordError{bucket: string(bucket), key: string(key), err: err})
			}
			l.progress(l.found.count)
			return nil
		},
	})
}

// A recordError is what is wrong with one record.
type recordError struct {
	bucket, key string
	err         error
}

func (e *recordError) Error() string {
	return fmt.Sprintf("record %q in bucket %q %v", e.key, e.bucket, e.err)
}

func (e *recordError) Unwrap() error { return e.err }

// record reads one record.
func (l *loading) record(bucket string, key, sealed []byte) (err error) {
	switch bucket {
	case headBucket:
		if string(key) != headKey {
			return errors.New("is unknown")
		}
		l.head, err = decodeHead(sealed)
		l.hasHead = err == nil
		return err
	case ballastBucket:
		return nil
	}
	record, err := open(bucket, key, sealed)
	if err != nil {
		return err
	}
	if bucket == holdsBucket {
		err = l.hold(string(key), record)
	} else {
		err = l.name(bucket, string(key), record)
	}
	if err != nil {
		return err
	}
	l.found.count++
	l.found.sum += fingerprint(bucket, key, sealed)
	if l.kept != nil {
		l.kept(bucket, key, sealed)
	}
	return nil
}

// name reads the state under a name.
func (l *loading) name(bucket, key string, record []byte) error {
	kind, ok := gatehouse.ParseKind(bucket)
	if !ok {
		return errors.New("is of a kind that this program does not know")
	}
	name := gatehouse.Key{Kind: kind, Name: key}
	state, err := control.Decode(kind, record)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	if s := tracked(name, state); s != nil {
		s.Track()
	}
	l.states[name] = state
	return nil
}

// hold reads a hold of a semaphore, which was read before: its bucket comes first.
func (l *loading) hold(key string, record []byte) error {
	name, holder, _ := strings.Cut(key, "\x00")
	semaphore := gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}
	s := tracked(semaphore, l.states[semaphore])
	if s == nil {
		return errors.New("belongs to a semaphore that is not there")
	}
	if err := s.DecodeHold(holder, record); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}

// complete reports whether the records are those that were written last, all of them.
func (l *loading) complete() error {
	switch {
	case !l.hasHead:
		return errors.New("has no head")
	case l.found.tx != l.head.tx:
		return fmt.Errorf("has the head of transaction %d, want %d", l.head.tx, l.found.tx)
	case l.found.count != l.head.count:
		return fmt.Errorf("has %d records, want %d", l.found.count, l.head.count)
	case l.found.sum != l.head.sum:
		return errors.New("has other records than were written last")
	}
	return nil
}

// openFile opens a file that has been found good, or a new one, for writing.
func openFile(path string, h *head) (db *bolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: opening: %v", path, p)
		}
	}()
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
		for _, bucket := range buckets() {
			if _, err := tx.CreateBucketIfNotExists([]byte(bucket)); err != nil {
				return err
			}
		}
		// What making room may have left behind.
		if err := tx.Bucket([]byte(ballastBucket)).Delete([]byte(ballastBucket)); err != nil {
			return err
		}
		return h.put(tx)
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: opening: %w", path, err), db.Close())
	}
	return db, nil
}

// createFile makes a file without records. It has its name once it is whole.
func createFile(path string) error {
	draft := path + ".new"
	if err := os.Remove(draft); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	db, err := openFile(draft, new(head))
	if err != nil {
		return err
	}
	if err = db.Close(); err != nil {
		return fmt.Errorf("%s: writing the first record: %w", draft, err)
	}
	return rename(draft, path)
}

// rename gives a file another name, which lasts.
func rename(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	return errors.Join(syncDir(dir), dir.Close())
}
