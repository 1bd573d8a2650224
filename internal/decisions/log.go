// Package decisions observes what a gate decides: it keeps the last refusals, to explain each by its id,
// finds the names that are asked most, and counts decisions by rule and by user.
package decisions

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
)

// DefaultKept is how many refusals are kept where no setting says otherwise. They take 2 MiB and their names,
// and about 30 MiB if all names, owners and limits are as long as they may be.
const DefaultKept = 10_000

// MaxKept is the most refusals that can be kept.
const MaxKept = 1_000_000

// An Explained is a request that was refused, as it was decided.
type Explained struct {
	// Number is that of the decision.
	Number uint64
	// Key is the name that was asked, or the grant. A grant without an id, as a name with its parents is, has
	// the first of its names.
	Key gatehouse.Key
	// Command is what was asked. It has no Holder, by which others could act on a hold, and no Message.
	Command gatehouse.Command
	// Decision is what the name answered that refused.
	Decision gatehouse.Decision
	// Waited is how long the request had waited, and Waiting how many others did at the name that refused.
	Waited  time.Duration
	Waiting int
	// Members are the names of a grant, or a name and its parents; empty for a single name. Binding is the
	// index of the one that refused for longest, -1 if none did.
	Members []ExplainedName
	Binding int
}

// An ExplainedName is one of several names in a refusal.
type ExplainedName struct {
	Key              gatehouse.Key
	Cost             int64
	Outcome          gatehouse.Outcome
	Limit, Remaining int64
	RetryAfter       time.Duration
}

// Name returns the name that refused.
func (e *Explained) Name() gatehouse.Key {
	if e.Binding >= 0 && e.Binding < len(e.Members) {
		return e.Members[e.Binding].Key
	}
	return e.Key
}

// Keys are all names in the refusal.
func (e *Explained) Keys() []*gatehouse.Key {
	all := []*gatehouse.Key{&e.Key}
	for i := range e.Members {
		all = append(all, &e.Members[i].Key)
	}
	return all
}

// A Log keeps the last refusals, in memory that is there from the beginning. A nil Log keeps none.
type Log struct {
	kept  uint64
	slots []slot // as many as kept, or more: a power of two, of blocks
	mask  uint64
	locks []sync.Mutex  // one for each block
	last  atomic.Uint64 // the number that was given last
	first uint64        // no number is below
}

// blockSize is how many slots one lock is for: as many refusals as mostly come together, so that they take
// one lock, or two. A lock is held for as long as it takes to write or to copy them.
const blockSize = gate.MaxTogether

// A slot has one refusal: the last of those whose numbers have the same last bits. It is written at every
// refusal, mostly where no cache has it: so it fills two cache lines, and what few refusals have is apart.
type slot struct {
	number uint64

	kind    gatehouse.Kind
	op      gatehouse.Op
	waiting int32
	name    string
	owner   *gatehouse.Owner
	origin  *gatehouse.Origin

	size, burst, cost, limit, remaining int64

	interval, retryAfter, resetAfter time.Duration

	at   int64 // ns since 1970
	rest *Explained
}

// NewLog returns a log of a number of refusals; nil for 0.
func NewLog(kept int) *Log {
	if kept == 0 {
		return nil
	}
	size := blockSize
	// A power of two, so that a mask finds the slot of a number.
	for size < kept {
		size *= 2
	}
	l := &Log{
		kept: uint64(kept), slots: make([]slot, size), mask: uint64(size - 1),
		locks: make([]sync.Mutex, size/blockSize),
	}
	// The numbers begin somewhere, so that an id of another server, or of this one before it was started
	// anew, is not taken for one of this log. They never come again: there are 2^63 above the first.
	l.first = rand.Uint64()>>1 + 1
	l.last.Store(l.first - 1)
	return l
}

// A writer writes new refusals, whose numbers follow each other.
type writer struct {
	log    *Log
	number uint64      // the next one's
	block  []slot      // the rest of the block, which is locked; empty at its end
	lock   *sync.Mutex // of the block; nil before the first
}

// begin begins to write a number of refusals: each is written after next, and the last before end.
func (l *Log) begin(refused int) writer {
	n := uint64(refused)
	// One addition takes all their numbers, so that they are in a row however many others write.
	return writer{log: l, number: l.last.Add(n) - n + 1}
}

// next returns the slot of the next refusal, whose number it has. All else in the slot is of an older
// refusal. It returns no slot if others have gone around the whole log meanwhile: then a later one is there.
func (w *writer) next() *slot {
	if len(w.block) == 0 {
		w.enterBlock()
	}
	s := &w.block[0]
	w.block = w.block[1:]
	w.number++
	if s.number >= w.number {
		return nil
	}
	s.number = w.number - 1
	return s
}

// enterBlock locks the block of the next number, and no other any more.
func (w *writer) enterBlock() {
	// Never two at a time, so that writers cannot wait for each other in a circle.
	if w.lock != nil {
		w.lock.Unlock()
	}
	i := w.number & w.log.mask
	end := (i/blockSize + 1) * blockSize
	w.lock, w.block = &w.log.locks[i/blockSize], w.log.slots[i:end]
	w.lock.Lock()
}

// end ends the writing.
func (w *writer) end() { w.lock.Unlock() }

// hasRest reports whether a refusal has what is kept apart.
func hasRest(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	return d.Message != "" || len(d.Windows) > 0 || d.Delay != 0 || d.Reported != nil || cmd.MaxDelay != 0 ||
		cmd.Expires != 0 || cmd.Guard != 0 || cmd.Mode != 0 || cmd.Calendar != gatehouse.NoCalendar ||
		cmd.Limits.Len() > 0
}

// setRequest sets a refusal of one name.
func (s *slot) setRequest(key *gatehouse.Key, cmd *gatehouse.Command, d *gatehouse.Decision) {
	s.kind, s.op, s.name, s.owner, s.origin = key.Kind, cmd.Op, key.Name, cmd.Owner, cmd.Origin
	s.size, s.burst, s.cost, s.limit, s.remaining = cmd.Size, cmd.Burst, cmd.Cost, d.Limit, d.Remaining
	s.interval, s.retryAfter, s.resetAfter = cmd.Interval, d.RetryAfter, d.ResetAfter
	s.at = d.At.UnixNano()
	// The slot still has that of an older refusal.
	s.rest = nil
	if hasRest(cmd, d) {
		s.rest = &Explained{Command: *cmd, Decision: *d, Binding: -1}
		// The caller may go on changing its own.
		s.rest.Decision.Windows = slices.Clone(d.Windows)
	}
}

// setWaits sets how long a refusal might wait, and has waited.
func (s *slot) setWaits(most, waited time.Duration) {
	// Most requests do not wait, and need nothing allocated for that.
	if most == 0 && waited == 0 {
		return
	}
	if s.rest == nil {
		s.rest = &Explained{Binding: -1}
	}
	s.rest.Command.MaxWait, s.rest.Waited = most, waited
}

// Find returns the refusal with a number, if it is kept. The caller may change its names, and nothing else
// that it points to.
func (l *Log) Find(number uint64) (e Explained, ok bool) {
	if l == nil {
		return e, false
	}
	i := number & l.mask
	l.locks[i/blockSize].Lock()
	defer l.locks[i/blockSize].Unlock()
	s := &l.slots[i]
	// There may be more slots than are to be kept. A slot that was never written has the number 0, which no
	// refusal has.
	if s.number != number || number == 0 || number+l.kept <= l.last.Load() {
		return e, false
	}
	e.Binding = -1
	if s.rest != nil {
		e = *s.rest
		// A caller may show the names as a user calls them (Keys).
		e.Members = slices.Clone(e.Members)
	}
	e.Number, e.Key = number, gatehouse.Key{Kind: s.kind, Name: s.name}
	e.Waiting = int(s.waiting)
	cmd, d := &e.Command, &e.Decision
	cmd.Op, cmd.Owner, cmd.Origin = s.op, s.owner, s.origin
	cmd.Size, cmd.Burst, cmd.Cost, cmd.Interval = s.size, s.burst, s.cost, s.interval
	// A key would let a reader of the explanation act on a hold.
	cmd.Holder, cmd.Message, cmd.Feedback = "", "", nil
	d.Outcome, d.At, d.Number = gatehouse.Refused, time.Unix(0, s.at), number
	d.Limit, d.Remaining, d.RetryAfter, d.ResetAfter = s.limit, s.remaining, s.retryAfter, s.resetAfter
	return e, true
}

// Kept returns how many refusals are kept at most.
func (l *Log) Kept() int {
	if l == nil {
		return 0
	}
	return int(l.kept)
}

// HadNumber reports whether a refusal had the number, be it kept or not.
func (l *Log) HadNumber(number uint64) bool {
	// Numbers below the first are of another server, or of this one before a restart.
	return l != nil && number >= l.first && number <= l.last.Load()
}
