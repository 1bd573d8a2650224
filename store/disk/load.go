package disk

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/boltfile"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// loadFile reads the file, or makes one, and opens it for writing.
func (s *Store) loadFile() error {
	_, err := os.Lstat(s.filePath())
	if errors.Is(err, fs.ErrNotExist) {
		err = createFile(s.filePath())
	}
	if err != nil {
		return err
	}
	// The system's clock is read before the file, so that the time that loading takes is part of the store's.
	wall, begun := s.config.Now(), time.Now()
	l, err := s.scanFile()
	if err != nil {
		return err
	}
	s.head = l.head
	start := s.clockStart(wall, l.head.last)
	s.now = func() time.Time { return start.Add(time.Since(begun)) }
	s.memory = memory.New(memory.Config{
		Names: s.config.Names, Holders: s.config.Holders, Memory: s.config.Memory,
		Linger: s.config.Linger, Now: s.now, Journal: memoryJournal{s},
	})
	// Only now bbolt may have the file: it trusts what it reads, and scanFile has checked every page.
	s.db, err = openFile(s.filePath(), &s.head)
	if err != nil {
		return err
	}
	expired := s.fillMemory(l.states)
	if names := len(l.states); names > 0 {
		s.config.Log.Info("loaded", "dir", s.dir, "names", names-expired, "expired", expired,
			"took", time.Since(begun).Round(time.Millisecond).String())
	}
	if err := s.makeRoom(0); err != nil && !errors.Is(err, errFull) {
		return err
	}
	return nil
}

// fillMemory puts the states of a file into the memory, except those that have expired. These are removed
// from the file later, because they become dirty. A limit at rest stays as long as without a restart.
func (s *Store) fillMemory(states map[gatehouse.Key]control.State) (expired int) {
	now := s.now()
	for key, state := range states {
		worth := state.Expiry()
		// A limiter that is worth nothing still remembers its limit for commands that leave it as it is.
		if control.HasLimit(state) {
			worth = worth.Add(s.memory.LingerFor(key.Kind))
		}
		if !worth.After(now) {
			expired++
			// Dirty and not in the memory: the next flush finds no state, and removes the record.
			s.memory.MarkDirty(key)
			continue
		}
		// The tickets that waited when the file was written are gone with their process.
		control.ForgetWaiters(state, func(control.Ticket) bool { return true })
		s.memory.Put(key, state)
	}
	return expired
}

// clockStart is where the store's clock begins: at the system's, which is read once. It goes on from the last
// instant in the file if the system's was set back meanwhile, so that no time comes twice and no fencing
// token falls.
func (s *Store) clockStart(wall time.Time, last int64) time.Time {
	const worth = 10 * time.Second // of a warning
	earliest := time.Unix(0, last).Add(time.Millisecond)
	if last == 0 || wall.After(earliest) {
		return wall
	}
	if ahead := earliest.Sub(wall); ahead > worth {
		s.config.Log.Warn("the system's clock was set back while the store was closed: "+
			"the store's clock continues from its last time", "dir", s.dir, "ahead", ahead.String())
	}
	return earliest
}

// A fileScan is what was read from a file.
type fileScan struct {
	onFault    func(error) error    // called with each fault; its error ends the reading
	onProgress func(records uint64) // called with the number of records read so far

	bytes    int64
	head     fileHead
	states   map[gatehouse.Key]control.State
	onRecord func(bucket string, key, sealed []byte) // is given every good record; may be nil

	found   fileHead // what the head should be
	hasHead bool
}

// progressEach is the number of records after which the progress of loading is logged.
const progressEach = 100_000

// scanFile reads the whole file. The first thing that is wrong with it is an error.
func (s *Store) scanFile() (*fileScan, error) {
	l := newFileScan()
	// One fault is enough to refuse the file: to go on without a hold must be the operator's decision.
	l.onFault = func(fault error) error { return fault }
	l.onProgress = func(records uint64) {
		if records > 0 && records%progressEach == 0 {
			s.config.Log.Info("loading", "dir", s.dir, "records", records)
		}
	}
	err := l.readFile(s.filePath())
	if err == nil {
		err = l.checkComplete()
	}
	if err != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInternal, "%s: %w; \"gatehouse data check %s\" tells "+
			"all that is wrong, \"gatehouse data check --drop %s\" goes on without it",
			s.filePath(), err, s.dir, s.dir)
	}
	return l, nil
}

func newFileScan() *fileScan { return &fileScan{states: make(map[gatehouse.Key]control.State)} }

func (l *fileScan) readFile(path string) error {
	if err := checkRegular(path); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0) // it is the caller's
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	l.bytes = info.Size()
	return l.readRecords(file, info.Size())
}

// readRecords reads all records of a file of this size.
func (l *fileScan) readRecords(file io.ReaderAt, size int64) error {
	return boltfile.Walk(file, size, boltfile.Visitor{
		Fault:       l.onFault,
		Transaction: func(id uint64) { l.found.tx = id },
		Record: func(bucket, key, value []byte) error {
			if err := l.readRecord(string(bucket), key, value); err != nil {
				return l.onFault(fmt.Errorf("record %q in bucket %q %w", key, bucket, err))
			}
			l.onProgress(l.found.count)
			return nil
		},
	})
}

// readRecord reads one record.
func (l *fileScan) readRecord(bucket string, key, sealed []byte) (err error) {
	switch bucket {
	case headBucket:
		if string(key) != headKey {
			return errors.New("is unknown")
		}
		l.head, err = decodeHead(sealed)
		l.hasHead = err == nil
		return err
	case ballastBucket:
		// It has no checksum: growFile writes it as zeros, and a crash may leave it there.
		return nil
	}
	record, err := openRecord(bucket, key, sealed)
	if err != nil {
		return err
	}
	// A record counts as found only when it could be decoded too: Drop keeps the found ones.
	if bucket == holdsBucket {
		err = l.readHold(string(key), record)
	} else {
		err = l.readName(bucket, string(key), record)
	}
	if err != nil {
		return err
	}
	l.found.count++
	l.found.sum += fingerprint(bucket, key, sealed)
	if l.onRecord != nil {
		l.onRecord(bucket, key, sealed)
	}
	return nil
}

// readName reads the state under a name.
func (l *fileScan) readName(bucket, key string, record []byte) error {
	kind, ok := gatehouse.ParseKind(bucket)
	if !ok {
		return errors.New("is of a kind that this program does not know")
	}
	name := gatehouse.Key{Kind: kind, Name: key}
	state, err := control.Decode(kind, record)
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	// Track comes before the holds are read, so that those do not count as changes to write.
	if s := trackedSemaphore(name, state); s != nil {
		s.Track()
	}
	l.states[name] = state
	return nil
}

// readHold reads a hold of a semaphore, which was read before: its bucket comes first.
func (l *fileScan) readHold(key string, record []byte) error {
	// A name has no zero byte, so the first one ends it.
	name, holder, _ := strings.Cut(key, "\x00")
	semaphore := gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}
	s := trackedSemaphore(semaphore, l.states[semaphore])
	if s == nil {
		return errors.New("belongs to a semaphore that is not there")
	}
	if err := s.DecodeHold(holder, record); err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	return nil
}

// checkComplete reports whether the records are those that were written last, all of them.
func (l *fileScan) checkComplete() error {
	// Each record has its own checksum. These cases find what that cannot: records that are missing, or good
	// ones from an older transaction.
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
