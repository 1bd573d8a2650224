package resp

import (
	"bytes"
	"slices"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// A waiter is something that is answered later, in the order of the commands. A command can be granted while
// its client goes away: a grant to a client that is known to be gone is taken back, so a client that leaves
// while it waits keeps nothing.
//
//	             setDecided
//	submitted ---------------> decided   answered by the loop without a wake-up
//	    |                         ^
//	    | the loop turns          |
//	    | to other connections    | setDecided, which wakes the loop
//	    v                         |
//	 parked ----------------------'
//	    |
//	    | the connection is closed (also from decided): cancelWaiter
//	    v
//	abandoned
//
// The gate may call setDecided at any time and on any goroutine. Everything else happens on the connection's
// event loop, so a connection is never answered and closed at the same time.
type waiter struct {
	session *session
	next    *waiter // to be answered after this one
	state   atomic.Int32
	alone   bool    // nothing behind it is looked at before it is answered
	since   instant // when it was put off

	// These two are of a call, and here because there is room for them.
	details  bool // all there is to know is answered
	progress bool // the client is told its place by push messages while it waits

	// What it is a part of: one of these.
	call  *nativeCall
	batch *rateBatch
	later *laterReply
}

// A nativeCall is a command for one controller. A loop uses its calls again and again.
type nativeCall struct {
	gate.Request
	waiter
	room *callRoom // for a decision that is made at once; nil for a call that is not used again
}

func newNativeCall() *nativeCall {
	c := new(nativeCall)
	c.call = c
	c.Decided = func(*gate.Request) { c.setDecided() }
	return c
}

// A laterReply is an answer that no single controller gave: a list, that of a grant, or one that keeps its
// place behind others.
type laterReply struct {
	waiter
	grant  *jointCall // of which it is a part; nil for others
	cancel func()     // ends what makes it; nil when it is there
	names  []string   // of a list
	err    error
	text   []byte // of what was answered at once; nil when it was not
}

// The states of a waiter.
const (
	submitted = iota
	parked    // the loop has turned to other connections
	decided
	abandoned // the connection is closed: there is no session to wake
)

// submitCall gives a command to the gate, and answers it if that decides at once. One that may wait in line
// blocks the connection until answerWaiter answers it.
func (s *session) submitCall(c *nativeCall) {
	c.session, c.next, c.since = s, nil, instant{}
	c.alone = c.Command.Op.Waits() && c.Command.MaxWait != 0
	c.state.Store(submitted)
	l := s.loop
	l.alone[0], c.Decision = &c.Request, &c.room.Decision
	s.server.config.Gate.Submit(l.alone[:]...)
	// A decision that is not in the room was made in line, and answered as one that comes later: its client
	// may have left meanwhile, and a server that is stopping ends the connection after one that may wait.
	// Decision is read only once the call is decided: until then another goroutine may be setting it.
	atOnce := c.isDecided() && (c.Decision == &c.room.Decision || !c.alone && !c.mustReachClient())
	if s.waiting != nil || !atOnce {
		c.giveRoom()
		s.putOff(&c.waiter)
		if c.alone {
			s.beginCallWait(c)
		}
		if c.progress && !c.isDecided() {
			s.followCall(c)
		}
		return
	}
	s.answerDecision(c)
	held := params.TakesForClient(c.Command.Op, c.Key.Kind, false)
	if held && c.Err == nil && c.Decision.Outcome == gatehouse.Granted {
		l.unwritten = append(l.unwritten, revocableDecision{end: s.answeredBytes(), call: c})
	} else {
		l.recycleCall(c)
	}
}

// putOff has a waiter answered in its turn.
func (s *session) putOff(w *waiter) {
	// The gate may have decided already, on another goroutine. Then no wake-up comes, and answerCommands
	// sees the decision as soon as this returns.
	if w.state.CompareAndSwap(submitted, parked) {
		w.since = newInstant(s.loop.counts.began)
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

// setDecided has the event loop give the answer.
func (w *waiter) setDecided() {
	// Once the state is set, the event loop may answer and use the waiter again. Only a parked waiter needs a
	// wake-up, since the loop still holds a submitted one.
	if s := w.session; w.state.Swap(decided) == parked {
		s.wake()
	}
}

func (w *waiter) isDecided() bool { return w.state.Load() == decided }

// inBackground reports whether the answer is made outside of the event loop. No other is under way then.
func (w *waiter) inBackground() bool {
	return w.later != nil && w.later.grant == nil && w.later.cancel != nil
}

// concerns reports whether a waiter is about a controller.
func (w *waiter) concerns(key gatehouse.Key) bool {
	return w.call != nil && w.call.shownKey() == key || w.batch != nil && w.batch.key == key ||
		w.jointCall() != nil && w.jointCall().concerns(key)
}

// jointCall returns the operation on a grant that the waiter is for, nil if it is for anything else.
func (w *waiter) jointCall() *jointCall {
	if w.later == nil {
		return nil
	}
	return w.later.grant
}

// operation returns the kind and the operation under which the waiter counts.
func (w *waiter) operation() (gatehouse.Kind, gatehouse.Op) {
	if g := w.jointCall(); g != nil {
		return g.key().Kind, g.Command.Op
	}
	return w.call.Key.Kind, w.call.Command.Op
}

// cancelWaiter takes the commands out of line, or takes back what they were granted.
func (w *waiter) cancelWaiter() {
	w.endUser()
	decider := w.session.server.config.Gate
	switch {
	case w.call != nil:
		decider.Cancel(&w.call.Request)
	case w.batch != nil:
		for _, r := range w.batch.submitted {
			decider.Cancel(r)
		}
	case w.later.cancel != nil:
		w.later.cancel()
	}
}

// answerWaiter answers the first of the commands under way, which is decided, unless the client is gone. It
// reports false when the connection is to be closed.
func (s *session) answerWaiter() bool {
	w := s.waiting
	// A client that hung up while it waited must take nothing. This is the last look at it before its
	// answer is written; what is granted and unsent after that is taken back in endSession.
	granted := w.mustReachClient()
	if granted && s.hungUp() {
		return false // endSession takes back what it was granted
	}
	// From here on endSession must not abandon this waiter: what it was granted goes into unwritten
	// instead.
	s.waiting, w.next = w.next, nil
	if s.ended {
		// It gives tokens back, and the answers behind that would be taken for earlier ones.
		s.broken = true
		s.abandonWaiter(w)
		return true
	}
	s.endProgress(w.call)
	s.loop.counts.resumeTiming(w)
	defer s.loop.counts.endResume()
	switch {
	case w.call != nil:
		s.answerDecision(w.call)
	case w.batch != nil:
		s.answerBatch(w.batch)
	default:
		s.answerLater(w.later)
	}
	// An answer that needs no taking back may be collected with those that follow. A server that is
	// stopping ends the connection after each command that waited in line.
	if !granted {
		s.last = s.last || w.alone && s.server.stopping.Load()
		return len(s.loop.reply.out) < flushSize || s.flushReplies()
	}
	// It is written at once and alone, so that no time lies between the look at the client and the answer.
	s.loop.unwritten = append(s.loop.unwritten,
		revocableDecision{end: s.answeredBytes(), call: w.call, grant: w.jointCall()})
	if !s.flushReplies() {
		return false
	}
	s.last = s.last || w.alone && s.server.stopping.Load()
	return true
}

// answerLater answers what no controller decided.
func (s *session) answerLater(a *laterReply) {
	switch r := &s.loop.reply; {
	case a.grant != nil:
		s.answerGrant(a.grant)
	case a.text != nil:
		r.out = append(r.out, a.text...)
	case a.err != nil:
		r.writeError(codes[gatehouse.CodeOf(a.err)], a.err.Error())
	default:
		r.writeArray(len(a.names))
		r.writeTexts(a.names...)
	}
}

// mustReachClient reports whether what was decided is taken back if the client is gone.
func (w *waiter) mustReachClient() bool {
	if g := w.jointCall(); g != nil {
		return g.mustReach()
	}
	c := w.call
	return c != nil && c.Err == nil && c.Decision.Outcome == gatehouse.Granted &&
		params.TakesForClient(c.Command.Op, c.Key.Kind, w.alone)
}

// abandonWaiter gives a waiter up whose client is gone.
func (s *session) abandonWaiter(w *waiter) {
	// The state is set before the cancel: a decision that comes in between finds no parked waiter and wakes
	// no closed connection. The cancel takes a decided grant back as well.
	s.server.metrics.Hangups.Inc()
	s.loop.counts.endWait(w)
	w.state.Store(abandoned)
	s.endProgress(w.call)
	w.cancelWaiter()
}

// An unsentDecision is a grant that is taken back if not all answers up to its own are sent.
type unsentDecision struct {
	revocableDecision
	next *unsentDecision
}

// answeredBytes is how many bytes of answers there are, those included that are not written.
func (s *session) answeredBytes() int64 { return s.queued + int64(len(s.loop.reply.out)) }

// trackUnsent has grants taken back whose answers are written, if those are not sent.
func (s *session) trackUnsent(grants []revocableDecision) {
	for i := range grants {
		d := &unsentDecision{revocableDecision: grants[i]}
		if s.newestUnsent == nil {
			d.next = d
		} else {
			d.next = s.newestUnsent.next
			s.newestUnsent.next = d
		}
		s.newestUnsent = d
	}
}

// forgetSent forgets the grants whose answers were sent.
func (s *session) forgetSent() {
	sent := s.sentBytes()
	for d := s.oldestUnsent(); d != nil && d.end <= sent; d = s.oldestUnsent() {
		s.forgetOldest(d)
	}
}

// oldestUnsent is the grant whose answer is sent next; nil when all are.
func (s *session) oldestUnsent() *unsentDecision {
	if s.newestUnsent == nil {
		return nil
	}
	return s.newestUnsent.next
}

// forgetOldest removes the oldest grant.
func (s *session) forgetOldest(oldest *unsentDecision) {
	if s.newestUnsent == oldest {
		s.newestUnsent = nil
		return
	}
	s.newestUnsent.next = oldest.next
}

// Where the store takes time to answer, commands that follow one another in a pipeline are under way
// together, as long as each is for another key and none may wait in line. They are answered in their order
// all the same: what is decided sooner waits for its turn, and so does what is answered at once.

// maxOverlapping is how many of them there are at most on one connection. A batch for one key counts as one.
const maxOverlapping = 16

// mayOverlap reports whether a command can be looked at while others are under way.
func (s *session) mayOverlap(c *command, args [][]byte) bool {
	if c == nil || !c.keyed || !c.acceptsArity(args) || len(args) < 2 || c.mayWait(args) ||
		givesParents(args) {
		return false
	}
	key, ok := s.keyOf(c, args[1])
	if !ok {
		return false
	}
	// Two commands for one key could be decided in the wrong order, so the second is read when the first
	// is answered.
	n := 1
	for w := s.waiting; w != nil; w = w.next {
		n++
		if w.alone || w.concerns(key) || n > maxOverlapping {
			return false
		}
	}
	return true
}

// mayWait reports whether a command may have to wait in line, for want of a MAXWAIT of 0.
func (c *command) mayWait(args [][]byte) bool {
	if !slices.Contains(c.flags, blocking) {
		return false
	}
	for i := 2; i+1 < len(args); i += 2 {
		if bytes.EqualFold(args[i], []byte("maxwait")) && string(args[i+1]) == "0" {
			return false
		}
	}
	return true
}

// keyOf is the controller that a command is about.
func (s *session) keyOf(c *command, place []byte) (key gatehouse.Key, ok bool) {
	if c.group == rateGroup {
		return gatehouse.Key{Kind: gatehouse.GCRA, Name: s.loop.names.internName(place)}, true
	}
	kind, name, ok := bytes.Cut(place, []byte{'/'})
	if !ok {
		return key, false
	}
	if isGrant(place) {
		return gatehouse.Key{Kind: gatehouse.Grant, Name: string(name)}, true
	}
	k, err := parseKind(kind)
	return gatehouse.Key{Kind: k, Name: s.loop.names.internName(name)}, err == nil
}

// queueReply has what was answered at once, from this byte on, said in its turn.
func (s *session) queueReply(from int) {
	out := s.loop.reply.out
	// Nothing was written: the command itself has been put off, or goes into a batch.
	if len(out) == from {
		return
	}
	// The answer exists, but those before it do not. It becomes a waiter that is decided from the start.
	a := &laterReply{text: bytes.Clone(out[from:])}
	a.session, a.later = s, a
	a.state.Store(decided)
	s.enqueueWaiter(&a.waiter)
	s.loop.reply.out = out[:from]
}
