package capacity

import "time"

// Follow says that this server gets its capacity from a parent: what that answers takes the place of
// templates, each resource having one of its own. Until it has answered for a resource, clients keep what
// they say they have, and nobody gets more. Leases that were given before are forgotten.
//
// Whoever runs the server calls Asks when NextAsk has come, puts what it returns to the parent, and
// reports by Told or ParentFailed before it calls Asks again.
func (s *Server) Follow(time.Time) {
	s.up = newUpstream()
	s.forget()
}

// NextAsk is when Asks has something to ask; zero while there is nothing. It may be earlier
// after any call.
func (s *Server) NextAsk() time.Time {
	if s.up == nil {
		return time.Time{}
	}
	return s.up.next()
}

// Asks is what to ask the parent now: of each resource that is due, what the clients of each priority want
// together, and what they hold. A server that does not lead asks for nothing.
//
// What they hold is more than the sum of their leases when they want more and the last answer allows it.
// Until the parent has answered they may take so much, and no more. So the parent may give the rest to
// others at once, whether its answer arrives or not.
//
// In place of a refresh interval it says for how long this server has known all of its clients. So the
// parent knows which of two questions is the later. 0 says that there may be others who have not told what
// they hold: the parent gives away nothing of what it had given.
func (s *Server) Asks(now time.Time) []Request {
	if s.up == nil || !s.Leading(now) {
		return nil
	}
	s.Expire(now)
	var asks []Request
	var asked, unused []*supply
	for _, supply := range s.up.due(now) {
		r := s.resources[supply.resource]
		if r == nil || r.leases() == 0 {
			// While it learns there may be clients that have not told yet that they use it.
			_, learns := s.learnsOf(s.at(now), supply.resource, supply.template)
			if !learns {
				unused = append(unused, supply)
			}
			continue
		}
		ask := supply.ask(now, s.knowing(now, r), r.has.value(), r.wants())
		for _, b := range r.bands {
			ask.Demands = append(ask.Demands, Demand{b.priority, b.clients, b.wants.value()})
		}
		asks, asked = append(asks, ask), append(asked, supply)
	}
	s.up.drop(unused)
	s.up.sent(now, asked)
	if len(asked) == 0 && len(s.up.order) > 0 {
		s.up.plan(now.Add(shortestRefresh))
		s.up.close()
	}
	return asks
}

// knowing is for how long, in whole seconds, the server has known all who hold something of a resource; 0
// while it learns.
func (s *Server) knowing(now time.Time, r *resource) time.Duration {
	if s.learning(s.at(now), r) {
		return 0
	}
	return max(time.Duration(s.at(now)-s.began).Truncate(time.Second), time.Second)
}

// Unused are the resources nobody here uses any more, for the parent to be told by releasing them. Each is
// told once: what the parent does not hear of is free when this server's lease on it has run out.
func (s *Server) Unused() []string {
	if s.up == nil {
		return nil
	}
	unused := s.up.unused
	s.up.unused = nil
	return unused
}

// Told takes the parent's answers to what Asks returned last, and says when to ask again. What got no
// answer is asked for again soon, and keeps what it has meanwhile.
func (s *Server) Told(now time.Time, answers []Grant) (next time.Time) {
	if s.up == nil || len(s.up.open) == 0 {
		return s.NextAsk() // the question was from before this mastership
	}
	var wait time.Duration // until the first wants to be asked for again
	for i := range answers {
		supply := s.up.supplies[answers[i].Resource]
		if supply == nil || !supply.open {
			continue // nobody asked for it, or it was answered already
		}
		supply.take(s.up.asked, &answers[i])
		s.up.answered(now, supply)
		if next := interval(now, supply.lease); wait == 0 || next < wait {
			wait = next
		}
		if r := s.resources[supply.resource]; r != nil {
			r.adopt(supply.template)
		}
	}
	return s.up.settled(now, wait)
}

// ParentFailed says that the parent did not answer what Asks returned last, and when to ask again: after
// a while that grows with each failure.
func (s *Server) ParentFailed(now time.Time) (next time.Time) {
	if s.up == nil || len(s.up.open) == 0 {
		return s.NextAsk()
	}
	s.up.failed(now)
	return s.up.next()
}
