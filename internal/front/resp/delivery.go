package resp

// A delivery is a grant that is taken back if not all answers up to its own are sent.
type delivery struct {
	grant
	next *delivery
}

// answered is how many bytes of answers there are, those included that are not written.
func (s *session) answered() int64 { return s.queued + int64(len(s.loop.reply.out)) }

// deliver has grants taken back whose answers are written, if those are not sent.
func (s *session) deliver(grants []grant) {
	for i := range grants {
		d := &delivery{grant: grants[i]}
		if s.undelivered == nil {
			d.next = d
		} else {
			d.next = s.undelivered.next
			s.undelivered.next = d
		}
		s.undelivered = d
	}
}

// delivered forgets the grants whose answers were sent.
func (s *session) delivered() {
	sent := s.sent()
	for d := s.oldest(); d != nil && d.end <= sent; d = s.oldest() {
		s.forget(d)
	}
}

// oldest is the grant whose answer is sent next; nil when all are.
func (s *session) oldest() *delivery {
	if s.undelivered == nil {
		return nil
	}
	return s.undelivered.next
}

// forget removes the oldest grant.
func (s *session) forget(oldest *delivery) {
	if s.undelivered == oldest {
		s.undelivered = nil
		return
	}
	s.undelivered.next = oldest.next
}
