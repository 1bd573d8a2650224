package resp

import "time"

// A timerPurpose is what a timer is armed for.
type timerPurpose uint8

const (
	nothing timerPurpose = iota
	arriving
	sending
	idling
	leaving
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
		_ = s.conn.Wake(nil)
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
	case s.conn.OutboundBuffered() > 0 && s.sentBytes() == s.sentAt && why == sending:
		s.countCut("client does not take its answers", "bytes", s.conn.OutboundBuffered())
		return true
	case s.loop.wakeQueue.hasSession(s): // the server is late, not the client
	case s.waiting == nil && s.conn.InboundBuffered() > 0 && s.ran == s.ranThen && why == arriving:
		s.countCut("command does not arrive", "bytes", s.conn.InboundBuffered())
		return true
	case s.isQuiet() && s.ran == s.ranThen && why == idling:
		s.countCut("nothing was asked for long")
		return true
	}
	return false
}
