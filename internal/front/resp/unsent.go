package resp

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
