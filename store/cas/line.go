package cas

import (
	"cmp"
	"math"
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A line is what this server knows of those of its own who wait at one name, for as long as somebody watches
// that name. The first of them is the server's head in the record. A gate offers a few of its line at a time:
// without this the head would vanish whenever those few have gone, and others would overtake the rest.
type line struct {
	watches map[*nameWatch]struct{}
	waiting []waiter // in the order in which they came, except those taken out
	takenBy int      // transactions that have taken some of them out
}

// A waiter is one ticket that waits.
type waiter struct {
	since  int64
	ticket control.Ticket
}

func (w waiter) compare(other waiter) int {
	return cmp.Or(cmp.Compare(w.since, other.since), cmp.Compare(w.ticket, other.ticket))
}

// A lineRest is those of a line who no transaction has taken out.
type lineRest struct {
	known    bool   // it is; otherwise what the transaction has is all that is known of the line
	nonEmpty bool   // there are
	first    waiter // of them
}

// firstSince is when the first of the rest came, the end of time if there is none.
func (r *lineRest) firstSince() int64 {
	if r.nonEmpty {
		return r.first.since
	}
	return math.MaxInt64
}

// A takenLine is a line some of which a transaction has taken out.
type takenLine struct {
	line *line // nil when nobody watches the name
	rest lineRest
}

// takeOut takes those that a transaction is about out of the line, and tells of the rest.
func (w *watches) takeOut(key gatehouse.Key, turns []control.Turn) takenLine {
	// The count is read without the lock, because this is on the way of every call and most names have no
	// line.
	if w.count.Load() == 0 {
		return takenLine{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.names[key]
	if l == nil {
		return takenLine{}
	}
	front := int64(math.MinInt64) // since when the last waits before whom the gate knows of all
	for i := range turns {
		turn := &turns[i]
		if turn.Ticket == 0 || turn.Since.IsZero() {
			continue
		}
		if at, found := l.findWaiter(turn); found {
			l.waiting = slices.Delete(l.waiting, at, at+1)
		}
		if turn.Op.Waits() && turn.Ahead == 0 {
			front = max(front, turn.Since.UnixNano())
		}
	}
	l.forgetBefore(front)
	l.takenBy++
	// With another transaction under way some of the line are in neither, so the rest is not all there is.
	r := lineRest{known: l.takenBy == 1, nonEmpty: len(l.waiting) > 0}
	if r.nonEmpty {
		r.first = l.waiting[0]
	}
	return takenLine{l, r}
}

// forgetBefore forgets those who came before somebody whom nobody of their line stands in front of. They
// have left without it being heard here: what is between the gate and this store has answered them while it
// was away.
func (l *line) forgetBefore(front int64) {
	n := 0
	for n < len(l.waiting) && l.waiting[n].since < front {
		n++
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
}

func (l *line) findWaiter(turn *control.Turn) (at int, found bool) {
	w := waiter{since: turn.Since.UnixNano(), ticket: turn.Ticket}
	return slices.BinarySearchFunc(l.waiting, w, waiter.compare)
}

// putBack puts those who go on waiting by these decisions into their line again. There are none after an
// error: then the gate asks again for those that still wait.
func (w *watches) putBack(taken takenLine, turns []control.Turn, decisions []gatehouse.Decision) {
	l := taken.line
	if l == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l.takenBy--
	for i := range decisions {
		turn, d := &turns[i], &decisions[i]
		if turn.Ticket == 0 || !control.KeepsWaiting(turn.Command, d) {
			continue
		}
		one := waiter{since: sinceOf(turn, d.At.UnixNano()), ticket: turn.Ticket}
		if at, found := slices.BinarySearchFunc(l.waiting, one, waiter.compare); !found {
			l.waiting = slices.Insert(l.waiting, at, one)
		}
	}
}

// sinceOf is when a command came, now if it has just come.
func sinceOf(turn *control.Turn, now int64) int64 {
	if turn.Since.IsZero() {
		return now
	}
	return turn.Since.UnixNano()
}
