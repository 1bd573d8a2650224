package disk

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A batch is what goes to disk together: what came while the batch before it was written.
type batch struct {
	changes map[gatehouse.Key]*change
	done    chan struct{}
	err     error // once done is closed
}

func newBatch() *batch {
	return &batch{changes: make(map[gatehouse.Key]*change), done: make(chan struct{})}
}

// Wait returns when the batch is on disk, or cannot be.
func (b *batch) Wait() error {
	<-b.done
	return b.err
}

// A change is what becomes of one name.
type change struct {
	fresh bool              // nothing of what is there stays
	state []byte            // nil when there is none any more
	holds map[string][]byte // of those that changed, by holder; nil for one that is gone
}

// note notes what a state has become. Of a semaphore only what has changed is noted.
func (c *change) note(key gatehouse.Key, state control.State, fresh bool) {
	if fresh {
		c.fresh, c.holds = true, nil
	}
	if state == nil {
		c.fresh, c.state, c.holds = true, nil, nil
		return
	}
	s := tracked(key, state)
	if s == nil {
		c.state = control.Encode(nil, state)
		return
	}
	c.state = s.EncodeHead(nil)
	s.Track() // a new one has not begun to
	s.EachChanged(func(holder string, form []byte) {
		if c.holds == nil {
			c.holds = make(map[string][]byte)
		}
		if form != nil {
			form = append(make([]byte, 0, len(form)+sumSize), form...)
		}
		c.holds[holder] = form
	})
}

// add puts what a state has become into the batch.
func (b *batch) add(key gatehouse.Key, state control.State, fresh bool) {
	c := b.changes[key]
	if c == nil {
		c = new(change)
		b.changes[key] = c
	}
	c.note(key, state, fresh)
}

// durable reports whether what was decided must outlast the process. The rest is statistics, lines, and
// what follows from the time.
func durable(kind gatehouse.Kind, queue []control.Turn) bool {
	for i := range queue {
		if lasts(kind, &queue[i]) {
			return true
		}
	}
	return false
}

func lasts(kind gatehouse.Kind, turn *control.Turn) bool {
	switch turn.Command.Op {
	case gatehouse.OpUndo:
		return turn.Command.Granted != nil
	case gatehouse.OpStats, gatehouse.OpValue:
		return false
	case gatehouse.OpWait:
		return kind == gatehouse.Barrier && turn.Decision.Outcome == gatehouse.Granted
	default:
		return turn.Decision.Outcome == gatehouse.Granted
	}
}

// journal is how the memory tells of changes.
type journal struct{ *Store }

// OnServed implements [memory.Journal]. A decision that changes nothing waits too when it rests on a change
// that is not on disk yet: nobody is told what a crash could take back.
func (j journal) OnServed(
	key gatehouse.Key, state control.State, fresh bool, queue []control.Turn,
) memory.Pending {
	if key.Kind.Limiter() {
		return nil
	}
	lasting := durable(key.Kind, queue)
	s := j.Store
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.refused != nil:
		// What the state has become is taken back.
		s.refused.changes[key] = nil
		return s.refused
	case lasting || fresh && (state == nil || key.Kind == gatehouse.Semaphore):
		s.next.add(key, state, fresh)
		s.signal()
		return s.next
	case s.next.changes[key] != nil:
		return s.next
	case s.current != nil && s.current.changes[key] != nil:
		return s.current
	}
	return nil
}

// OnDirty implements [memory.Journal].
func (j journal) OnDirty() {
	if j.flushing.CompareAndSwap(false, true) {
		j.flushTimer.Reset(j.config.Flush)
	}
}
