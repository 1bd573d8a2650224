package gate

import (
	"cmp"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A line is everybody who stands in front of one controller, in order of arrival: first those who
// were looked at and have to wait, then newcomers. It exists while it has tickets.
type line struct {
	gate *Gate
	key  gatehouse.Key
	slow bool   // its store is, so that nobody may be kept at serving it
	stop func() // of the store's Watch; touched only by whoever serves the line or drops it

	mu         sync.Mutex
	head, tail *ticket
	newcomer   *ticket         // the first that no look was taken at yet
	urgent     []*ticket       // to be looked at although they are not in front
	holders    map[string]int  // how many wait with the same key
	granted    map[string]bool // keys that others wait with too, until those are hurried
	length     int             // of those who may wait
	counted    int             // of those among them who were looked at
	widest     int64           // at least the greatest of their costs
	whole      bool            // everybody is to be looked at
	serving    bool            // somebody is at it
	again      bool            // and is to look once more
	timer      *time.Timer     // fires when the first in line can be granted

	// What whoever serves has in hand.
	width   int // how many of those in front are offered; doubles while they are granted
	batch   []*ticket
	turns   []control.Turn
	answers []answer
}

// The most of those in front, and of newcomers, that are offered to the store at once, unless
// everybody has to be; and how often one caller offers.
const (
	maxWidth     = 1024
	maxNewcomers = 256
	maxRounds    = 16
)

// serve offers the line to the store until nothing more can be granted. When somebody is at it
// already, that one looks once more.
func (l *line) serve() {
	l.mu.Lock()
	if l.serving || l.head == nil {
		l.again = true
		l.mu.Unlock()
		return
	}
	l.serving, l.width = true, 1
	l.mu.Unlock()
	if l.slow {
		l.gate.errands.run(l.begin)
		return
	}
	l.begin()
}

// begin is what whoever serves the line does first.
func (l *line) begin() {
	if l.stop == nil {
		l.stop = l.gate.store.Watch(l.key, func() { go l.woken() })
	}
	l.work()
}

// woken serves the line because of the store. At a barrier everybody is looked at: a server that stood still
// for too long is taken for dead there, and those who wait at it count anew.
func (l *line) woken() {
	if l.key.Kind == gatehouse.Barrier {
		l.mu.Lock()
		l.whole = true
		l.mu.Unlock()
	}
	l.serve()
}

// work goes on until there is nothing to do. A caller who came to be served itself is not kept at it
// for ever by those who come after: after some rounds a goroutine takes over, which ends when the
// line is idle.
func (l *line) work() {
	l.mu.Lock()
	var retry time.Duration
	for round, more := 0, true; more; round++ {
		if round == maxRounds && !l.slow {
			l.mu.Unlock()
			go l.work()
			return
		}
		l.again = false
		l.take()
		l.mu.Unlock()
		err := l.gate.store.Apply(l.gate.ctx, l.key, l.turns)
		l.mu.Lock()
		retry, more = l.settle(err)
		l.deliver()
		more = l.head != nil && (more || l.again || l.whole || l.newcomer != nil || len(l.urgent) > 0)
	}
	l.serving = false
	l.arm(retry)
	empty := l.head == nil
	l.mu.Unlock()
	if empty {
		l.gate.drop(l)
	}
}

// take chooses whom to offer: the first few in line, or the whole of it, those who are urgent, and
// the newcomers.
func (l *line) take() {
	whole := l.whole || l.deleting()
	var front *ticket // everybody up to here is offered
	for t := l.head; t != nil && t != l.newcomer && (whole || len(l.batch) < l.width); t = t.next {
		t.cmd.Ahead = 0
		l.offer(t)
		front = t
	}
	for _, t := range l.urgent {
		t.urgent = false
		if t.gone || t.offered || !t.counted {
			continue
		}
		// One who is not next may share a hold or be refused, no more: somebody is ahead of it.
		t.cmd.Ahead = 1
		if t.prev == front {
			t.cmd.Ahead = 0
			front = t
		}
		l.offer(t)
	}
	unoffered := l.counted - len(l.batch)
	for n := 0; l.newcomer != nil && n < maxNewcomers; n++ {
		t := l.newcomer
		l.newcomer = t.next
		t.cmd.Ahead = int64(unoffered) // each wants at least one
		l.offer(t)
	}
	l.urgent, l.whole = l.urgent[:0], false
}

func (l *line) offer(t *ticket) {
	t.offered = true
	if t.due {
		t.cmd.MaxWait = 0
	}
	l.batch = append(l.batch, t)
	l.turns = append(l.turns, control.Turn{Command: &t.cmd})
}

// deleting reports whether a newcomer deletes the controller: then everybody must hear of it.
func (l *line) deleting() bool {
	n := 0
	for t := l.newcomer; t != nil && n < maxNewcomers; t = t.next {
		if t.cmd.Op == gatehouse.OpDelete {
			return true
		}
		n++
	}
	return false
}

// settle works the decisions in. It returns when the first in line can be granted, and whether that
// is not known because everybody who was offered in front of it is gone.
func (l *line) settle(err error) (retry time.Duration, more bool) {
	var first *ticket // of those who were refused though nobody was ahead of them
	for i, t := range l.batch {
		d := &l.turns[i].Decision
		t.offered = false
		switch {
		case err != nil || l.turns[i].Err != nil:
			l.finish(t, gatehouse.Decision{}, cmp.Or(err, l.turns[i].Err))
			continue
		case d.Outcome == gatehouse.Refused && t.cmd.Op.Waits() && t.cmd.MaxWait != 0:
			l.stay(t, d)
			if first == nil && !t.gone && t.cmd.Ahead == 0 {
				first = t
				retry = d.RetryAfter
			}
		case t.left:
			l.leave(t, d)
		default:
			l.finish(t, *d, nil)
		}
		if size := inForce(&t.cmd, d); size > 0 && size < l.widest {
			l.hurryWide(size)
		}
	}
	l.hurryHolders()
	clear(l.batch)
	clear(l.turns)
	l.batch, l.turns = l.batch[:0], l.turns[:0]
	if l.head == first {
		return retry, false
	}
	l.width = min(2*l.width, maxWidth)
	return gatehouse.Forever, true
}

// deliver tells the answers, without the lock.
func (l *line) deliver() {
	if len(l.answers) == 0 {
		return
	}
	l.mu.Unlock()
	for _, a := range l.answers {
		a.ticket.done(a.decision, a.err)
	}
	clear(l.answers)
	l.answers = l.answers[:0]
	l.mu.Lock()
}

// leastPause is how soon a line is looked at again that could not be served when the store had said: its
// clock and the timer's do not run exactly alike. A slow store is never asked in shorter steps.
const leastPause = time.Millisecond

// arm sets the timer by which the line is served when nobody else does it.
func (l *line) arm(retry time.Duration) {
	if retry != gatehouse.Forever && (retry <= 0 || l.slow) {
		retry = max(retry, leastPause)
	}
	switch {
	case l.head == nil || retry == gatehouse.Forever:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(retry, l.serve)
	default:
		l.timer.Reset(retry)
	}
}
