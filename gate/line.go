package gate

import (
	"cmp"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A line holds the tickets that wait in front of one controller, in order of arrival: first the tickets
// that the store has seen and refused, then the unseen ones. At most one goroutine serves a line at a time,
// and it serves all tickets of the line.
//
//	               joinLine                 serveLine
//	(no line) ──────────────────▶ idle ───────────────────▶ serving ──┐ more to do, or serveAgain
//	    ▲                          ▲                         │  │  ▲  │
//	    │                          │   the first must wait   │  │  └──┘
//	    │                          └──────── (timer) ◀───────┘  │
//	    └─────────────────────── dropLine ◀── no ticket left ───┘
//
// An idle line is served again by a new ticket, a cancel, a timeout, its timer or a wake-up of the store.
// What asks for service while the line is being served only sets serveAgain.
type line struct {
	gate      *Gate
	key       gatehouse.Key
	slow      bool   // Apply of the store may block, so that no caller may be kept serving the line
	stopWatch func() // ends the store's Watch; used only by the goroutine that serves or drops the line

	mu              sync.Mutex
	head, tail      *ticket
	firstUnseen     *ticket         // the first ticket that was not yet offered to the store
	recheck         []*ticket       // seen tickets to be offered although they are not in front
	waitersByHolder map[string]int  // number of seen tickets by holder
	newHolders      map[string]bool // holders granted in this batch that other tickets wait with too
	waiting         int             // number of tickets that may wait
	seenCount       int             // number of tickets with seen set
	maxCost         int64           // upper bound of the costs of the seen tickets
	offerAll        bool            // the next batch has every ticket
	serving         bool            // a goroutine serves the line
	serveAgain      bool            // that goroutine must make another round
	timer           *time.Timer     // fires when the first ticket can be granted

	// These belong to the goroutine that serves the line.
	offerWidth int // how many seen tickets a batch has; doubles while they are granted
	batch      []*ticket
	turns      []control.Turn
	replies    []ticketReply
}

// Bounds of one batch, unless it must have every ticket, and of the rounds that one caller makes.
const (
	maxOfferWidth = 1024 // seen tickets of a batch
	maxUnseen     = 256  // unseen tickets of a batch
	maxRounds     = 16
)

// serveLine offers the line to the store until nothing more can be granted. If another goroutine serves the
// line already, that one makes another round and serveLine returns at once.
func (l *line) serveLine() {
	l.mu.Lock()
	if l.serving || l.head == nil {
		l.serveAgain = true
		l.mu.Unlock()
		return
	}
	l.serving, l.offerWidth = true, 1
	l.mu.Unlock()
	// Submit calls this too, and must not wait for a slow store.
	if l.slow {
		l.gate.slowWork.startWork(l.startServing)
		return
	}
	l.startServing()
}

// startServing begins the watch of a new line, and serves it.
func (l *line) startServing() {
	// The watch must begin before the first Apply: a change between the two would wake no client, and the
	// line would wait for an event that has already happened.
	if l.stopWatch == nil {
		l.stopWatch = l.gate.store.Watch(l.key, func() { go l.onWake() })
	}
	l.serveUntilIdle()
}

// onWake serves the line after the store has reported a change.
func (l *line) onWake() {
	// A server that stood still for too long is taken for dead at a barrier, and its waiting tickets are no
	// longer counted. Offering every ticket counts them again.
	if l.key.Kind == gatehouse.Barrier {
		l.mu.Lock()
		l.offerAll = true
		l.mu.Unlock()
	}
	l.serveLine()
}

// serveUntilIdle makes rounds until there is nothing to do: choose a batch, apply it, process the decisions.
// After maxRounds a goroutine takes over, so that a caller does not serve later arrivals forever.
func (l *line) serveUntilIdle() {
	l.mu.Lock()
	var retry time.Duration
	for round, more := 0, true; more; round++ {
		// A slow line is served by a goroutine of its own already.
		if round == maxRounds && !l.slow {
			l.mu.Unlock()
			go l.serveUntilIdle()
			return
		}
		// serveAgain is reset before the batch is chosen. A request that comes during Apply sets it again and
		// so causes one more round, which sees everything that happened before the request.
		l.serveAgain = false
		l.fillBatch()
		l.mu.Unlock()
		err := l.gate.store.Apply(l.gate.ctx, l.key, l.turns)
		l.mu.Lock()
		retry, more = l.processDecisions(err)
		l.sendReplies()
		rest := l.serveAgain || l.offerAll || l.firstUnseen != nil || len(l.recheck) > 0
		more = l.head != nil && (more || rest)
	}
	// serving ends and the timer is set under one lock: a ticket that joins from here on finds the line idle
	// and serves it itself.
	l.serving = false
	l.armTimer(retry)
	empty := l.head == nil
	l.mu.Unlock()
	if empty {
		l.gate.dropLine(l)
	}
}

// fillBatch chooses the tickets to offer: the first few of the line or all of it, those to be rechecked,
// and the unseen ones.
func (l *line) fillBatch() {
	// The front of the line. Nothing is ahead of these tickets except what precedes them in the batch.
	whole := l.offerAll || l.deletePending()
	var front *ticket // every ticket up to this one is offered
	for t := l.head; t != nil && t != l.firstUnseen && (whole || len(l.batch) < l.offerWidth); t = t.next {
		l.offerTicket(t, 0)
		front = t
	}
	for _, t := range l.recheck {
		t.inRecheck = false
		if t.removed || t.offered || !t.seen {
			continue
		}
		// A ticket with another one ahead of it may share a hold or be refused, but not overtake. The exact
		// number does not matter here, any value above 0 says so.
		ahead := int64(1)
		if t.prev == front {
			ahead = 0
			front = t
		}
		l.offerTicket(t, ahead)
	}
	// An unseen ticket passes only if enough is left for all seen tickets that are not in this batch. Each of
	// those wants 1 at least.
	unoffered := l.seenCount - len(l.batch)
	for n := 0; l.firstUnseen != nil && n < maxUnseen; n++ {
		t := l.firstUnseen
		l.firstUnseen = t.next
		l.offerTicket(t, int64(unoffered))
	}
	l.recheck = l.recheck[:0]
	l.offerAll = false
}

// offerTicket adds a ticket to the batch, with how much is wanted ahead of it by tickets that are not in the
// batch. Its command belongs to the store until its decision is processed.
func (l *line) offerTicket(t *ticket, ahead int64) {
	t.offered = true
	// The last try of a ticket whose time is up: without MaxWait a refusal is final.
	if t.expired {
		t.cmd.MaxWait = 0
	}
	l.batch = append(l.batch, t)
	turn := t.newTurn()
	turn.Ahead = ahead
	l.turns = append(l.turns, turn)
}

// deletePending reports whether the next batch deletes the controller. Then every waiting ticket must be in
// it, to be answered that its controller was deleted.
func (l *line) deletePending() bool {
	n := 0
	for t := l.firstUnseen; t != nil && n < maxUnseen; t = t.next {
		if t.cmd.Op == gatehouse.OpDelete {
			return true
		}
		n++
	}
	return false
}

// processDecisions handles the decisions of a batch. It returns after what time the first ticket can be
// granted. more means that this is not known: every ticket that was offered in front has left the line, and
// the ones behind them may be granted too.
func (l *line) processDecisions(err error) (retry time.Duration, more bool) {
	var first *ticket // the first that was refused with no ticket ahead of it
	for i, t := range l.batch {
		d := &l.turns[i].Decision
		t.offered = false
		switch {
		case err != nil || l.turns[i].Err != nil:
			// What took effect is not known, so the ticket cannot be offered again.
			l.finishTicket(t, gatehouse.Decision{}, cmp.Or(err, l.turns[i].Err))
			continue
		case d.Outcome == gatehouse.Refused && t.cmd.Op.Waits() && t.cmd.MaxWait != 0:
			l.keepWaiting(t, d)
			if first == nil && !t.removed && l.turns[i].Ahead == 0 {
				first = t
				retry = d.RetryAfter
			}
		case t.abandoned:
			// Its caller left while the store had it. A grant must not be lost: it is undone.
			l.removeAbandoned(t, d)
		default:
			l.finishTicket(t, *d, nil)
		}
		// The limit was made smaller than what some tickets wait for. They must be refused now, as they
		// would wait in vain.
		if size := limitInForce(&t.cmd, d); size > 0 && size < l.maxCost {
			l.recheckCostly(size)
		}
	}
	l.recheckHolders()
	clear(l.batch)
	clear(l.turns)
	l.batch, l.turns = l.batch[:0], l.turns[:0]
	if l.head == first {
		return retry, false
	}
	// The whole front was granted. A wider batch next time makes a long line advance in few round trips,
	// while a line that does not advance is offered one ticket at a time.
	l.offerWidth = min(2*l.offerWidth, maxOfferWidth)
	return gatehouse.Forever, true
}

// sendReplies calls the callbacks of the answered tickets. It is called with the lock held, and releases it
// meanwhile: a callback may use the gate.
func (l *line) sendReplies() {
	if len(l.replies) == 0 {
		return
	}
	l.mu.Unlock()
	for _, r := range l.replies {
		r.ticket.done(r.decision, r.err)
	}
	clear(l.replies)
	l.replies = l.replies[:0]
	l.mu.Lock()
}

// minRetry is the shortest time after which a line is offered again that was refused at the time the store
// had named: the store's clock and the timer's do not run exactly alike. It also bounds how often a slow
// store is called.
const minRetry = time.Millisecond

// armTimer sets the timer that serves the line when nothing else does.
func (l *line) armTimer(retry time.Duration) {
	if retry != gatehouse.Forever && (retry <= 0 || l.slow) {
		retry = max(retry, minRetry)
	}
	switch {
	case l.head == nil || retry == gatehouse.Forever:
		if l.timer != nil {
			l.timer.Stop()
		}
	case l.timer == nil:
		l.timer = time.AfterFunc(retry, l.serveLine)
	default:
		l.timer.Reset(retry)
	}
}
