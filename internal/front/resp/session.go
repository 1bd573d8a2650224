package resp

import (
	"cmp"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/panjf2000/gnet/v2"
)

// linger is how long a client has to read the last answer.
const linger = time.Second

// A session is one connection. Its fields belong to the connection's event loop, except due and who. Their
// order and sizes keep it small, because there is one for every idle client.
//
//	               readCommands, decideBatch
//	              .-------------------------.
//	              v                         |
//	        +----------+                    |
//	 OnOpen | reading  |--------------------'
//	------->| waiting  |
//	        | is nil   |  the gate may wait, or    +-----------------------------+
//	        |          |  the store takes time     | waiting is a list:          |
//	        |          |-------------------------->|  overlapping: more commands |
//	        |          |                           |   are read (mayOverlap)     |
//	        |          |<--------------------------|  alone: none are, until the |
//	        +----------+  answerWaiter, for each   |   gate has decided          |
//	           |    |     in the order of arrival  +-----------------------------+
//	           |    |                                  |                  |
//	           |    | share.over                       | too much input   | client hangs
//	           |    v                                  | behind a waiter  | up, or is cut
//	           | wakeQueue: served again,              v                  |
//	           | behind other sessions          +-------------+           |
//	           '------------------------------->| last: input |           |
//	             QUIT, protocol error, Stopping | is dropped  |           |
//	                                            +-------------+           |
//	                                   answers   |                        |
//	                                   are sent  v                        |
//	                                       +-----------+                  |
//	                                       | leaving:  |                  |
//	                                       | for 1 s   |                  |
//	                                       +-----------+                  |
//	                                             | time is over, or EOF   |
//	                                             v                        v
//	                                       +------------------------------------+
//	                                       | closed: endSession takes back what |
//	                                       | was granted and not sent           |
//	                                       +------------------------------------+
type session struct {
	server *Server
	loop   *loop
	conn   gnet.Conn
	half   atomic.Pointer[eventloop.HalfClosed] // in place of conn once gnet has closed that; mostly nil
	number int64
	client netip.AddrPort
	who    *identity // what the client says about itself, under server.mu; nil while that is nothing

	backlog      *backlog        // what has come and was not answered; nil while that is nothing
	waiting      *waiter         // the commands under way, in the order of their answers; nil without any
	newestUnsent *unsentDecision // the last granted one whose answer is not sent; its next is the oldest

	refused uint64 // the number of the last refusal that is kept

	queued int64 // bytes of answers
	ran    int32 // commands; it may overflow

	three   bool // RESP3
	last    bool // nothing that comes is looked at any more
	ended   bool // nothing more comes: it is over when all that has come is answered
	broken  bool // nothing can be written: what is answered is dropped
	closed  bool
	heldOut bufferClass // of the buffer of what is to be sent

	// The timer looks for a command that does not arrive and for answers that are not taken.
	armed   timerPurpose
	round   int32        // of being armed
	due     atomic.Int32 // the round in which it fired, 0 when it has not
	ranThen int32        // ran when it was armed
	sentAt  int64        // sent() when it was armed
	timer   *time.Timer
}

// An identity is what a client says about itself.
type identity struct {
	name, library, version, user string
	account                      *sessionLogin // who it is; nil if rights are off. Only the loop reads it
}

func newSession(server *Server, conn gnet.Conn) *session {
	s := &session{
		server: server, conn: conn, loop: server.loopOf(conn.EventLoop()), number: server.last.Add(1),
	}
	s.client = eventloop.TakeAddress(conn)
	s.admitUser()
	return s
}

// serveConnection does what there is to do on the connection. It reports false when that is to be closed.
func (s *session) serveConnection() bool {
	// A timer can have fired just before it was armed again. Its round tells it from the present one, so
	// that an old one never closes the connection.
	if due := s.due.Load(); due != 0 && s.due.CompareAndSwap(due, 0) && due == s.round && s.isOverdue() {
		return false
	}
	// The last answer is on its way. Input is dropped so that closing the connection does not reset it,
	// which could destroy the answer.
	if s.armed == leaving {
		s.discardAllInput()
		return !s.server.ending.Load()
	}
	l, now := s.loop, s.server.now()
	s.joinInput()
	l.beginSession(s, now)
	l.round.beginShare(&l.share, now)
	s.writePushes()
	ok := s.answerCommands() && s.flushReplies()
	back := l.round.endShare(&l.share, s.server.config.Now)
	if !ok {
		return false
	}
	// There is more input than fitted into the share. Other sessions of this loop come first. Or the loop has
	// been busy, and the wake-up tells when it has come back to its connections.
	if l.share.over || back && l.wakeQueue.next == nil {
		l.wakeQueue.addSession(s)
	}
	// During a shutdown, a client that never stops sending would never be idle. From half of the time on,
	// what it sends is dropped.
	s.last = s.last || s.server.closing.Load()
	// Commands under way are answered even by a server that ends, so only a session without any may
	// finish.
	if s.last && s.waiting == nil || s.server.ending.Load() && s.isQuiet() && !s.hasUnread() {
		return s.finishConnection()
	}
	return s.accountBuffers()
}

// answerCommands answers commands until one has to wait, there are no more, or the session's share of time is
// used up. It reports false when the connection is to be closed.
func (s *session) answerCommands() bool {
	for {
		// Answers go out in the order of the commands: a later one that is decided already stays behind
		// the first that is not.
		for s.waiting != nil && s.waiting.isDecided() {
			if !s.answerWaiter() {
				return false
			}
		}
		if s.last {
			return true
		}
		more, ok := s.readCommands()
		if !ok {
			return false
		}
		// A waiter may have been decided while commands were read. Its wake-up may be over by then, so it
		// is looked at again before the loop turns to other connections.
		if s.loop.share.over || !more && (s.waiting == nil || !s.waiting.isDecided()) {
			return true
		}
	}
}

// window is how much of what has arrived is looked at in one go: a whole command, whatever lies before it.
// Looking at more costs time each time, and where the store is slow, not much more is put to it in one go.
const window = 2 * maxCommand

// readCommands takes commands off the input and answers them. It stops at a command that has to wait, and
// at one that may not be answered before those under way. more means that more input can be read right
// away; ok is false when the connection is to be closed, or is.
func (s *session) readCommands() (more, ok bool) {
	arrived := s.unreadBytes()
	// The bytes are only looked at. They are discarded below, once their commands are answered or on their
	// way; a command that has to be tried again stays in the buffer.
	data, err := s.peekInput(min(arrived, window))
	if err != nil || len(data) == 0 {
		return false, true
	}
	l, at := s.loop, 0
	l.parser.beginData()
	for at < len(data) && (s.waiting == nil || !s.waiting.alone) && !s.last && !l.share.over {
		// The arguments point into data. Nothing that outlives this round may keep them.
		n, err := l.parser.nextCommand(data[at:])
		if err == nil && s.account() != nil {
			err = s.lookUpSender(cmp.Or(n, len(data)-at))
		}
		if n == 0 && err == nil {
			break
		}
		if err != nil {
			s.decideBatch()
			if s.waiting != nil {
				break // those under way are answered first
			}
			s.server.metrics.malformed.Inc()
			s.answerError("ERR", err.Error())
			s.last = true
			break
		}
		times := 1
		// An empty line or array is skipped without an answer, as Redis does.
		if len(l.parser.args) > 0 {
			if !s.runCommand(l.parser.args) {
				break
			}
			times += s.limitAgain(data[at+n:])
		}
		n *= times
		at += n
		s.ran += int32(times) // a batch has few
		if s.account() != nil && !s.account().proved {
			s.account().sent += n
		}
		l.share.spendCommands(l.latest, times, s.server.config.Now)
		// Answers are collected, for one system call is worth many commands. The number of revocable
		// decisions is bounded as well, since each keeps a copy of its command.
		if (len(l.reply.out) >= flushSize || len(l.unwritten) >= maxUnwritten) && !s.flushReplies() {
			return false, false
		}
	}
	// The batch points to no input, but it has to be answered in this round: no later input is certain to
	// come.
	s.decideBatch()
	// Nothing after the last command is looked at, so all of the input goes.
	if s.last && s.waiting == nil {
		at, arrived = arrived, 0
	}
	if at > 0 && !s.closed {
		s.discardInput(at)
	}
	return at > 0 && arrived > len(data), !s.closed
}

// flushReplies writes the answers that were collected. It reports false when the connection is to be closed,
// or is.
func (s *session) flushReplies() bool {
	out := s.loop.reply.out
	if len(out) == 0 {
		return true
	}
	// The time of writing counts for none of the answers: a slow client would show as a slow server.
	s.loop.counts.flushCounts()
	s.loop.reply.out = out[:0]
	// One huge answer must not keep its memory for as long as the loop runs.
	if cap(out) > 2*flushSize {
		s.loop.reply.out = nil
	}
	if !s.broken {
		_, err := s.link().Write(out)
		s.broken = err != nil && s.ended
		if err != nil && !s.ended || s.closed {
			return false // and endSession takes back what these answers grant: nothing of them was sent
		}
	}
	if s.broken {
		s.dropReplies()
		return true
	}
	s.queued += int64(len(out))
	// The system has taken all of it in the usual case, and then there is nothing to take back. Otherwise
	// the decisions are kept until their bytes are sent.
	if s.link().OutboundBuffered() > 0 {
		s.trackUnsent(s.loop.unwritten)
	} else {
		for _, d := range s.loop.unwritten {
			s.loop.recycleCall(d.call)
		}
	}
	s.loop.forgetUnwritten()
	if unsent := s.link().OutboundBuffered(); unsent > maxUnsent {
		s.countCut("client does not take its answers", "bytes", unsent)
		return false
	}
	return true
}

// dropReplies takes back what answers grant that cannot be written.
func (s *session) dropReplies() {
	for _, d := range s.loop.unwritten {
		s.server.metrics.Hangups.Inc()
		d.revokeDecision(s.server.config.Gate)
	}
	s.loop.forgetUnwritten()
}

// sentBytes is how many bytes of answers the system has taken.
func (s *session) sentBytes() int64 {
	if c, ok := s.conn.(*eventloop.Secure); ok {
		return c.SentBytes()
	}
	return s.queued - int64(s.link().OutboundBuffered())
}

// isQuiet reports whether nothing is on its way, in either direction.
func (s *session) isQuiet() bool {
	return s.waiting == nil && s.unreadBytes() == 0 && s.link().OutboundBuffered() == 0
}

// finishConnection ends the connection once the client has had the time to read the last answer. Closing at
// once could destroy that answer, if the client is still sending. It reports false when there is nothing to
// wait for.
func (s *session) finishConnection() bool {
	// An idle connection of a server that ends has no answer that could be lost.
	if s.isQuiet() && !s.last {
		return false
	}
	s.discardAllInput()
	if s.link().OutboundBuffered() > 0 {
		// Not armed again while it runs: each wake-up would give a client that takes nothing more time.
		if s.armed != sending {
			s.armTimer(sending, s.server.config.WriteTimeout)
		}
		return true
	}
	if c, ok := s.conn.(*eventloop.Secure); ok {
		c.EndSending()
		if s.closed { // by that: its descriptor may be that of another connection now
			return false
		}
	}
	// The client sees the end after the last answer. What it sends until then is still read, so that no
	// reset overtakes the answer.
	if !eventloop.ShutdownWrite(s.socket()) {
		return false
	}
	s.armTimer(leaving, linger)
	return true
}

// countCut notes why a connection is closed.
func (s *session) countCut(why string, args ...any) {
	s.server.metrics.slow.Inc()
	s.server.log.Debug("closed a connection", append([]any{"why", why, "client", s.client}, args...)...)
}

// endSession is called once, when the connection is closed. Whatever was granted to its client and has not
// reached it is taken back.
func (s *session) endSession() {
	s.closed = true
	s.endLogin()
	if s.timer != nil {
		s.timer.Stop()
	}
	for ; s.waiting != nil; s.waiting = s.waiting.next {
		s.abandonWaiter(s.waiting)
	}
	s.revokeUnsent()
	s.dropReplies() // its own: no other session is served before it has ended
	s.loop.wakeQueue.removeSession(s)
	s.dropBacklog()
	s.server.config.Budget.Release(s.heldOut.size())
	// Last of all, since drainSessions returns as soon as the server knows of no session.
	s.server.removeSession(s)
}

// revokeUnsent takes back what was granted by answers that are not sent. Decisions whose answers the system
// took are kept: the client may have read them.
func (s *session) revokeUnsent() {
	s.forgetSent()
	if s.newestUnsent != nil {
		eventloop.ShutdownWrite(s.socket()) // so that the answer does not go out after all
	}
	for d := s.oldestUnsent(); d != nil; d = s.oldestUnsent() {
		s.server.metrics.Hangups.Inc()
		d.revokeDecision(s.server.config.Gate)
		s.forgetOldest(d)
	}
}
