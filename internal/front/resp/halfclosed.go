package resp

import (
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/panjf2000/gnet/v2"
)

// gnet closes a connection when its client ends what it sends, or is gone. Commands that have arrived may be
// under way then, or not looked at: one of them may give something back. So the session goes on, over a
// descriptor of its own, until all of them are done, but for those behind one that waits in line, or whose
// hold is not given.

// socket is what carries the bytes of the session as they are sent.
func (s *session) socket() gnet.Conn {
	if half := s.half.Load(); half != nil {
		return half
	}
	return s.conn
}

// link is what the session reads from and writes to.
func (s *session) link() gnet.Conn {
	if _, ok := s.conn.(*eventloop.Secure); ok {
		return s.conn
	}
	return s.socket()
}

// wake has the loop serve the session soon. Unlike the rest it may be called by any goroutine.
func (s *session) wake() { _ = s.socket().Wake(nil) }

// hungUp reports whether the client is known to be gone at this instant.
func (s *session) hungUp() bool { return eventloop.IsGone(s.socket()) }

// hasUnread reports whether the client has sent something that the event loop has not read yet.
func (s *session) hasUnread() bool { return eventloop.UnreadBytes(s.socket()) > 0 }

// outliveConn has the session go on when gnet closes its connection. It reports false if there is nothing to
// do.
func (s *session) outliveConn(conn gnet.Conn, handler gnet.EventHandler) bool {
	idle := s.waiting == nil && s.unreadBytes() == 0 && !s.hasUnread()
	if idle || s.closed || s.last || s.leavesWithClient() {
		return false
	}
	// What gnet has not sent by now it will not send, or in part: nothing can follow it.
	if conn.OutboundBuffered() > 0 {
		s.revokeUnsent()
		s.broken = true
	}
	half := eventloop.NewHalfClosed(conn, handler)
	s.half.Store(half)
	if secure, ok := s.conn.(*eventloop.Secure); ok {
		secure.MoveTo(half)
	}
	s.endInput()
	s.wake()
	return true
}

// endInput notes that nothing more comes. An answer that is made outside of the event loop is given up: it
// may be a list, which takes long, and nobody would read it. What came behind is done.
func (s *session) endInput() {
	s.ended = true
	if w := s.waiting; w != nil && w.inBackground() { // it is the only one
		s.waiting = nil
		s.abandonWaiter(w)
		s.broken = true // answers behind that would be taken for earlier ones
		s.loop.wakeQueue.addSession(s)
	}
}

// isOver reports whether a session to which nothing more comes has nothing to do.
func (s *session) isOver() bool {
	return s.ended && (s.leavesWithClient() || s.waiting == nil && !s.loop.wakeQueue.hasSession(s))
}

// leavesWithClient reports whether a command waits in line: it is given up, and all behind it, when the
// client has ended what it sends.
func (s *session) leavesWithClient() bool {
	for w := s.waiting; w != nil; w = w.next {
		if w.alone && !w.inBackground() {
			return true
		}
	}
	return false
}
