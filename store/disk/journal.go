package disk

import (
	"errors"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A writeBatch has the changes of one transaction: those that came while the batch before was written.
//
//	next ──writeNext──▶ current ──▶ on disk: its callers are answered without an error
//	  │                    │
//	  └────────────────────┴──────▶ no room, or the disk failed: rolled back or refused, with an error
type writeBatch struct {
	changes map[gatehouse.Key]*nameChange
	waiting []func(error) // Done of the changes that wait for this batch
	err     error         // of a batch that refuses all changes
}

func newWriteBatch() *writeBatch { return &writeBatch{changes: make(map[gatehouse.Key]*nameChange)} }

// answerCallers tells those who wait for the batch how it ended. It is called once, when nothing more can be
// added.
func (b *writeBatch) answerCallers(err error) {
	if len(b.waiting) == 0 {
		return
	}
	// In a goroutine of its own: there may be thousands, and what they do must not delay the next
	// transaction. It ends with the last of them.
	go func() {
		for _, done := range b.waiting {
			done(err)
		}
	}()
}

// A nameChange is the change of one name since the last transaction.
type nameChange struct {
	fresh bool              // nothing of what is there stays
	state []byte            // nil when there is none any more
	holds map[string][]byte // of those that changed, by holder; nil for one that is gone
	with  [][]gatehouse.Key // what is written by the same transaction
}

// recordState records a new state of the name. Of a semaphore only the changed holds are recorded.
func (c *nameChange) recordState(key gatehouse.Key, state control.State, fresh bool) {
	// The name was deleted or forgotten in between. Older holds of the batch belong to its former life.
	if fresh {
		c.fresh, c.holds = true, nil
	}
	if state == nil {
		c.fresh, c.state, c.holds = true, nil, nil
		return
	}
	s := trackedSemaphore(key, state)
	if s == nil {
		c.state = control.Encode(nil, state)
		return
	}
	// Holds of a semaphore are records of their own: with thousands of them a change of one must not write
	// all.
	c.state = s.EncodeHead(nil)
	s.Track() // a new one has not begun to
	s.EachChanged(func(holder string, form []byte) {
		if c.holds == nil {
			c.holds = make(map[string][]byte)
		}
		// The spare capacity is for the checksum that sealRecord appends. nil stays nil, because it means a
		// hold that is gone.
		if form != nil {
			form = append(make([]byte, 0, len(form)+sumSize), form...)
		}
		c.holds[holder] = form
	})
}

// addState adds a new state to the batch. Later changes of a name replace earlier ones.
func (b *writeBatch) addState(key gatehouse.Key, state control.State, fresh bool) {
	c := b.changes[key]
	if c == nil {
		c = new(nameChange)
		b.changes[key] = c
	}
	c.recordState(key, state, fresh)
}

// needsCommit reports whether a decision must outlast the process. Other changes are statistics, waiting
// tickets, and holds that end by themselves.
func needsCommit(kind gatehouse.Kind, queue []control.Turn) bool {
	for i := range queue {
		if turnNeedsCommit(kind, &queue[i]) {
			return true
		}
	}
	return false
}

func turnNeedsCommit(kind gatehouse.Kind, turn *control.Turn) bool {
	switch turn.Op {
	case gatehouse.OpUndo:
		// An undo without a grant only removes a waiting ticket, and tickets do not outlast the process
		// anyway.
		return turn.Granted != nil
	case gatehouse.OpStats, gatehouse.OpValue, gatehouse.OpHolders, gatehouse.OpWaiters:
		return false
	case gatehouse.OpWait:
		// The last ticket opens a barrier for good. Waiting for an event changes nothing.
		return kind == gatehouse.Barrier && turn.Decision.Outcome == gatehouse.Granted
	default:
		return turn.Decision.Outcome == gatehouse.Granted
	}
}

// A memoryJournal receives the changes of the memory store.
type memoryJournal struct{ *Store }

// OnServed implements [memory.Journal]. A decision that changes nothing waits too if it rests on a change
// that is not on disk yet: no client learns what a crash could take back.
func (j memoryJournal) OnServed(c *control.Change, state control.State, fresh bool) (pending bool) {
	key := c.Key
	if key.Kind.Limiter() {
		return false
	}
	lasting := needsCommit(key.Kind, c.Turns)
	s := j.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	// The order of the cases counts: a change goes into next even if current has an older one of the same
	// name, and a decision rests on the youngest change.
	var batch *writeBatch
	switch {
	case s.refused != nil:
		// What the state has become is taken back. Done must not be called under the locks that are held
		// here.
		s.refused.changes[key] = nil
		go c.Done(s.refused.err)
		return true
	case lasting || fresh && (state == nil || key.Kind == gatehouse.Semaphore):
		s.next.addState(key, state, fresh)
		s.wakeWriter()
		batch = s.next
	case s.next.changes[key] != nil:
		batch = s.next
	case s.current != nil && s.current.changes[key] != nil:
		batch = s.current
	default:
		return false
	}
	batch.waiting = append(batch.waiting, c.Done)
	return true
}

// OnDirty implements [memory.Journal].
func (j memoryJournal) OnDirty() {
	if j.flushArmed.CompareAndSwap(false, true) {
		j.flushTimer.Reset(j.config.Flush)
	}
}

// flushBatch is how many dirty names are written together. A command that waits for the disk meanwhile waits
// for one such transaction.
const flushBatch = 1024

// flushDirty writes the dirty names: limiters, names that were forgotten, and statistics. last is set by the
// flush before the store closes.
func (s *Store) flushDirty(last bool) error {
	began := s.now()
	defer func() { s.counters.flush.Store(int64(s.now().Sub(began))) }()
	// Names that become dirty from here on arm the timer again, also those of parts not yet visited.
	s.flushArmed.Store(false)
	limiters := make(map[gatehouse.Key]*nameChange)
	others := 0
	for part := range memory.Parts {
		s.memory.VisitDirty(part, func(key gatehouse.Key, state control.State) (keep bool) {
			if state != nil && control.OnlyRefused(state) && !state.Expiry().After(s.now()) {
				state = nil // it is not worth a write, and would not be loaded
			}
			// Other kinds join the next batch, and limiters that grants have put there: that may have an
			// older change of the same name, and written apart from it, the two could reach the file in the
			// wrong order.
			if s.joinsNext(key, state) {
				others++
				return false
			}
			// A limiter that will be worth nothing stays dirty, and the timer looks at it again. At the end
			// of the store there is no later time.
			if !last && s.expiresSoon(state) {
				memoryJournal{s}.OnDirty()
				return true
			}
			c := new(nameChange)
			c.recordState(key, state, false)
			limiters[key] = c
			return false
		})
		// Parts are joined up to a batch, because every transaction waits for the disk. The last part writes
		// what is left.
		if len(limiters)+others < flushBatch && part < memory.Parts-1 {
			continue
		}
		if err := s.flushLimiters(limiters); err != nil {
			return err
		}
		clear(limiters)
		others = 0
		// Between two parts, so that a waiting command is not delayed until all parts are written.
		if err := s.writeNext(); err != nil {
			return err
		}
	}
	return nil
}

// joinsNext adds what is dirty to the next batch, unless it is a limiter of which that has nothing.
func (s *Store) joinsNext(key gatehouse.Key, state control.State) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if key.Kind.Limiter() && s.next.changes[key] == nil {
		return false
	}
	s.next.addState(key, state, false)
	return true
}

// expiresSoon reports whether a limiter will be worth nothing before it would be written again. Then it is
// not written now either.
func (s *Store) expiresSoon(state control.State) bool {
	if state == nil {
		return false
	}
	left := state.Expiry().Sub(s.now())
	return left > 0 && left < s.config.Flush
}

// flushLimiters writes what limiters counted. While the disk is full only what frees room is written.
func (s *Store) flushLimiters(changes map[gatehouse.Key]*nameChange) error {
	// A nil state removes a record and so frees room. The others remain dirty for a later flush.
	if t := s.trouble.Load(); t != nil {
		for key, c := range changes {
			if c.state != nil {
				s.memory.MarkDirty(key)
				delete(changes, key)
			}
		}
	}
	err := s.writeChanges(changes)
	if !errors.Is(err, errFull) {
		return err
	}
	// Limiters are not rolled back on a full disk: their callers never waited for the file.
	for key := range changes {
		s.memory.MarkDirty(key)
	}
	return nil
}
