package resp

import (
	"fmt"
	"math/bits"
	"time"
)

// The limits of a connection beside those of a command.
const (
	// maxUnsent is how much may be ready for a client that does not take it. It is the answers to a
	// pipeline of some 300,000 commands that is sent before the first is read.
	maxUnsent = 8 << 20
	// maxBehind is how much a client may send behind a command that waits.
	maxBehind = 1 << 20
)

// accountBuffers reports the bytes that wait to be read or sent to the budget, and arms the timer that fits
// them. It reports false when the client has too many of them, and is cut.
func (s *session) accountBuffers() bool {
	s.keepInput()
	in, out := s.unreadBytes(), s.link().OutboundBuffered()
	// The budget gets changes only, as most commands leave both buffers as empty as before.
	before := s.heldOut.size()
	s.heldOut = s.heldOut.keptFor(out)
	held := s.heldOut.size()
	if b := s.backlog; b != nil {
		before += b.charged
		b.charged = cap(b.data)
		held += b.charged
	}
	if held != before {
		within := s.server.config.Budget.Move(held-before, held)
		if !within {
			s.server.config.Budget.Refuse()
			s.countCut("all clients together have too much in buffers",
				"bytes", s.server.config.Budget.Used())
			return false
		}
	}
	if s.newestUnsent != nil {
		s.forgetSent()
	}
	if s.waiting == nil && in > maxUnsent {
		s.countCut("client sends faster than it can be answered", "bytes", in)
		return false
	}
	if s.waiting != nil && in > s.maxBufferedInput() {
		s.loop.reply.writeError("ERR", protocolError(fmt.Sprintf(
			"more than %d bytes behind a command that waits", s.maxBufferedInput())).Error())
		// The error stands in the place of the waiting command's answer. The commands behind it are given
		// up, too, or the client would take their answers for earlier ones.
		for ; s.waiting != nil; s.waiting = s.waiting.next {
			s.waiting.state.Store(abandoned)
			s.waiting.cancelWaiter()
		}
		s.last = true
		return s.flushReplies() && s.finishConnection()
	}
	switch {
	// A client that takes no answers comes first, since its buffers grow. Input does not count as late
	// while a command waits: nothing of it is read then.
	case out > 0 && s.armed != sending:
		s.armTimer(sending, s.server.config.WriteTimeout)
	case in > 0 && s.waiting == nil && (s.armed == nothing || s.armed == idling):
		s.armTimer(arriving, s.server.config.ReadTimeout)
	case s.armed == nothing && s.isUnknown():
		s.armTimer(unknown, s.server.config.ReadTimeout)
	case s.armed == nothing && s.server.config.IdleTimeout > 0:
		s.armTimer(idling, s.server.config.IdleTimeout)
	}
	return true
}

// A bufferClass is the size of a buffer of answers, whose sizes in gnet are powers of two: 0 for none, and
// otherwise one more than the binary logarithm. A session has one byte for it.
type bufferClass uint8

// keptFor is the class of a buffer with this many bytes, far less than 2 GiB, which had this class before:
// one that grew keeps its size until it is empty.
func (c bufferClass) keptFor(bytes int) bufferClass {
	if bytes == 0 {
		return 0
	}
	return max(c, bufferClass(1+bits.Len(uint(bytes-1)))) // at most 32
}

func (c bufferClass) size() int {
	if c == 0 {
		return 0
	}
	return 1 << (c - 1)
}

// maxBufferedInput is how many bytes a client may send behind the commands under way. It is more when these
// only travel to the store than when one of them waits in line.
func (s *session) maxBufferedInput() int {
	for w := s.waiting; w != nil; w = w.next {
		if w.alone {
			return maxBehind
		}
	}
	return maxUnsent
}

// A timerPurpose is what a timer is armed for.
type timerPurpose uint8

const (
	nothing timerPurpose = iota
	arriving
	sending
	idling
	leaving
	unknown // until it is known who the connection is
)

// armTimer has the timer fire, and notes what had happened until now.
func (s *session) armTimer(why timerPurpose, after time.Duration) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.round++
	s.armed, s.ranThen, s.sentAt = why, s.ran, s.sentBytes()
	// The timer runs on another goroutine, so it touches nothing of the session except due. The event loop
	// judges it in serveConnection.
	round := s.round
	s.timer = time.AfterFunc(after, func() {
		s.due.Store(round)
		s.wake()
	})
}

// isOverdue reports whether nothing has moved since the timer was armed, so that the connection is to be
// closed.
func (s *session) isOverdue() bool {
	// The timer compares what was noted when it was armed. Any progress since then starts a new time,
	// which is why a timeout can last up to twice as long.
	why := s.armed
	s.armed, s.timer = nothing, nil
	switch {
	case why == leaving:
		return true
	case s.link().OutboundBuffered() > 0 && s.sentBytes() == s.sentAt && why == sending:
		s.countCut("client does not take its answers", "bytes", s.link().OutboundBuffered())
		return true
	case s.loop.wakeQueue.hasSession(s): // the server is late, not the client
	case s.waiting == nil && s.unreadBytes() > 0 && s.ran == s.ranThen && why == arriving:
		s.countCut("command does not arrive", "bytes", s.unreadBytes())
		return true
	case why == unknown && s.isUnknown():
		s.countCut("no token came in time")
		return true
	case s.isQuiet() && s.ran == s.ranThen && why == idling:
		s.countCut("nothing was asked for long")
		return true
	}
	return false
}
