package disk

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	bolt "go.etcd.io/bbolt"
)

// A CheckReport is what a file holds.
type CheckReport struct {
	File  string
	Bytes int64
	// Last is the last instant of the store's clock that is in the file.
	Last time.Time
	// Names is how many names of each kind can be read.
	Names map[gatehouse.Kind]int
	// Holds is how many holds of semaphores can be read.
	Holds int
	// Faults says what cannot be read, at most MaxFaults times.
	Faults []string
	// More is how many faults are not listed.
	More int
	// Old is where Drop has put the file as it was.
	Old string
}

// MaxFaults is the most faults that a report lists.
const MaxFaults = 1000

func (r *CheckReport) addFault(fault error) error {
	if len(r.Faults) == MaxFaults {
		r.More++
		return nil
	}
	r.Faults = append(r.Faults, fault.Error())
	return nil
}

// Check reads the file of a directory that no store has open, and changes nothing. An error means that it
// could not be read at all; what is wrong with it is in the report.
func Check(dir string) (*CheckReport, error) {
	return inspectFile(dir, nil, func(*CheckReport, *fileScan) error { return nil })
}

// inspectFile reads what can be read, and has something done with it while no store can open the file. kept
// is given every good record; it may be nil.
func inspectFile(
	dir string, kept func(bucket string, key, sealed []byte), then func(*CheckReport, *fileScan) error,
) (*CheckReport, error) {
	lock, err := lockDir(dir, false)
	if err != nil {
		return nil, err
	}
	defer func() { _ = lock.Close() }()
	r := &CheckReport{File: filepath.Join(dir, fileName), Names: make(map[gatehouse.Kind]int)}
	l := newFileScan()
	l.onFault, l.onProgress, l.onRecord = r.addFault, func(uint64) {}, kept
	if err := l.readFile(r.File); err != nil {
		return nil, err
	}
	// Missing records count as one more fault. The good ones remain in the report, so that Drop can keep
	// them.
	if err := l.checkComplete(); err != nil {
		_ = r.addFault(err)
	}
	r.Bytes, r.Last = l.bytes, time.Unix(0, l.head.last)
	for key, state := range l.states {
		r.Names[key.Kind]++
		// Only semaphores have holds in a bucket of their own. A lock is counted among the names.
		if s := trackedSemaphore(key, state); s != nil {
			r.Holds += len(s.Holds())
		}
	}
	return r, then(r, l)
}

// Dump visits what a file holds, kind by kind, in the order of the names, and changes nothing. now is the
// store's time. The report says what could not be read.
func Dump(
	dir string, visit func(now time.Time, key gatehouse.Key, state control.State) error,
) (*CheckReport, error) {
	return inspectFile(dir, nil, func(r *CheckReport, l *fileScan) error {
		// All states are read before the first visit, because a semaphore's holds are in another bucket.
		keys := slices.SortedFunc(maps.Keys(l.states), func(a, b gatehouse.Key) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
		// The store's clock is never before what it has written, whatever the system's says.
		now := time.Now()
		if now.Before(r.Last) {
			now = r.Last
		}
		for _, key := range keys {
			if err := visit(now, key, l.states[key]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Drop makes a new file of what can be read of a damaged one, which is kept under another name. What cannot
// be read is lost: who has a hold that is among it may find that somebody else has it too. A file that
// is not damaged is left as it is.
func Drop(dir string) (*CheckReport, error) {
	var good []keptRecord
	keep := func(bucket string, key, sealed []byte) {
		// Key and record are parts of a page that is reused after the visit, hence the copies.
		good = append(good, keptRecord{bucket, slices.Clone(key), slices.Clone(sealed)})
	}
	return inspectFile(dir, keep, func(r *CheckReport, l *fileScan) error {
		// A second call on a repaired file must not leave another copy of it.
		if len(r.Faults) == 0 {
			return nil
		}
		// The clock must not start again from zero, or fencing tokens would fall.
		l.found.last = l.head.last
		return r.replaceFile(good, &l.found)
	})
}

// A keptRecord is a record as it is in a file.
type keptRecord struct {
	bucket      string
	key, sealed []byte
}

// replaceFile makes a new file of the records that are good, and keeps the old one under another name. The
// count and the sum in head are those of the good records, so that the new file is complete.
func (r *CheckReport) replaceFile(good []keptRecord, head *fileHead) error {
	// The new file gets its name when it is complete. A draft of an earlier attempt is worth nothing.
	draft := r.File + ".mended"
	_ = os.Remove(draft)
	db, err := openFile(draft, head)
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, g := range good {
			if err := tx.Bucket([]byte(g.bucket)).Put(g.key, g.sealed); err != nil {
				return err
			}
		}
		return head.writeHead(tx)
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return err
	}
	old := fmt.Sprintf("%s.damaged-%s", r.File, time.Now().UTC().Format("20060102T150405.000"))
	if err := os.Link(r.File, old); err != nil {
		// A link instead of a rename, so that there is a file under the store's name at every instant.
		return err
	}
	r.Old = old
	return renameFile(draft, r.File)
}
