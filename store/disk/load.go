package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
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
	// #nosec G304 -- which directory is the caller's choice
	lock, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o600)
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

// load reads the file, or makes one, and opens it for writing.
func (s *Store) load() error {
	_, err := os.Stat(s.path())
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
		Names: s.config.Names, Linger: s.config.Linger, Now: s.now, Journal: journal{s},
	})
	if s.db, err = openFile(s.path()); err != nil {
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
// file some time.
func (s *Store) fill(states map[gatehouse.Key]control.State) (expired int) {
	now := s.now()
	for key, state := range states {
		if !state.Expiry().After(now) {
			expired++
			s.memory.Mark(key)
			continue
		}
		control.Left(state, func(gatehouse.Ticket) bool { return true })
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
	path   string
	head   head
	states map[gatehouse.Key]control.State

	found       head // what the head should be
	hasHead     bool
	hasLeftover bool // of making room
}

// progressEach is after how many records the log is told how far loading is.
const progressEach = 100_000

// read reads the whole file. The first thing that is wrong with it is an error.
func (s *Store) read() (*loading, error) {
	l := &loading{path: s.path(), states: make(map[gatehouse.Key]control.State)}
	fault := func(fault error) error { return fault }
	err := l.walk(func(records uint64) {
		if records%progressEach == 0 {
			s.config.Log.Info("loading", "dir", s.dir, "records", records)
		}
	}, fault)
	if err == nil {
		err = l.complete()
	}
	if err != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInternal, "%s: %w; \"gatehouse data check %s\" tells all "+
			"that is wrong, \"gatehouse data check --drop %s\" goes on without it", l.path, err, s.dir, s.dir)
	}
	return l, nil
}

// walk reads all records. Faults are told to fault, whose error ends the reading.
func (l *loading) walk(progress func(records uint64), fault func(error) error) error {
	file, err := os.Open(l.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	return boltfile.Walk(file, info.Size(), boltfile.Visitor{
		Fault: fault,
		Record: func(bucket, key, value []byte) error {
			if err := l.record(string(bucket), key, value); err != nil {
				return fault(&recordError{bucket: string(bucket), key: string(key), err: err})
			}
			progress(l.found.count)
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
		l.hasLeftover = true
		return nil
	}
	record, err := open(bucket, key, sealed)
	if err != nil {
		return err
	}
	l.found.count++
	l.found.sum += fingerprint(bucket, key, sealed)
	if bucket == holdsBucket {
		return l.hold(string(key), record)
	}
	kind, ok := gatehouse.ParseKind(bucket)
	if !ok {
		return errors.New("is of a kind that this program does not know")
	}
	name := gatehouse.Key{Kind: kind, Name: string(key)}
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
	case l.found.count != l.head.count:
		return fmt.Errorf("has %d records, want %d", l.found.count, l.head.count)
	case l.found.sum != l.head.sum:
		return errors.New("has other records than were written last")
	}
	return nil
}

// openFile opens a file that has been found good for writing.
func openFile(path string) (db *bolt.DB, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s: opening: %v", path, p)
		}
	}()
	db, err = bolt.Open(path, 0o600, &bolt.Options{
		Timeout:        time.Second,
		NoFreelistSync: true, // the free pages are those that are not used
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
		return tx.Bucket([]byte(ballastBucket)).Delete([]byte(ballastBucket))
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
	db, err := openFile(draft)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket([]byte(headBucket)).Put([]byte(headKey), head{}.encode())
	})
	if err = errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("%s: writing the first record: %w", draft, err)
	}
	if err := os.Rename(draft, path); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(syncDir(dir), dir.Close())
}
