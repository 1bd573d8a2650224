package capacity

import "time"

// Follow makes this server get its capacity from a parent. What the parent answers takes the place of
// templates, one for each resource. Until it has answered for a resource, clients keep what they say they
// have, and none gets more. Leases that were given before are forgotten.
//
// The caller runs Asks when NextAsk has come, sends what it returns to the parent, and reports the result by
// Told or ParentFailed before it calls Asks again.
func (s *Server) Follow(time.Time) {
	s.parent = newUpstream()
	s.forgetAll()
}

// NextAsk returns when Asks has something to ask, the zero time while there is nothing. It may become earlier
// with any call.
func (s *Server) NextAsk() time.Time {
	if s.parent == nil {
		return time.Time{}
	}
	return s.parent.nextAsk()
}

// Asks returns what to ask the parent now: for each resource that is due, what the clients of each priority
// want together, and what they hold. A server that does not lead asks for nothing.
//
// What they hold is reported as more than the sum of their leases if they want more and the last answer
// allows it: until the parent has answered they may take up to that, and no more. So the parent may give the
// rest to others at once, whether its answer arrives or not.
//
// The refresh interval of the request carries for how long this server has known all of its clients. From it
// the parent knows which of two requests is the later. 0 says that there may be clients that have not
// reported what they hold; the parent then gives away nothing of what it had given.
func (s *Server) Asks(now time.Time) []Request {
	if s.parent == nil || !s.Leading(now) {
		return nil
	}
	// Leases that have run out would inflate the totals.
	s.Expire(now)
	var asks []Request
	var asked, unused []*supply
	for _, supply := range s.parent.takeDue(now) {
		r := s.resources[supply.resource]
		if r == nil || r.leaseCount() == 0 {
			// In learning mode there may be clients that use it and have not reported yet.
			_, learns := s.learningEnd(s.nanosecondsAt(now), supply.resource, supply.template)
			if !learns {
				unused = append(unused, supply)
			}
			continue
		}
		ask := supply.buildRequest(now, s.knownFor(now, r), r.has.value(), r.totalWants())
		// The parent gets one demand per priority, as if this server were one client per band.
		for _, b := range r.bands {
			ask.Demands = append(ask.Demands, Demand{b.priority, b.clients, b.wants.value()})
		}
		asks, asked = append(asks, ask), append(asked, supply)
	}
	// These are not in the request any more. The caller releases them at the parent, see Unused.
	s.parent.dropUnused(unused)
	s.parent.noteSent(now, asked)
	// Everything due is unused but cannot be dropped while its resource is in learning mode. Look again in a
	// second.
	if len(asked) == 0 && len(s.parent.order) > 0 {
		s.parent.planFullAsk(now.Add(shortestRefresh))
		s.parent.endRequest()
	}
	return asks
}

// knownFor returns for how long, in whole seconds, the server has known all holders of a resource; 0 in
// learning mode.
func (s *Server) knownFor(now time.Time, r *resource) time.Duration {
	if s.isLearning(s.nanosecondsAt(now), r) {
		return 0
	}
	return max(time.Duration(s.nanosecondsAt(now)-s.ledSince).Truncate(time.Second), time.Second)
}

// Unused returns the resources that no client here uses any more, which the caller releases at the parent.
// Each is returned once. If the release is lost, the parent has it back when this server's lease has run out.
func (s *Server) Unused() []string {
	if s.parent == nil {
		return nil
	}
	unused := s.parent.unused
	s.parent.unused = nil
	return unused
}

// Told applies the parent's answers to what Asks returned last, and returns when to ask again. What got no
// answer is asked for again soon, and keeps what it has meanwhile.
func (s *Server) Told(now time.Time, answers []Grant) (next time.Time) {
	if s.parent == nil || len(s.parent.outstanding) == 0 {
		return s.NextAsk() // the request was from before this mastership
	}
	// The shortest interval counts for all: they are asked for together, in one request.
	var wait time.Duration // until the first wants to be asked for again
	for i := range answers {
		supply := s.parent.supplies[answers[i].Resource]
		if supply == nil || !supply.outstanding {
			continue // not asked for, or answered already
		}
		supply.applyGrant(s.parent.askedAt, &answers[i])
		s.parent.noteAnswer(now, supply)
		if next := askInterval(now, supply.lease); wait == 0 || next < wait {
			wait = next
		}
		if r := s.resources[supply.resource]; r != nil {
			r.setTemplate(supply.template)
		}
	}
	return s.parent.planAfterAnswers(now, wait)
}

// ParentFailed notes that the parent did not answer what Asks returned last, and returns when to ask again:
// after a pause that grows with each failure.
func (s *Server) ParentFailed(now time.Time) (next time.Time) {
	if s.parent == nil || len(s.parent.outstanding) == 0 {
		return s.NextAsk()
	}
	s.parent.planAfterFailure(now)
	return s.parent.nextAsk()
}
