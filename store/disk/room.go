package disk

import (
	"errors"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	bolt "go.etcd.io/bbolt"
)

// A release needs room on the disk too, for a while: the file never overwrites a page that is still valid.
// So some pages of the file are kept free that were written once, and thus are there. They are made by
// writing a large record and removing it.

// errFull means that something was not written because there is no room.
var errFull = errors.New("no room on the disk")

// roomRetryDelay is how soon it is tried again to get room on a full disk.
const roomRetryDelay = time.Second

// needsRoom reports whether the command may make the file larger.
func (s *Store) needsRoom(key gatehouse.Key, cmd *gatehouse.Command) bool {
	switch cmd.Op {
	case gatehouse.OpAcquire, gatehouse.OpSend:
		return true
	// A new state of a known name replaces its record and needs no more than the reserve.
	case gatehouse.OpKick, gatehouse.OpCount, gatehouse.OpReset, gatehouse.OpWait:
		return !s.memory.Has(key)
	default:
		return false
	}
}

// applyFull serves a change while the disk is full, except the commands that need room.
func (s *Store) applyFull(c *control.Change, t *trouble) {
	var places []int
	for i := range c.Turns {
		if s.needsRoom(c.Key, c.Turns[i].Command) {
			c.Turns[i].Err = t.err
			continue
		}
		// Releases and undos must go on: they are what frees room for the clients.
		places = append(places, i)
	}
	// A refused command is the occasion to look whether there is room again.
	if len(places) < len(c.Turns) {
		s.lookForRoom(t)
	}
	if len(places) == 0 {
		c.Done(t.err)
		return
	}
	s.memory.Apply(c.Part(places))
}

// lookForRoom has the writer look whether the disk has room again, now and then.
func (s *Store) lookForRoom(t *trouble) {
	if s.now().After(t.retryAt) {
		s.roomWanted.Store(true)
		s.wakeWriter()
	}
}

// pagesFor returns an upper bound of the pages of a transaction, by the number of its records and their bytes
// in all: a leaf and a branch for each record, but no more pages than are used.
func (s *Store) pagesFor(records, size int) int {
	const spare = 64 // for the heads of buckets and what is split
	page := s.db.Info().PageSize
	used := int(s.fileSize.Load()/int64(page)) - s.freePages()
	return min(2*records, used) + 2*size/page + spare
}

// freePages is how many pages of the file are free.
func (s *Store) freePages() int {
	stats := s.db.Stats()
	return stats.FreePageN + stats.PendingPageN
}

// makeRoom makes sure that a transaction of that many pages can be written and leaves some for later. An
// error is errFull or final.
func (s *Store) makeRoom(pages int) error {
	reserve := s.config.Reserve / s.db.Info().PageSize
	t := s.trouble.Load()
	// Half the reserve suffices while all is well. Each growth fills it up, so that not every transaction
	// grows the file.
	switch free := s.freePages(); {
	case t == nil && free >= pages+reserve/2:
		return nil
	case t != nil && free >= pages+reserve: // more than that, so that it does not change to and fro
		s.setRoomy()
		return nil
	// On a full disk a retry costs a failed write. The transaction itself can use the free pages.
	case t != nil && s.now().Before(t.retryAt):
		return nil
	}
	// Growing is tried also when the pages would suffice, to notice a full disk while there is a reserve.
	err := s.growFile(pages + reserve)
	switch {
	case err == nil:
		s.setRoomy()
		return nil
	case !errors.Is(err, errFull):
		return err
	}
	s.setFull(err)
	if t == nil && s.freePages() < pages+reserve/4 {
		return err // it may be much, and what is kept is not for that
	}
	return nil
}

// growFile adds free pages to the file, by writing a record of their size and removing it.
func (s *Store) growFile(pages int) error {
	key := []byte(ballastBucket)
	err := s.updateFile(func(w *fileTx) error {
		w.changed = true
		ballast := make([]byte, pages*s.db.Info().PageSize)
		return w.tx.Bucket(key).Put(key, ballast)
	})
	if err != nil {
		return err
	}
	// A transaction of its own: pages become free only when the transaction that removes their record is
	// valid.
	return s.updateFile(func(w *fileTx) error {
		w.changed = true
		return w.tx.Bucket(key).Delete(key)
	})
}

func (s *Store) setRoomy() {
	if s.trouble.Load() != nil {
		s.trouble.Store(nil)
		s.config.Log.Info("the disk has room again", "dir", s.dir)
	}
}

func (s *Store) setFull(err error) {
	if s.trouble.Load() == nil {
		s.config.Log.Warn("the disk is full: commands that need room are refused, releases still work",
			"dir", s.dir, "error", err)
	}
	s.trouble.Store(&trouble{
		full: true, retryAt: s.now().Add(roomRetryDelay),
		err: gatehouse.Errorf(gatehouse.CodeUnavailable,
			"%s: the disk is full, and nothing new can be held, sent or counted until there is room", s.dir),
	})
}

// rollBack resets the memory to what the file says after changes could not be written, and answers the
// waiting calls with the error. Changes that come meanwhile are rolled back too.
func (s *Store) rollBack(err error) error {
	// First the trouble: from now on Apply refuses commands that need room, and fewer changes come meanwhile.
	s.setFull(err)
	refused := newWriteBatch()
	refused.err = s.trouble.Load().err
	s.mu.Lock()
	defer s.mu.Unlock()
	// From here on OnServed adds the names of new changes to refused, until no name is left to restore. Only
	// then, under one lock, changes are accepted again.
	s.refused = refused
	waiting := [...]*writeBatch{s.current, s.next}
	s.current, s.next = nil, newWriteBatch()
	// Last, when the memory again says what the file says: a client that asks after the error must not see
	// the lost change.
	for _, b := range waiting {
		for key := range b.changes {
			refused.changes[key] = nil
		}
	}
	told, failed := refused.err, error(nil)
	for len(refused.changes) > 0 && failed == nil {
		keys := refused.changes
		refused.changes = make(map[gatehouse.Key]*nameChange)
		// Without the lock: Put takes that of the memory, under which OnServed takes this one.
		s.mu.Unlock()
		failed = s.restoreStates(keys)
		s.mu.Lock()
	}
	if failed == nil {
		s.refused = nil
	} else {
		told = failed
	}
	for _, b := range waiting {
		b.answerCallers(told)
	}
	return failed
}

// restoreStates sets the states of these names to those in the file.
func (s *Store) restoreStates(keys map[gatehouse.Key]*nameChange) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%v", p)
		}
		if err != nil {
			err = s.diskError(err)
		}
	}()
	return s.db.View(func(tx *bolt.Tx) error {
		for key := range keys {
			// A limiter is not rolled back: others have counted since, and were answered.
			if key.Kind.Limiter() {
				s.memory.MarkDirty(key)
				continue
			}
			state, err := storedState(tx, key)
			if err != nil {
				return err
			}
			s.memory.Put(key, state)
		}
		return nil
	})
}

// storedState returns the state that the file has under a name, nil if there is none.
func storedState(tx *bolt.Tx, key gatehouse.Key) (control.State, error) {
	bucket, name := key.Kind.String(), []byte(key.Name)
	sealed := tx.Bucket([]byte(bucket)).Get(name)
	if sealed == nil {
		return nil, nil
	}
	record, err := openRecord(bucket, name, sealed)
	if err != nil {
		return nil, err
	}
	state, err := control.Decode(key.Kind, record)
	s := trackedSemaphore(key, state)
	if err != nil || s == nil {
		return state, err
	}
	// Before the holds, as in readName, or all of them would be written again.
	s.Track()
	return s, eachHold(tx, key.Name, func(holder string, form []byte) error {
		return s.DecodeHold(holder, form)
	})
}
