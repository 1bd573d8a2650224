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

// runWriter is the only goroutine that writes the file, until Close or until the file cannot be written.
func (s *Store) runWriter() {
	defer close(s.writerEnded)
	debug.SetPanicOnFault(true) // a page of the mapped file may fail to be read
	for {
		<-s.wake
		// Clients that were just answered come back with their next command. Letting them run first puts
		// their changes into the same transaction.
		runtime.Gosched()
		closing := s.closing.Load()
		if err := s.writePending(closing); err != nil {
			s.config.Log.Error("the store has failed", "error", err)
			// Failed is closed last, so that a caller it wakes finds the reason in Err.
			s.refuseAll(err)
			close(s.failed)
			return
		}
		if closing {
			s.refuseAll(gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store is closed", s.dir))
			return
		}
	}
}

// writePending writes what is due: the next batch, room on a full disk, dirty names. An error is final.
func (s *Store) writePending(closing bool) error {
	if err := s.writeNext(); err != nil {
		return err
	}
	// A full disk is no failure here: setFull has scheduled the next attempt.
	if s.roomWanted.Swap(false) {
		if err := s.makeRoom(0); err != nil && !errors.Is(err, errFull) {
			return err
		}
	}
	if s.flushDue.Swap(false) || closing {
		if err := s.flushDirty(closing); err != nil {
			return err
		}
		// The flush may have put statistics and forgotten names into the next batch.
		return s.writeNext()
	}
	return nil
}

// writeNext writes the next batch if it has changes, and answers its callers.
func (s *Store) writeNext() error {
	s.mu.Lock()
	b := s.next
	if len(b.changes) == 0 {
		s.mu.Unlock()
		return nil
	}
	s.current, s.next = b, newWriteBatch()
	s.mu.Unlock()
	// current is set before the write and cleared after it: a decision that rests on one of its changes must
	// wait for it, and finds it there.
	err := s.writeChanges(b.changes)
	if errors.Is(err, errFull) {
		// rollBack also answers the callers of this batch, and of the one that has begun since.
		return s.rollBack(err)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.current = nil
	s.mu.Unlock()
	b.answerCallers(nil)
	return nil
}

// maxWhenFull is how many changes are written together while the disk is full: the free pages of the file
// suffice for that number.
const maxWhenFull = 128

// writeChanges writes them in one transaction, or, while the disk is full, in several.
func (s *Store) writeChanges(changes map[gatehouse.Key]*nameChange) error {
	if t := s.trouble.Load(); t == nil || len(changes) <= maxWhenFull {
		return s.writeTransaction(changes)
	}
	part, rest := make(map[gatehouse.Key]*nameChange, maxWhenFull), maps.Clone(changes)
	for key := range changes {
		moveTogether(part, rest, key)
		if len(part) < maxWhenFull {
			continue
		}
		if err := s.writeTransaction(part); err != nil {
			return err
		}
		clear(part)
	}
	return s.writeTransaction(part)
}

// writeTransaction writes changes in one transaction. An error is either errFull, after which nothing was
// written, or final.
func (s *Store) writeTransaction(changes map[gatehouse.Key]*nameChange) error {
	// An upper bound of the pages, since a release must find room even on a full disk.
	records, size := 0, 0
	for key, c := range changes {
		// One record for the name itself. Of a semaphore each changed hold is another, also one that is
		// removed.
		records += 1 + len(c.holds)
		size += len(key.Name) + len(c.state)
		for holder, form := range c.holds {
			size += len(key.Name) + len(holder) + len(form)
		}
	}
	if err := s.makeRoom(s.pagesFor(records, size)); err != nil {
		return err
	}
	err := s.updateFile(func(w *fileTx) error {
		for key, c := range changes {
			if err := w.writeChange(key, c); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil && records > 0 {
		s.counters.commits.Add(1)
		s.counters.records.Add(uint64(records)) // from 0
	}
	return err
}

// A fileTx is one transaction.
type fileTx struct {
	tx      *bolt.Tx
	head    fileHead
	changed bool
}

// updateFile makes one transaction. It is on disk if updateFile returns nil, and is not if that returns
// errFull. After any other error this is not certain, and nothing may be written any more: a disk that has
// failed to keep what it was given may report success at the next attempt.
func (s *Store) updateFile(write func(w *fileTx) error) (err error) {
	defer func() {
		// bbolt panics on a page that makes no sense, and a mapped page that cannot be read is a fault.
		if p := recover(); p != nil {
			err = s.diskError(fmt.Errorf("%v", p))
		}
	}()
	tx, err := s.db.Begin(true)
	if err != nil {
		return s.diskError(err)
	}
	s.fileSize.Store(tx.Size())
	w := &fileTx{tx: tx, head: s.head}
	if err := write(w); err != nil {
		return s.diskError(err)
	}
	// Every commit waits for the disk, so that one without a change is not made.
	if !w.changed {
		return tx.Rollback()
	}
	w.head.last = s.now().UnixNano()
	if err := w.head.writeHead(tx); err != nil {
		return s.diskError(err)
	}
	id := tx.ID()
	if err := s.commitTx(tx); err != nil {
		return s.classifyCommitError(err, id)
	}
	s.head = w.head
	return nil
}

// classifyCommitError returns errFull if a commit failed because a write had no room, before the transaction
// became valid. Any other error is final, and so is every error of a sync.
func (s *Store) classifyCommitError(err error, id int) error {
	var write *fs.PathError
	lacking := errors.As(err, &write) && write.Op == "write" && lacksRoom(err) ||
		strings.HasPrefix(err.Error(), "file resize error")
	if !lacking {
		return s.diskError(err)
	}
	// A read transaction has the number of the last valid transaction. If that is the failed one, or cannot
	// be told, the change may be on disk.
	tx, begun := s.db.Begin(false)
	if begun != nil {
		return s.diskError(begun)
	}
	valid := tx.ID()
	if rolled := tx.Rollback(); rolled != nil || valid >= id {
		return s.diskError(err)
	}
	return fmt.Errorf("%w: %w", errFull, err)
}

func lacksRoom(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// diskError is the error after which nothing is written any more.
func (s *Store) diskError(err error) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the disk failed, and nothing was acknowledged "+
		"since: %w; look after the disk, then start the server again", s.filePath(), err)
}

// writeChange makes one change.
func (w *fileTx) writeChange(key gatehouse.Key, c *nameChange) error {
	name := []byte(key.Name)
	if c.fresh && key.Kind == gatehouse.Semaphore {
		if err := w.dropHolds(key.Name); err != nil {
			return err
		}
	}
	// In order of the keys: bbolt inserts a key into a page by moving all keys behind it.
	for _, holder := range slices.Sorted(maps.Keys(c.holds)) {
		if err := w.setRecord(holdsBucket, holdKey(key.Name, holder), c.holds[holder]); err != nil {
			return err
		}
	}
	return w.setRecord(key.Kind.String(), name, c.state)
}

// setRecord writes a record, or removes it when it is nil.
func (w *fileTx) setRecord(bucket string, key, record []byte) error {
	b := w.tx.Bucket([]byte(bucket))
	if old := b.Get(key); old != nil {
		// The old record leaves the count and the sum whatever follows it. The branches below add the new
		// one.
		w.head.count--
		w.head.sum -= fingerprint(bucket, key, old)
	} else if record == nil {
		return nil
	}
	w.changed = true
	if record == nil {
		return b.Delete(key)
	}
	sealed := sealRecord(bucket, key, record)
	w.head.count++
	w.head.sum += fingerprint(bucket, key, sealed)
	return b.Put(key, sealed)
}

// dropHolds removes the holds of a semaphore.
func (w *fileTx) dropHolds(name string) error {
	// The holders are collected first, because a key under a cursor must not be removed.
	var holders []string
	err := eachHold(w.tx, name, func(holder string, _ []byte) error {
		holders = append(holders, holder)
		return nil
	})
	for _, holder := range holders {
		err = errors.Join(err, w.setRecord(holdsBucket, holdKey(name, holder), nil))
	}
	return err
}

// eachHold visits the holds that the file has of a semaphore, whose forms must not be kept.
func eachHold(tx *bolt.Tx, name string, visit func(holder string, form []byte) error) error {
	prefix := holdKey(name, "")
	cursor := tx.Bucket([]byte(holdsBucket)).Cursor()
	for key, sealed := cursor.Seek(prefix); bytes.HasPrefix(key, prefix); key, sealed = cursor.Next() {
		form, err := openRecord(holdsBucket, key, sealed)
		if err != nil {
			return err
		}
		if err := visit(string(key[len(prefix):]), form); err != nil {
			return err
		}
	}
	return nil
}

// refuseAll answers err to all waiting and all later calls.
func (s *Store) refuseAll(err error) {
	// First the trouble, then the batches: a call that misses the first finds refused below.
	s.trouble.Store(&trouble{err: err})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range [...]*writeBatch{s.current, s.next} {
		if b != nil {
			b.answerCallers(err)
		}
	}
	s.current, s.next = nil, newWriteBatch()
	s.refused = newWriteBatch()
	s.refused.err = err
}
