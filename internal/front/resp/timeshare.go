package resp

import (
	"sync/atomic"
	"time"
)

// The connections of one event loop share its time. Each works off what it has been sent for one share;
// what is left then is worked off in turns, between which the loop looks at all other connections. Bytes
// alone would be no measure of that: the commands in 64 KiB can take a millisecond, or a minute.

// The size of a share. A client that sends more than is read at once gets more of both, in proportion,
// because gnet goes on reading: a pipeline of cheap commands must not pile up. One more command for each
// countBytes, and shareTime for each timedBytes, keeps up with all honest ones.
const (
	shareTime   = time.Millisecond
	shareOthers = 64 // commands that ask for no decision
	timedBytes  = 64 << 10
	countBytes  = 64

	// lastShare is what a client gets that sends no more, because gnet closes its connection then.
	lastShare = 100 * time.Millisecond
)

// wakePause is as long as a share, so that what is left over has half of a loop's time at most, however many
// connections have something left.
const wakePause = shareTime

// The clock is read once for so much weight. A command for a rate is the cheapest there is, and 30 ns is a
// tenth of it; any other decision can take 10,000 times as long.
const (
	weighed     = 16
	rateWeight  = 1
	otherWeight = 8
)

// A timeShare is what is left to a connection of its loop's time.
type timeShare struct {
	others int           // commands that ask for no decision
	time   time.Duration // from the first reading of the clock on
	weight int           // since the clock was read
	begun  time.Time     // zero before the first reading
	over   bool
}

// newShare returns the share of a connection that has been sent that many bytes.
func newShare(behind int) timeShare {
	more := max(0, behind-readSize)
	return timeShare{
		others: shareOthers + more/countBytes,
		time:   shareTime + shareTime*time.Duration(more)/timedBytes,
	}
}

// spendCommand takes one command off the share.
func (h *timeShare) spendCommand(c *command, now func() time.Time) {
	if c == nil || !c.keyed {
		h.others--
		h.over = h.over || h.others <= 0
	}
	h.weight += otherWeight
	if c != nil && c.group == rateGroup {
		h.weight += rateWeight - otherWeight
	}
	if h.weight < weighed || now == nil {
		return
	}
	h.weight = 0
	switch at := now(); {
	case h.begun.IsZero():
		h.begun = at
	default:
		h.over = h.over || at.Sub(h.begun) >= h.time
	}
}

// wakeQueue are the sessions of one event loop that have more to do than fitted into their share. One of them
// at a time is woken, a pause after the one before: gnet goes on with what a wake-up leads to before it looks
// at its connections again, and would never do so if the next came at once.
type wakeQueue struct {
	queue []*session
	in    map[*session]struct{} // the queue, and the session of next
	next  *wakeUp               // nil while no session is being woken
}

// A wakeUp is one attempt to have a session served. Each has a mark of its own: the timer of a session that
// has ended meanwhile may still run, and must not say of the next one that it was woken.
type wakeUp struct {
	session *session
	came    atomic.Bool // the time has come: the loop will serve the session, or is doing so
}

// markServed notes that a session is served, and so no longer woken if it was.
func (t *wakeQueue) markServed(s *session) {
	if t.next != nil && t.next.session == s && t.next.came.Load() {
		t.next = nil
		delete(t.in, s)
	}
}

// addSession gives a session another turn, behind those that wait for theirs.
func (t *wakeQueue) addSession(s *session) {
	if t.in == nil {
		t.in = make(map[*session]struct{})
	}
	if _, ok := t.in[s]; !ok {
		t.in[s] = struct{}{}
		t.queue = append(t.queue, s)
	}
	t.wakeNext()
}

// wakeNext has the next session served, unless one is woken already.
func (t *wakeQueue) wakeNext() {
	for t.next == nil && len(t.queue) > 0 {
		s := t.queue[0]
		t.queue[0], t.queue = nil, t.queue[1:]
		if _, ok := t.in[s]; !ok {
			continue // it has ended
		}
		next := &wakeUp{session: s}
		t.next = next
		time.AfterFunc(wakePause, func() {
			next.came.Store(true)
			_ = s.conn.Wake(nil)
		})
	}
}

// removeSession forgets a session that has ended.
func (t *wakeQueue) removeSession(s *session) {
	delete(t.in, s)
	if t.next != nil && t.next.session == s {
		t.next = nil
	}
	t.wakeNext()
}
