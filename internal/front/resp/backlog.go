package resp

import "bytes"

// A backlog is what a client has sent and could not be answered in the round in which it came: half a
// command, or what stands behind one that waits. In gnet it would stay in a ring from a pool, as large as
// what some earlier client had in it: for a few bytes a client could have a MiB that no budget knows of.
type backlog struct {
	data    []byte // all of it is one array, of which the budget has every byte
	read    int    // bytes of data that are done with
	charged int    // bytes that the budget has
}

// unreadBytes is how much has come that was not answered yet.
func (s *session) unreadBytes() int {
	n := s.link().InboundBuffered()
	if s.backlog != nil {
		n += len(s.backlog.data) - s.backlog.read
	}
	return n
}

// peekInput returns the first bytes that have come and were not answered yet, of which there are as many.
func (s *session) peekInput(n int) ([]byte, error) {
	if b := s.backlog; b != nil {
		return b.data[b.read : b.read+n], nil
	}
	return s.link().Peek(n)
}

// discardInput drops the first bytes of those that have come.
func (s *session) discardInput(n int) {
	b := s.backlog
	if b == nil {
		_, _ = s.link().Discard(n)
		return
	}
	b.read += n
	if b.read == len(b.data) {
		s.dropBacklog()
	}
}

// discardAllInput drops everything that has come.
func (s *session) discardAllInput() {
	s.dropBacklog()
	if n := s.link().InboundBuffered(); n > 0 {
		_, _ = s.link().Discard(n)
	}
}

func (s *session) dropBacklog() {
	if s.backlog != nil {
		s.server.config.Budget.Release(s.backlog.charged)
		s.backlog = nil
	}
}

// joinInput puts what has come just now behind the backlog, if there is one: a command may have its first
// half there.
func (s *session) joinInput() {
	if s.backlog != nil {
		s.moveInput(s.backlog)
	}
}

// keepInput takes what was not answered in this round out of gnet.
func (s *session) keepInput() {
	b := s.backlog
	if b == nil && s.link().InboundBuffered() == 0 {
		return
	}
	if b == nil {
		b = new(backlog)
		s.backlog = b
	}
	s.moveInput(b)
	// What is left of much must not keep its array.
	if rest := b.data[b.read:]; len(rest) < cap(b.data)/4 {
		b.data, b.read = bytes.Clone(rest), 0
	}
}

// moveInput moves what gnet has to the end of a backlog.
func (s *session) moveInput(b *backlog) {
	n := s.link().InboundBuffered()
	if n == 0 {
		return
	}
	came, err := s.link().Peek(n)
	if err != nil {
		return // it is closed
	}
	if rest := b.data[b.read:]; len(b.data)+n > cap(b.data) {
		// To move the rest each time would cost more than it is worth, when much is left.
		room := b.data[:0]
		if len(rest) > b.read || len(rest)+n > cap(room) {
			room = make([]byte, 0, len(rest)+len(rest)/4+n)
		}
		room = append(room, rest...)
		b.data, b.read = room, 0
	}
	b.data = append(b.data, came...)
	_, _ = s.link().Discard(n)
}
