package resp

import (
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A waiter is a command that waits for its decision, and blocks its connection meanwhile. The dangerous
// instant is when it is granted while its client goes away: whatever was granted to a client that is
// known to be gone is taken back, and a client that went away while it waited takes nothing with it.
//
// The gate may call done at any time and on any goroutine; everything else happens on the connection's
// event loop, so that a connection is never answered and closed at once.
type waiter struct {
	session  *session
	question question
	cancel   func() // takes the command out of line, or takes back its grant
	state    atomic.Int32
	alone    bool    // nothing behind it is looked at before it is answered
	answer   *answer // to be read once the state is decided
	flight   *flight // of commands at a slow store; nil when it is one command
	next     *waiter // to be answered after this one
}

// An answer is what the gate decided, or something else that is to be said in its turn.
type answer struct {
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
	abandoned // the connection is closed: nobody is to be woken
)

// wait submits a command. If it may wait in line, it blocks the connection until resume answers it, which
// may be at once.
func (s *session) wait(q question, cmd *gatehouse.Command) {
	w := &waiter{session: s, question: q, alone: cmd.Op.Waits() && cmd.MaxWait != 0}
	w.cancel = s.server.config.Gate.Submit(q.key, *cmd, w.done)
	if w.state.CompareAndSwap(submitted, parked) {
		w.question.since = newInstant(s.loop.tallies.began)
	}
	s.enqueue(w)
}

// enqueue puts a waiter behind those there are.
func (s *session) enqueue(w *waiter) {
	last := &s.waiting
	for *last != nil {
		last = &(*last).next
	}
	*last = w
}

// done is called by the gate when the command is decided.
func (w *waiter) done(d gatehouse.Decision, err error) {
	w.settle(&answer{decision: d, err: err})
}

// settle has the event loop give the answer.
func (w *waiter) settle(a *answer) {
	w.answer = a
	if w.state.Swap(decided) == parked {
		_ = w.session.conn.Wake(nil)
	}
}

func (w *waiter) settled() bool { return w.state.Load() == decided }

// hungUp reports whether the client is known to be gone at this instant.
func (s *session) hungUp() bool {
	if w, ok := s.conn.(peer.Watched); ok {
		return w.Gone()
	}
	return peer.Gone(int32(s.conn.Fd())) // #nosec G115 -- a descriptor
}

// resume answers the command that is waited for and comes first. It reports false when the client is gone.
func (s *session) resume() bool {
	w, a := s.waiting, s.waiting.answer
	granted := w.holds(a)
	if granted && s.hungUp() {
		return false // end takes back what it was granted
	}
	s.waiting, w.next = w.next, nil
	s.loop.tallies.resume(w)
	defer s.loop.tallies.resumed()
	switch {
	case a.text != nil:
		s.loop.reply.out = append(s.loop.reply.out, a.text...)
	case w.flight != nil:
		s.answerAll(w.flight, a.err)
	case a.names == nil:
		s.answer(&w.question, &a.decision, a.err)
	case a.err != nil:
		s.loop.reply.fail(codes[gatehouse.CodeOf(a.err)], a.err.Error())
	default:
		s.loop.reply.texts(*a.names)
	}
	if !granted {
		s.last = s.last || w.alone && s.server.stopping.Load()
		return len(s.loop.reply.out) < flushSize || s.flush()
	}
	s.loop.unwritten = append(s.loop.unwritten, grant{end: s.answered(), cancel: w.cancel})
	if !s.flush() {
		return false
	}
	s.last = s.last || w.alone && s.server.stopping.Load()
	return true
}

// holds reports whether a client that goes away now would take something with it that nobody else can have
// then.
func (w *waiter) holds(a *answer) bool {
	return a.err == nil && a.decision.Outcome == gatehouse.Granted && (w.alone || w.question.holder != "")
}

// lost takes the command out of line, or takes back what it was granted, because its client is gone.
func (s *session) lost(w *waiter) {
	s.server.metrics.Hangups.Inc()
	s.loop.tallies.lost(w)
	w.state.Store(abandoned)
	w.cancel()
}
