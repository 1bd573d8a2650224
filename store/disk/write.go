package disk

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"

	"github.com/gatehousehq/gatehouse"
	bolt "go.etcd.io/bbolt"
)

// write is the one goroutine that writes, until Close or until the file cannot be written.
func (s *Store) write() {
	defer close(s.ended)
	debug.SetPanicOnFault(true) // what is mapped may fail to be read
	for {
		<-s.wake
		// Those who were just told come back with their next command: let them, so that they go together.
		runtime.Gosched()
		closing := s.closing.Load()
		if err := s.work(closing); err != nil {
			s.fail(err)
			return
		}
		if closing {
			s.refuse(gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store is closed", s.dir))
			return
		}
	}
}

// work does what there is to do. An error is the end.
func (s *Store) work(closing bool) error {
	if err := s.writeNext(); err != nil {
		return err
	}
	if s.roomWanted.Swap(false) {
		if err := s.makeRoom(0); err != nil && !errors.Is(err, errFull) {
			return err
		}
	}
	if s.flushDue.Swap(false) || closing {
		if err := s.flush(closing); err != nil {
			return err
		}
		return s.writeNext()
	}
	return nil
}

// writeNext writes the batch that has come together, if there is one, and tells those who wait for it.
func (s *Store) writeNext() error {
	s.mu.Lock()
	b := s.next
	if len(b.changes) == 0 {
		s.mu.Unlock()
		return nil
	}
	s.current, s.next = b, newBatch()
	s.mu.Unlock()
	err := s.writeChanges(b.changes)
	if errors.Is(err, errFull) {
		return s.takeBack(err)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.current = nil
	s.mu.Unlock()
	close(b.done)
	return nil
}

// mostWhenFull is how many changes are written together while the disk is full: the free pages of the file
// suffice for that many.
const mostWhenFull = 128

// writeChanges writes them in one transaction, or, while the disk is full, in several.
func (s *Store) writeChanges(changes map[gatehouse.Key]*change) error {
	if t := s.trouble.Load(); t == nil || len(changes) <= mostWhenFull {
		return s.transact(changes)
	}
	part := make(map[gatehouse.Key]*change, mostWhenFull)
	for key, c := range changes {
		part[key] = c
		if len(part) < mostWhenFull {
			continue
		}
		if err := s.transact(part); err != nil {
			return err
		}
		clear(part)
	}
	return s.transact(part)
}

// transact writes changes in one transaction. An error is errFull, and then nothing was written, or final.
func (s *Store) transact(changes map[gatehouse.Key]*change) error {
	records, size := 0, 0
	for key, c := range changes {
		records += 1 + len(c.holds)
		size += len(key.Name) + len(c.state)
		for holder, form := range c.holds {
			size += len(key.Name) + len(holder) + len(form)
		}
	}
	if err := s.makeRoom(s.pagesFor(records, size)); err != nil {
		return err
	}
	err := s.update(func(w *writer) error {
		for key, c := range changes {
			if err := w.write(key, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && records > 0 {
		s.counters.wrote(records)
	}
	return err
}

// A writer is one transaction.
type writer struct {
	tx      *bolt.Tx
	head    head
	changed bool
}

// update makes a transaction. Nothing of it is on disk unless it returns nil; an error that is not errFull
// means that this is not certain, and then nothing may be written any more: a disk that has failed to keep
// what it was given may say at the next attempt that all is well.
func (s *Store) update(write func(w *writer) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = s.broken(fmt.Errorf("%v", p))
		}
	}()
	tx, err := s.db.Begin(true)
	if err != nil {
		return s.broken(err)
	}
	s.size.Store(tx.Size())
	w := &writer{tx: tx, head: s.head}
	if err := write(w); err != nil {
		return s.broken(err)
	}
	if !w.changed {
		return tx.Rollback()
	}
	w.head.last = s.now().UnixNano()
	if err := w.head.put(tx); err != nil {
		return s.broken(err)
	}
	id := tx.ID()
	if err := s.commit(tx); err != nil {
		return s.judge(err, id)
	}
	s.head = w.head
	return nil
}

// judge says what a commit that failed means. When a write had no room, before anything was valid, it
// is as if it had not been tried. A sync that failed is final whatever the reason.
func (s *Store) judge(err error, id int) error {
	var write *fs.PathError
	lacking := errors.As(err, &write) && write.Op == "write" && lacksRoom(err) ||
		strings.HasPrefix(err.Error(), "file resize error")
	if !lacking {
		return s.broken(err)
	}
	tx, begun := s.db.Begin(false)
	if begun != nil {
		return s.broken(begun)
	}
	valid := tx.ID()
	if rolled := tx.Rollback(); rolled != nil || valid >= id {
		return s.broken(err)
	}
	return fmt.Errorf("%w: %w", errFull, err)
}

func lacksRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// broken is the error after which nothing is written any more.
func (s *Store) broken(err error) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the disk failed, and nothing was acknowledged "+
		"since: %w; look after the disk, then start the server again", s.path(), err)
}

// write makes one change.
func (w *writer) write(key gatehouse.Key, c *change) error {
	name := []byte(key.Name)
	if c.fresh && key.Kind == gatehouse.Semaphore {
		if err := w.dropHolds(key.Name); err != nil {
			return err
		}
	}
	// In order, because many new keys of one page are put there by moving those behind them.
	for _, holder := range slices.Sorted(maps.Keys(c.holds)) {
		if err := w.set(holdsBucket, holdKey(key.Name, holder), c.holds[holder]); err != nil {
			return err
		}
	}
	return w.set(key.Kind.String(), name, c.state)
}

// set writes a record, or removes it when it is nil.
func (w *writer) set(bucket string, key, record []byte) error {
	b := w.tx.Bucket([]byte(bucket))
	if old := b.Get(key); old != nil {
		w.head.count--
		w.head.sum -= fingerprint(bucket, key, old)
	} else if record == nil {
		return nil
	}
	w.changed = true
	if record == nil {
		return b.Delete(key)
	}
	sealed := seal(bucket, key, record)
	w.head.count++
	w.head.sum += fingerprint(bucket, key, sealed)
	return b.Put(key, sealed)
}

// dropHolds removes the holds of a semaphore.
func (w *writer) dropHolds(name string) error {
	var holders []string // what a cursor stands on must not go
	err := eachHold(w.tx, name, func(holder string, _ []byte) error {
		holders = append(holders, holder)
		return nil
	})
	for _, holder := range holders {
		err = errors.Join(err, w.set(holdsBucket, holdKey(name, holder), nil))
	}
	return err
}

// eachHold visits the holds that the file has of a semaphore, whose forms must not be kept.
func eachHold(tx *bolt.Tx, name string, visit func(holder string, form []byte) error) error {
	prefix := holdKey(name, "")
	cursor := tx.Bucket([]byte(holdsBucket)).Cursor()
	for key, sealed := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, sealed = cursor.Next() {
		form, err := open(holdsBucket, key, sealed)
		if err != nil {
			return err
		}
		if err := visit(string(key[len(prefix):]), form); err != nil {
			return err
		}
	}
	return nil
}

// fail ends the store: from now on nobody is told anything but this.
func (s *Store) fail(err error) {
	s.config.Log.Error("the store has failed", "error", err)
	s.refuse(err)
	close(s.failed)
}

// refuse tells err to all who wait and all who come.
func (s *Store) refuse(err error) {
	s.trouble.Store(&trouble{err: err})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range [...]*batch{s.current, s.next} {
		if b != nil {
			b.err = err
			close(b.done)
		}
	}
	s.current, s.next = nil, newBatch()
	s.refused = newBatch()
	s.refused.err = err
	close(s.refused.done)
}
