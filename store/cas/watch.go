package cas

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

const (
	// recheckInterval is how often a name with waiting requests is looked at although nothing was heard of
	// it: a message may have been lost, and the store must learn that the server still waits.
	recheckInterval = time.Second

	// headLifetime is how long the store believes that a server waits that does not look any more. For so
	// long those behind it are kept waiting when it dies.
	headLifetime = 3 * time.Second
)

// watches are the names with waiting requests.
type watches struct {
	mu     sync.Mutex
	closed bool
	names  map[gatehouse.Key]*line
	count  atomic.Int64 // of names
}

// A nameWatch is a subscriber to the changes of a name.
type nameWatch struct {
	wake  func()
	timer *time.Timer
}

// Watch implements gate.Store.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) {
	all, w := &s.watches, &nameWatch{wake: wake}
	all.mu.Lock()
	defer all.mu.Unlock()

	l := all.names[key]
	if l == nil {
		l = &line{watches: make(map[*nameWatch]struct{}, 1)}
		all.names[key] = l
		all.count.Add(1)
	}
	l.watches[w] = struct{}{}
	if !all.closed {
		w.timer = time.AfterFunc(jittered(recheckInterval), func() { all.recheckName(key, w) })
	}
	// stop may be called twice, and beside a wake; both are settled under the lock.
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if _, on := l.watches[w]; !on {
			return
		}
		if w.timer != nil {
			w.timer.Stop()
		}
		delete(l.watches, w)
		if len(l.watches) == 0 {
			delete(all.names, key)
			all.count.Add(-1)
		}
	}
}

// jittered is a time between three quarters of d and d, so that servers do not look all at once.
func jittered(d time.Duration) time.Duration {
	// One more, because what is left of a claim may be a nanosecond, and there is no number below 0.
	return d - rand.N(d/4+1)
}

// recheckName wakes one watch and sets its timer again.
func (w *watches) recheckName(key gatehouse.Key, one *nameWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.names[key]; l != nil && !w.closed {
		if _, on := l.watches[one]; on {
			one.timer.Reset(jittered(recheckInterval))
			one.wake()
		}
	}
}

// onWake is called by the backend: a name was changed elsewhere, or, with the zero key, any may have been.
func (s *Store) onWake(key gatehouse.Key) {
	s.cache.markStale(key)
	s.watches.wakeWatchers(key)
}

// wakeWatchers wakes the watchers of a name, or all watchers. It does so under the lock, so that a stopped
// watch is not woken; a wake never blocks.
func (w *watches) wakeWatchers(key gatehouse.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	// A wake for all follows a lost connection: any message may have been missed.
	if key != (gatehouse.Key{}) {
		w.names[key].wakeAll()
		return
	}
	for _, l := range w.names {
		l.wakeAll()
	}
}

// A line is what this server knows of its own requests that wait at one name, as long as that name is
// watched. The first of them is the server's head in the record. A gate offers a few of its line at a time:
// without this the head would vanish whenever those few have gone, and others would overtake the rest.
type line struct {
	watches map[*nameWatch]struct{}
	waiting []waiter // in the order in which they came, except those taken out
	takenBy int      // transactions that have taken some of them out
}

// wakeAll wakes all who watch a line.
func (l *line) wakeAll() {
	if l == nil {
		return
	}
	for one := range l.watches {
		one.wake()
	}
}

func (w *watches) stopTimers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, l := range w.names {
		for one := range l.watches {
			if one.timer != nil {
				one.timer.Stop()
			}
		}
	}
}

// A waiter is one ticket that waits.
type waiter struct {
	since       int64
	ticket      control.Ticket
	nonBlocking bool // it does not hold up others
}

// headsBefore reports whether it is this one that other servers are to know of, rather than another: one that
// keeps others back goes before one that does not.
func (w waiter) headsBefore(other waiter) bool {
	if w.nonBlocking != other.nonBlocking {
		return other.nonBlocking
	}
	return w.compare(other) < 0
}

func (w waiter) compare(other waiter) int {
	return cmp.Or(cmp.Compare(w.since, other.since), cmp.Compare(w.ticket, other.ticket))
}

// sameTicket reports whether another waiter is the same, whenever it came.
func (w waiter) sameTicket(other waiter) bool { return w.ticket == other.ticket }

// A lineRest is those of a line who no transaction has taken out.
type lineRest struct {
	known            bool   // it is; otherwise what the transaction has is all that is known of the line
	nonEmpty         bool   // there are such that keep others back
	first            waiter // of them
	firstNonBlocking waiter // the first of the others; the zero one when there is none
	count            int    // of all of them
}

// A takenLine is a line some of which a transaction has taken out.
type takenLine struct {
	line *line // nil when nobody watches the name
	rest lineRest
}

// takeOut takes the requests of a transaction out of the line, and describes the rest.
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
		one := waiter{since: turn.Since.UnixNano(), ticket: turn.Ticket}
		at, found := slices.BinarySearchFunc(l.waiting, one, waiter.compare)
		if !found {
			// One that was bumped comes back as if it had come earlier.
			at = slices.IndexFunc(l.waiting, one.sameTicket)
		}
		if at >= 0 && at < len(l.waiting) && l.waiting[at].ticket == one.ticket {
			l.waiting = slices.Delete(l.waiting, at, at+1)
		}
		if turn.Op.Waits() && turn.Ahead == 0 {
			front = max(front, turn.Since.UnixNano())
		}
	}
	l.forgetBefore(front)
	l.takenBy++
	// With another transaction under way some of the line are in neither, so the rest is not all there is.
	r := lineRest{known: l.takenBy == 1, count: len(l.waiting)}
	for i := 0; i < len(l.waiting) && !r.nonEmpty; i++ {
		switch one := l.waiting[i]; {
		case !one.nonBlocking:
			r.nonEmpty, r.first = true, one
		case r.firstNonBlocking.ticket == 0:
			r.firstNonBlocking = one
		}
	}
	return takenLine{l, r}
}

// forgetBefore forgets the requests that came before the one that is now the first of their line. They have
// left without this store being told: a layer between the gate and this store answered them while the store
// was away. Requests that do not hold up others may still be there.
func (l *line) forgetBefore(front int64) {
	l.waiting = slices.DeleteFunc(l.waiting, func(w waiter) bool { return w.since < front && !w.nonBlocking })
}

// putBack puts requests that go on waiting after these decisions back into their line. After an error there
// are none: the gate asks again for the requests that still wait.
func (w *watches) putBack(taken takenLine, turns []control.Turn, decisions []gatehouse.Decision) {
	if taken.line == nil {
		return
	}
	var waiting []waiter
	for i := range decisions {
		turn, d := &turns[i], &decisions[i]
		if turn.Ticket != 0 && control.KeepsWaiting(turn.Command, d) {
			waiting = append(waiting, waiter{since: sinceOf(turn, d.At.UnixNano()), ticket: turn.Ticket})
		}
	}
	w.putBackWaiters(taken.line, waiting)
}

// putBackWaiters puts these into their line again, after a transaction has taken them out.
func (w *watches) putBackWaiters(l *line, waiting []waiter) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.takenBy--
	for _, one := range waiting {
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
