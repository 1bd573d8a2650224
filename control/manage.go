package control

import (
	"hash/fnv"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is what operators do to a controller: they close and open it, and evict holds.

// A closing is a name that is closed. A nil one is open.
type closing struct{ gatehouse.Closing }

// newClosing is what a close or an evict says.
func newClosing(now time.Time, cmd *gatehouse.Command) gatehouse.Closing {
	c := gatehouse.Closing{Reason: cmd.Message, At: now}
	if cmd.Owner != nil {
		c.By = cmd.Owner.Name
	}
	return c
}

// sentence says that the name is closed, and why.
func (c *closing) sentence() string { return "is closed" + c.String() }

// appendTo adds the state of being closed to statistics.
func (c *closing) appendTo(stats []gatehouse.Stat) []gatehouse.Stat {
	if c == nil {
		return stats
	}
	return append(stats, gatehouse.Stat{Name: "closed", Value: c.sentence()})
}

// public is what a report shows.
func (c *closing) public() *gatehouse.Closing {
	if c == nil {
		return nil
	}
	return new(c.Closing)
}

// memoryWeight is what it takes in memory; 0 of a nil one.
func (c *closing) memoryWeight() int {
	if c == nil {
		return 0
	}
	return closingWeight + len(c.By) + len(c.Reason)
}

// codeClosing codes a closing, or that there is none.
func codeClosing(c *stateCodec, p **closing) {
	closed := *p != nil
	if !c.codeBool(&closed) {
		return
	}
	if c.reading {
		*p = new(closing)
	}
	codeClosingFields(c, &(*p).Closing)
}

func codeClosingFields(c *stateCodec, p *gatehouse.Closing) {
	c.codeText(&p.By)
	c.codeText(&p.Reason)
	c.codeTime(&p.At)
}

// Closed reports whether a state is closed, and so must not be forgotten.
func Closed(s State) bool {
	switch s := s.(type) {
	case *Semaphore:
		return s.closing() != nil
	case anyLimiter:
		step := s.stepAt(0, nil)
		return step.extra.closing() != nil
	}
	return false
}

// A managedSemaphore is what operators did to a semaphore or a lock.
type managedSemaphore struct {
	closed    *closing
	evictions []eviction // the last of them, the newest last
}

// maxEvictions is how many evictions are remembered under one name, so that evicted holders learn why.
const maxEvictions = 16

// An eviction is a hold that was evicted. Its holder is remembered by a hash, as a key may be long.
type eviction struct {
	fence  uint64
	holder uint64
	gatehouse.Closing
}

// leastEviction is the least that an eviction takes in a form.
const leastEviction = 19

// sentence tells the former holder, and sentenceRenewing a holder whose hold lasts until its term is over.
func (e *eviction) sentence() string {
	return "is not held with this key any more: it was evicted" + e.String()
}

func (e *eviction) sentenceRenewing() string {
	return "does not renew this hold: it was evicted" + e.String()
}

// hashHolder is the hash of a holder.
func hashHolder(holder string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(holder))
	return h.Sum64()
}

// closing is that of the semaphore; nil when it is open.
func (s *Semaphore) closing() *closing {
	if s.managed == nil {
		return nil
	}
	return s.managed.closed
}

// setClosed closes or opens the semaphore. Holds stay as they are, and so do size and line.
func (s *Semaphore) setClosed(now time.Time, turn *Turn) {
	if s.lock {
		s.size = 1 // as an acquire would have it
	}
	switch {
	case turn.Op == gatehouse.OpClose:
		s.ensureManaged().closed = &closing{newClosing(now, turn.Command)}
	// To open what is open does no harm: the request may be a repeated one.
	case s.closing() != nil:
		s.managed.closed = nil
		if len(s.managed.evictions) == 0 {
			s.managed = nil
		}
	}
	s.fillStanding(turn, gatehouse.Granted)
}

func (s *Semaphore) ensureManaged() *managedSemaphore {
	if s.managed == nil {
		s.managed = new(managedSemaphore)
	}
	return s.managed
}

// evictHold has a hold end with its term: it can be neither renewed nor extended any more. It ends at once if
// the command says so, or if it has no term.
func (s *Semaphore) evictHold(now time.Time, turn *Turn) {
	h := s.holdOf(turn.Fence)
	if h == nil {
		turn.failWith(gatehouse.Conflict, "has no hold with this id: it was released, or has ended")
		return
	}
	// The holder learns from this, with its next renewal or release, who has ended its hold and why.
	s.rememberEviction(eviction{
		fence: h.fence, holder: hashHolder(h.holder), Closing: newClosing(now, turn.Command),
	})
	if !turn.Now && h.expires != 0 {
		h.evicted = true
		s.noteChanged(h.holder)
		s.fillHold(now, turn, h)
		return
	}
	s.lengths.note(h, now.UnixNano())
	s.dropHold(h)
	s.released++
	s.fillStanding(turn, gatehouse.Granted)
}

// rememberEviction remembers who evicted a hold and why. If as many are remembered as may be, the oldest
// whose hold is gone is forgotten for it, or the oldest of all: its holder is told less.
func (s *Semaphore) rememberEviction(e eviction) {
	m := s.ensureManaged()
	// A second eviction of the same hold takes the place of the first, so that the last reason is told.
	m.evictions = slices.DeleteFunc(m.evictions, func(old eviction) bool { return old.fence == e.fence })
	if len(m.evictions) == maxEvictions {
		gone := func(old eviction) bool { return s.holdOf(old.fence) == nil }
		i := max(0, slices.IndexFunc(m.evictions, gone))
		m.evictions = slices.Delete(m.evictions, i, i+1)
	}
	m.evictions = append(m.evictions, e)
}

// holdOf finds a hold by its fencing token.
func (s *Semaphore) holdOf(fence uint64) *hold {
	for _, h := range s.holds.heap {
		if h.fence == fence {
			return h
		}
	}
	return nil
}

// evictionOf is that of a hold; nil when it was not evicted. It says neither who nor why when that is
// forgotten.
func (s *Semaphore) evictionOf(h *hold) *eviction {
	if !h.evicted {
		return nil
	}
	if s.managed != nil {
		for i := range s.managed.evictions {
			if s.managed.evictions[i].fence == h.fence {
				return &s.managed.evictions[i]
			}
		}
	}
	return new(eviction)
}

// evictedHolder is the eviction that a release or a renew has come too late for: of the hold with its fencing
// token, or of the last one with its key.
func (m *managedSemaphore) evictedHolder(cmd *gatehouse.Command) *eviction {
	holder := hashHolder(cmd.Holder)
	for i := len(m.evictions) - 1; i >= 0; i-- {
		e := &m.evictions[i]
		if e.holder == holder && (cmd.Fence == 0 || cmd.Fence == e.fence) {
			return e
		}
	}
	return nil
}

// memoryWeight is what it takes in memory; 0 of a nil one.
func (m *managedSemaphore) memoryWeight() int {
	if m == nil {
		return 0
	}
	weight := managedWeight + m.closed.memoryWeight() + cap(m.evictions)*evictionWeight
	for i := range m.evictions {
		weight += len(m.evictions[i].By) + len(m.evictions[i].Reason)
	}
	return weight
}

// growth is the most by which a close or an evict may make it grow. m may be nil.
func (m *managedSemaphore) growth(cmd *gatehouse.Command) int {
	more, known := closingGrowth(cmd), 0
	if m == nil {
		more += managedWeight
	} else {
		known = len(m.evictions)
		if known < cap(m.evictions) || known == maxEvictions {
			return more
		}
	}
	// An array that is full is replaced by one twice as large, and what the allocator rounds that up by.
	return more + (max(1, known)+2)*evictionWeight
}

// closingGrowth is the most that a closing takes.
func closingGrowth(cmd *gatehouse.Command) int {
	more := closingWeight + len(cmd.Message)
	if cmd.Owner != nil {
		more += len(cmd.Owner.Name)
	}
	return more
}

// What they take as Go's allocator hands memory out.
const (
	closingWeight  = 64
	managedWeight  = 32
	evictionWeight = 80
)

// earliestHead is the earliest format in which all but the holds can be written.
func (s *Semaphore) earliestHead() byte {
	if s.lengths.count > 0 || s.managed != nil {
		return 4
	}
	return 2
}

// codeManaged codes what the fourth format of a semaphore has besides.
func (s *Semaphore) codeManaged(c *stateCodec) {
	s.lengths.codeFields(c)
	managed := s.managed != nil
	if !c.codeBool(&managed) {
		return
	}
	m := s.ensureManaged()
	codeClosing(c, &m.closed)
	codeSlice(c, &m.evictions, leastEviction)
	// One that says nothing is never written.
	if n := len(m.evictions); n > maxEvictions || n == 0 && m.closed == nil {
		c.failDecoding("%d evictions, want at most %d, and of an open one some", n, maxEvictions)
		return
	}
	for i := range m.evictions {
		e := &m.evictions[i]
		c.codeUint64(&e.fence)
		c.codeUint64(&e.holder)
		codeClosingFields(c, &e.Closing)
	}
}

// closing is that of a limiter; nil when it is open. m may be nil.
func (m *limiterExtra) closing() *closing {
	if m == nil {
		return nil
	}
	return m.closed
}

// setClosed closes or opens the limiter. What was taken stays, and limits change as ever.
func (l *limiterStep) setClosed() {
	if l.turn.Op == gatehouse.OpOpen {
		if l.created == 0 {
			l.d.Outcome = gatehouse.Granted // it was never used, and has no limits to tell of
			return
		}
		// An open means that the name may be used: it also ends a pause that a third party asked for.
		l.endPause()
		if l.extra.closing() != nil {
			l.extra.closed = nil
			l.dropUnusedExtra(l.now)
		}
		l.fillGranted()
		return
	}
	// A name may be closed before it is used first. It has the default limit then, as any that gives none.
	if l.created == 0 {
		turn := l.turn
		l.turn = &Turn{Command: &gatehouse.Command{Cost: 1, Rule: gatehouse.Rule{Size: gatehouse.InForce}}}
		l.applyLimits()
		l.turn = turn
	}
	l.ensureExtra()
	l.extra.closed = &closing{newClosing(l.d.At, l.turn.Command)}
	l.fillGranted()
}
