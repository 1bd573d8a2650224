package resp

import (
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
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

	// roundTime is what all shares of one round of the loop may take together. gnet serves all connections
	// that have sent something before it looks for others: a thousand shares would be a second.
	roundTime = 5 * time.Millisecond

	// lateTime is the share of a connection behind them. It goes to commands that are always cheap.
	lateTime = shareTime / 8
)

// wakePause is as long as a share, so that what is left over has half of a loop's time at most, however many
// connections have something left.
const wakePause = shareTime

// The clock is read once for so much weight. A command for a rate is the cheapest there is, and a reading a
// quarter of it; any other decision can take 10,000 times as long, so that the clock is read after each.
const (
	weighed        = 32
	rateWeight     = 1
	otherWeight    = 16 // of a command that asks for no decision
	decisionWeight = weighed
)

// A timeShare is what is left to a connection of its loop's time.
type timeShare struct {
	others int           // commands that ask for no decision
	time   time.Duration // from begun on
	weight int           // since the clock was read
	begun  time.Duration
	late   bool // behind the round's time: decisions other than for a rate wait for a turn
	over   bool
}

// newShare returns the share of a connection that has been sent that many bytes.
func newShare(behind int) timeShare {
	more := max(0, behind-eventloop.ReadSize)
	return timeShare{
		others: shareOthers + more/countBytes,
		time:   shareTime + shareTime*time.Duration(more)/timedBytes,
	}
}

// spendCommands takes a command off the share, which came that often.
func (h *timeShare) spendCommands(c *command, times int, now func() time.Duration) {
	if c == nil || !c.keyed {
		h.others -= times
		h.over = h.over || h.others <= 0
	}
	switch {
	case c == nil || !c.keyed:
		h.weight += otherWeight * times
	case c.group == rateGroup:
		h.weight += rateWeight * times
	default:
		h.weight += decisionWeight * times
	}
	if h.weight < weighed || now == nil {
		return
	}
	h.weight = 0
	h.over = h.over || now()-h.begun >= h.time
}

// putsOff reports whether a command has to wait for a turn of its connection. The share is over then.
func (h *timeShare) putsOff(c *command) bool {
	h.over = h.over || h.late && c != nil && c.decides()
	return h.over
}

// A roundBudget is the time that the sessions of one event loop have together.
type roundBudget struct {
	used time.Duration // of roundTime, since the loop was last known to have come back
}

// beginShare starts a share, which is late when the round's time is used up.
func (b *roundBudget) beginShare(h *timeShare, now time.Duration) {
	h.begun = now
	if b.used >= roundTime {
		h.late, h.time = true, lateTime
	}
}

// endShare takes what a share took off the round's time. It reports whether the loop has to be asked to tell
// when it comes back.
func (b *roundBudget) endShare(h *timeShare, now func() time.Duration) bool {
	if now == nil {
		return false
	}
	b.used += now() - h.begun
	return b.used >= shareTime
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

// markServed notes that a session is served, and so no longer woken if it was, which it reports.
func (t *wakeQueue) markServed(s *session) bool {
	if t.next == nil || t.next.session != s || !t.next.came.Load() {
		return false
	}
	t.next = nil
	delete(t.in, s)
	return true
}

// hasSession reports whether a session is to be given another turn.
func (t *wakeQueue) hasSession(s *session) bool {
	_, ok := t.in[s]
	return ok
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
			s.wake()
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
