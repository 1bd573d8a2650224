package gate

import (
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
//	    ▲  enterLook               ▲                         │  │  ▲  │
//	    │                          │   the first must wait   │  │  └──┘
//	    │                          └──────── (timer) ◀───────┘  │
//	    └─────────────────────── dropLine ◀── no ticket left ───┘
//
// An idle line is served again by a new ticket, a cancel, a timeout, its timer or a wake-up of the store.
// What asks for service while the line is being served only sets serveAgain.
type line struct {
	gate      *Gate
	key       gatehouse.Key
	stopWatch func() // ends the store's Watch; used only by the goroutine that serves or drops the line

	mu              sync.Mutex
	head, tail      *Request
	firstUnseen     *Request        // the first ticket that was not yet offered to the store
	recheck         []*Request      // seen tickets to be offered although not in front; nil for one that left
	waitersByHolder map[string]int  // number of seen tickets by holder
	newHolders      map[string]bool // holders granted in this batch that other tickets wait with too
	waiting         int             // number of tickets that may wait
	seenCount       int             // number of tickets with seen set
	postponedCount  int             // of these, those that the store has not looked at yet
	maxCost         int64           // upper bound of the costs of the seen tickets
	offerWidth      int             // how many seen tickets a batch has; doubles while they are granted
	looks           int             // rounds of enterLook that the store has; no other one begins meanwhile
	offerAll        bool            // the next batch has every ticket
	serving         bool            // a goroutine serves the line, or is to go on when an answer comes
	serveAgain      bool            // that goroutine must make another round
	timer           *time.Timer     // fires when the first ticket can be granted

	bumps map[control.Ticket]bumpedPlace // of those that were bumped; nil without any

	grantLine // the grants that wait here
}

// lineOf returns the line of key, nil if there is none.
func (g *Gate) lineOf(key gatehouse.Key) *line {
	// Here and in findLine a count is read without a lock: most commands find no line, and must not contend
	// for the shard.
	if g.lines.Load() == 0 {
		return nil
	}
	return g.findLine(key)
}

// findLine is lineOf when there are lines. It is apart so that the compiler can inline lineOf.
func (g *Gate) findLine(key gatehouse.Key) *line {
	sh := g.shardOf(key)
	if sh.count.Load() == 0 {
		return nil
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.lines[key]
}

// Bounds of one batch, unless it must have every ticket, and of the rounds that one caller makes.
const (
	maxOfferWidth = 1024 // seen tickets of a batch
	maxUnseen     = 256  // unseen tickets of a batch
	maxRounds     = 16
)

// serveLine offers the line to the store until nothing more can be granted, or an answer takes time, with
// which another goroutine goes on. If the line is being served already, there is another round and serveLine
// returns at once.
func (l *line) serveLine() {
	l.mu.Lock()
	empty := l.isEmpty()
	if l.serving || l.looks > 0 || empty {
		l.serveAgain = true
		l.mu.Unlock()
		if empty {
			l.gate.dropLine(l)
		}
		return
	}
	l.serving, l.offerWidth = true, 1
	l.mu.Unlock()
	// The watch must begin before the first Apply: a change between the two would wake no client, and the
	// line would wait for an event that has already happened.
	if l.stopWatch == nil {
		l.stopWatch = l.gate.store.Watch(l.key, func() { go l.onWake() })
		l.onWatched()
	}
	rd := l.gate.newRound()
	rd.line, rd.serving = l, true
	l.serveRounds(rd, false)
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
	l.mu.Lock()
	l.noteWoken()
	l.unlockStirred()
	l.serveLine()
}

// serveRounds makes rounds until there is nothing to do: choose a batch, apply it, process the decisions. It
// loops as long as answers come at once, and returns when one takes time. answered says that it goes on with
// one that has come. After maxRounds a goroutine takes over, so that a caller does not serve later arrivals
// forever.
func (l *line) serveRounds(rd *round, answered bool) {
	for n := 0; l.nextRound(rd, answered); n++ {
		if n == maxRounds {
			l.gate.work.begin()
			go func() { // ends when the line is idle or a round is left
				defer l.gate.work.end()
				if rd.start(l.key) || !rd.leaveToAnswer() {
					l.serveRounds(rd, true)
				}
			}()
			return
		}
		if !rd.start(l.key) && rd.leaveToAnswer() {
			return
		}
		answered = true
	}
}

// nextRound processes the decisions of a round that was answered, and chooses the batch of the next one. It
// reports false, and gives the round back, if there is nothing to do: then the line is idle.
func (l *line) nextRound(rd *round, answered bool) (more bool) {
	l.mu.Lock()
	retry := gatehouse.Forever
	more = true
	if answered {
		retry, more = l.processDecisions(rd)
		if len(rd.replies) > 0 {
			// A callback may use the gate.
			l.mu.Unlock()
			rd.sendReplies()
			l.mu.Lock()
		}
		rd.clearRequests()
	}
	rest := l.serveAgain || l.offerAll || l.firstUnseen != nil || len(l.recheck) > 0
	if l.head != nil && l.looks == 0 && (more || rest) {
		// serveAgain is reset before the batch is chosen. A request that comes during Apply sets it again and
		// so causes one more round, which sees everything that happened before the request.
		l.serveAgain = false
		l.fillBatch(rd)
		// Tickets may be left that stand behind a grant which is being looked at: its answer serves the line.
		if len(rd.requests) > 0 {
			l.unlockStirred()
			return true
		}
	}
	// serving ends and the timer is set under one lock: a ticket that joins from here on finds the line idle
	// and serves it itself. Whoever finishes the last look serves it, too.
	l.serving = false
	l.armTimer(retry, rd.late)
	empty := l.isEmpty()
	l.unlockStirred()
	rd.release()
	if empty {
		l.gate.dropLine(l)
	}
	return false
}

// fillBatch chooses the tickets to offer: the first few of the line or all of it, those to be rechecked,
// and the unseen ones.
func (l *line) fillBatch(rd *round) {
	// The front of the line. Nothing is ahead of these tickets except what precedes them in the batch, and
	// grants.
	bounds := l.grantBounds()
	deletes := l.deletePending(bounds)
	// A postponed ticket is looked at with the first, as its limit may let others pass.
	whole := l.offerAll || deletes || l.postponedCount > 0
	if deletes {
		bounds.fence = maxTicket // a delete answers all of them
	}
	var front *Request // every ticket up to this one is offered
	for t := l.head; t != nil && t != l.firstUnseen; t = t.next {
		if !whole && len(rd.requests) >= l.offerWidth || l.orderOf(t) > bounds.fence {
			break
		}
		rd.offerTicket(t, 0, bounds)
		front = t
	}
	withheld := l.recheck[:0]
	for _, t := range l.recheck {
		switch {
		case t == nil:
			continue // it has left
		case l.orderOf(t) > bounds.fence:
			withheld = append(withheld, t)
			t.recheckAt = int32(len(withheld)) // far less than 2 billion
			continue
		}
		t.recheckAt = 0
		if t.offered {
			continue
		}
		// A ticket with another one ahead of it may share a hold or be refused, but not overtake. The exact
		// number does not matter here, any value above 0 says so.
		ahead := int64(1)
		if t.prev == front {
			ahead = 0
			front = t
		}
		rd.offerTicket(t, ahead, bounds)
	}
	// An unseen ticket passes only if enough is left for all seen tickets that are not in this batch. Each of
	// those wants 1 at least.
	unoffered := l.seenCount - len(rd.requests)
	for n := 0; l.firstUnseen != nil && n < maxUnseen && l.firstUnseen.number <= bounds.fence; n++ {
		t := l.firstUnseen
		l.firstUnseen = t.next
		rd.offerTicket(t, int64(unoffered), bounds)
	}
	clear(l.recheck[len(withheld):])
	l.recheck = withheld
	// What stands behind the fence was not offered yet.
	l.offerAll = l.offerAll && bounds.fence != maxTicket
}

// offerTicket adds a ticket to the batch, with how much is wanted ahead of it by tickets that are not in the
// batch. Its command belongs to the store until its decision is processed.
func (rd *round) offerTicket(t *Request, ahead int64, bounds grantBounds) {
	t.offered = true
	t.keptBack = t.line.orderOf(t) > bounds.keeper
	if t.keptBack {
		ahead++
	}
	// The last try of a ticket whose time is up: without MaxWait a refusal is final.
	if t.expired {
		t.Command.MaxWait = 0
	}
	rd.addRequest(t, ahead)
}

// deletePending reports whether the next batch deletes the controller. Then every waiting ticket must be in
// it, to be answered that its controller was deleted.
func (l *line) deletePending(bounds grantBounds) bool {
	n := 0
	// Only those that fillBatch would offer. A delete does not wait,
	// so that it is never among the seen ones.
	for t := l.firstUnseen; t != nil && n < maxUnseen && t.number <= bounds.fence; t = t.next {
		if t.Command.Op == gatehouse.OpDelete {
			return true
		}
		n++
	}
	return false
}

// processDecisions handles the decisions of a round. It returns after what time the first ticket can be
// granted. more means that this is not known: every ticket that was offered in front has left the line, and
// the ones behind them may be granted too.
func (l *line) processDecisions(rd *round) (retry time.Duration, more bool) {
	var first *Request // the first that was refused with no ticket ahead of it
	for i, t := range rd.requests {
		turn := rd.answeredTurn(i)
		d := &turn.Decision
		t.offered = false
		switch {
		case turn.Err != nil:
			// What took effect is not known, so the ticket cannot be offered again.
			l.finishTicket(rd, t, turn)
			continue
		case control.KeepsWaiting(&t.Command, d):
			l.keepWaiting(rd, t, turn)
			if first == nil && !t.removed {
				first, retry = t.standing(turn)
			}
		case t.abandoned:
			// It was canceled while the store had it. A grant must not be lost: it is undone.
			l.removeAbandoned(rd, t, d)
		default:
			l.finishTicket(rd, t, turn)
		}
		// The limit was made smaller than what some tickets wait for. They must be refused now, as they
		// would wait in vain.
		if size := limitInForce(&t.Command, d); size > 0 && size < l.maxCost {
			l.recheckCostly(size)
		}
	}
	l.recheckHolders()
	l.noteRound(rd)
	if l.head == first {
		return retry, false
	}
	// The whole front was granted. A wider batch next time makes a long line advance in few round trips,
	// while a line that does not advance is offered one ticket at a time.
	l.offerWidth = min(2*l.offerWidth, maxOfferWidth)
	return gatehouse.Forever, true
}

// minRetry is the shortest time after which a line is offered again that was refused at the time the store
// had named: the store's clock and the timer's do not run exactly alike. It also bounds how often a store is
// called that does not answer at once.
const minRetry = time.Millisecond

// armTimer sets the timer that serves the line when nothing else does. late says that the last answer took
// time.
func (l *line) armTimer(retry time.Duration, late bool) {
	// Without this bound, a store whose clock is a little behind would
	// be asked in a loop until its time has come.
	if retry != gatehouse.Forever && (retry <= 0 || late) {
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
