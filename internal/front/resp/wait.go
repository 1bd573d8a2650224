package resp

import (
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A waiter is a command that waits for its decision. It can be granted while its client goes away: a grant to
// a client that is known to be gone is taken back, so a client that leaves while it waits keeps nothing.
//
//	             onDecision
//	submitted ---------------> decided   answered by the loop without a wake-up
//	    |                         ^
//	    | the loop turns          |
//	    | to other connections    | onDecision, which wakes the loop
//	    v                         |
//	 parked ----------------------'
//	    |
//	    | the connection is closed (also from decided): cancel
//	    v
//	abandoned
//
// The gate may call onDecision at any time and on any goroutine. Everything else happens on the connection's
// event loop, so a connection is never answered and closed at the same time.
type waiter struct {
	session *session
	request decisionRequest
	cancel  func() // takes the command out of line, or takes back its grant
	state   atomic.Int32
	alone   bool            // nothing behind it is looked at before it is answered
	result  *waiterResult   // to be read once the state is decided
	batch   *submittedBatch // of commands at a slow store; nil when it is one command
	next    *waiter         // to be answered after this one
}

// A waiterResult is what the gate decided, or another answer that keeps its place in the order of answers.
type waiterResult struct {
	decision gatehouse.Decision
	err      error
	names    *[]string // of a list; nil when it is none
	text     []byte    // of what was answered at once; nil when it was not
}

// The states of a waiter.
const (
	submitted = iota
	parked    // the loop has turned to other connections
	decided
	abandoned // the connection is closed: there is no session to wake
)

// submitCommand gives a command to the gate. One that may wait in line blocks the connection until
// answerWaiter answers it, which may be at once.
func (s *session) submitCommand(q decisionRequest, r *gate.Request) {
	w := &waiter{session: s, request: q, alone: r.Command.Op.Waits() && r.Command.MaxWait != 0}
	w.cancel = s.server.config.Gate.Submit(*r, w.onDecision)
	// The gate may have decided already, on another goroutine. Then no wake-up comes, and answerCommands
	// sees the decision as soon as this returns.
	if w.state.CompareAndSwap(submitted, parked) {
		w.request.since = newInstant(s.loop.counts.began)
	}
	s.enqueueWaiter(w)
}

// enqueueWaiter puts a waiter behind those there are.
func (s *session) enqueueWaiter(w *waiter) {
	last := &s.waiting
	for *last != nil {
		last = &(*last).next
	}
	*last = w
}

// onDecision is called by the gate when the command is decided.
func (w *waiter) onDecision(d gatehouse.Decision, err error) {
	w.setResult(&waiterResult{decision: d, err: err})
}

// setResult has the event loop give the answer.
func (w *waiter) setResult(a *waiterResult) {
	// The result is written before the state: the event loop reads it once it sees decided. Only a parked
	// waiter needs a wake-up, since the loop still holds a submitted one.
	w.result = a
	if w.state.Swap(decided) == parked {
		_ = w.session.conn.Wake(nil)
	}
}

func (w *waiter) isDecided() bool { return w.state.Load() == decided }

// hungUp reports whether the client is known to be gone at this instant.
func (s *session) hungUp() bool {
	if w, ok := s.conn.(peer.Watched); ok {
		return w.Gone()
	}
	return peer.Gone(int32(s.conn.Fd())) // a descriptor
}

// hasUnread reports whether the client has sent something that the event loop has not read yet.
func (s *session) hasUnread() bool {
	if _, inMemory := s.conn.(peer.Watched); inMemory {
		return false
	}
	return peer.Unread(int32(s.conn.Fd())) // a descriptor
}

// answerWaiter answers the first of the commands under way, which is decided. It reports false when the
// client is gone.
func (s *session) answerWaiter() bool {
	w, a := s.waiting, s.waiting.result
	// A client that hung up while it waited must take nothing. This is the last look at it before its
	// answer is written; what is granted and unsent after that is taken back in endSession.
	granted := w.mustReachClient(a)
	if granted && s.hungUp() {
		return false // endSession takes back what it was granted
	}
	// From here on endSession must not abandon this waiter: what it was granted goes into unwritten
	// instead.
	s.waiting, w.next = w.next, nil
	s.loop.counts.resumeTiming(w)
	defer s.loop.counts.endResume()
	switch {
	case a.text != nil:
		s.loop.reply.out = append(s.loop.reply.out, a.text...)
	case w.batch != nil:
		s.answerBatch(w.batch, a.err)
	case a.names == nil:
		s.answerDecision(&w.request, &a.decision, a.err)
	case a.err != nil:
		s.loop.reply.writeError(codes[gatehouse.CodeOf(a.err)], a.err.Error())
	default:
		s.loop.reply.writeTexts(*a.names)
	}
	// An answer that needs no taking back may be collected with those that follow. A server that is
	// stopping ends the connection after each command that waited in line.
	if !granted {
		s.last = s.last || w.alone && s.server.stopping.Load()
		return len(s.loop.reply.out) < flushSize || s.flushReplies()
	}
	// It is written at once and alone, so that no time lies between the look at the client and the answer.
	s.loop.unwritten = append(s.loop.unwritten, revocableDecision{end: s.answeredBytes(), cancel: w.cancel})
	if !s.flushReplies() {
		return false
	}
	s.last = s.last || w.alone && s.server.stopping.Load()
	return true
}

// mustReachClient reports whether the result gives the client something that no other client can have then,
// so that it has to be taken back if the client is gone.
func (w *waiter) mustReachClient(a *waiterResult) bool {
	return a.err == nil && a.decision.Outcome == gatehouse.Granted && (w.alone || w.request.holder != "")
}

// abandonWaiter takes the command out of line, or takes back what it was granted, because its client is gone.
func (s *session) abandonWaiter(w *waiter) {
	// The state is set before the cancel: a decision that comes in between finds no parked waiter and wakes
	// no closed connection. The cancel takes a decided grant back as well.
	s.server.metrics.Hangups.Inc()
	s.loop.counts.endWait(w)
	w.state.Store(abandoned)
	w.cancel()
}
