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
	slots []slot
	last  atomic.Uint64 // the number that was given last
	first uint64        // no number is below
}

// A slot has one refusal: the last of those whose numbers leave the same remainder. It is written at every
// refusal, mostly where no cache has it: so it is small, and what few refusals have is apart. Its lock is
// held for as long as it takes to copy it.
type slot struct {
	mu     sync.Mutex
	number uint64

	kind    gatehouse.Kind
	op      gatehouse.Op
	waiting int32
	name    string
	owner   *gatehouse.Owner
	origin  *gatehouse.Origin

	size, burst, cost, limit, remaining int64

	interval, maxWait, retryAfter, resetAfter, waited time.Duration

	at   int64 // ns since 1970
	rest *Explained
}

// NewLog returns a log of a number of refusals; nil for 0.
func NewLog(kept int) *Log {
	if kept == 0 {
		return nil
	}
	l := &Log{slots: make([]slot, kept)}
	// The numbers begin somewhere, so that an id of another server, or of this one before it was started
	// anew, is not taken for one of this log. They never come again: there are 2^63 above the first.
	l.first = rand.Uint64()>>1 + 1
	l.last.Store(l.first - 1)
	return l
}

// begin returns the number of a new refusal and its slot, locked. All in the slot is of an older refusal. It
// returns no slot if others have gone around the whole log meanwhile: then a later one is there.
func (l *Log) begin() (number uint64, s *slot) {
	number = l.last.Add(1)
	s = &l.slots[number%uint64(len(l.slots))]
	s.mu.Lock()
	if s.number > number {
		s.mu.Unlock()
		return number, nil
	}
	s.number = number
	return number, s
}

// hasRest reports whether a refusal has what is kept apart.
func hasRest(cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	return d.Message != "" || len(d.Windows) > 0 || d.Delay != 0 || d.Reported != nil || cmd.MaxDelay != 0 ||
		cmd.Expires != 0 || cmd.Guard != 0 || cmd.Mode != 0 || cmd.Calendar != gatehouse.NoCalendar ||
		cmd.Limits.Len() > 0
}

// setRequest sets a refusal of one name.
func (s *slot) setRequest(key gatehouse.Key, cmd *gatehouse.Command, d *gatehouse.Decision) {
	s.kind, s.op, s.name, s.owner, s.origin = key.Kind, cmd.Op, key.Name, cmd.Owner, cmd.Origin
	s.size, s.burst, s.cost, s.limit, s.remaining = cmd.Size, cmd.Burst, cmd.Cost, d.Limit, d.Remaining
	s.interval, s.maxWait = cmd.Interval, cmd.MaxWait
	s.retryAfter, s.resetAfter = d.RetryAfter, d.ResetAfter
	s.at = d.At.UnixNano()
	s.rest = nil
	if hasRest(cmd, d) {
		s.rest = &Explained{Command: *cmd, Decision: *d, Binding: -1}
		s.rest.Decision.Windows = slices.Clone(d.Windows)
	}
}

// Find returns the refusal with a number, if it is kept. The caller may change its names, and nothing else
// that it points to.
func (l *Log) Find(number uint64) (e Explained, ok bool) {
	if l == nil {
		return e, false
	}
	s := &l.slots[number%uint64(len(l.slots))]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.number != number || number == 0 {
		return e, false
	}
	e.Binding = -1
	if s.rest != nil {
		e = *s.rest
		// A caller may show the names as a user calls them (Keys).
		e.Members = slices.Clone(e.Members)
	}
	e.Number, e.Key = number, gatehouse.Key{Kind: s.kind, Name: s.name}
	e.Waited, e.Waiting = s.waited, int(s.waiting)
	cmd, d := &e.Command, &e.Decision
	cmd.Op, cmd.Owner, cmd.Origin, cmd.MaxWait = s.op, s.owner, s.origin, s.maxWait
	cmd.Size, cmd.Burst, cmd.Cost, cmd.Interval = s.size, s.burst, s.cost, s.interval
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
	return len(l.slots)
}

// HadNumber reports whether a refusal had the number, be it kept or not.
func (l *Log) HadNumber(number uint64) bool {
	return l != nil && number >= l.first && number <= l.last.Load()
}
