package capacity

import (
	"cmp"
	"slices"
	"time"
)

// A Saved lease is one that was known when a server ended, for the next server to begin with. Left is how
// long it still lasts: a duration and not an instant, since the clock may be set before the next server reads
// it.
type Saved struct {
	Resource, Client string
	Left             time.Duration
}

// awaitedHolders are the holders of leases on a resource that were given before this server led, and which of
// them have not reported since.
type awaitedHolders struct {
	missing  map[string]bool
	byExpiry []awaitedHolder // in the order in which their leases end, those that have reported too
}

type awaitedHolder struct {
	client string
	expiry int64
}

// lastExpiry returns when the last lease of a client that has not reported ends, and whether there is one
// that has not ended.
func (w *awaitedHolders) lastExpiry(now int64) (end int64, pending bool) {
	// Clients that have reported are dropped from the end, so each is looked at once in total.
	for n := len(w.byExpiry); n > 0; n = len(w.byExpiry) {
		if l := w.byExpiry[n-1]; w.missing[l.client] {
			return l.expiry, l.expiry >= now
		}
		w.byExpiry = w.byExpiry[:n-1]
	}
	return 0, false
}

// isLearning reports whether a resource is in learning mode: its clients are given what they say they hold,
// because this server does not know what was given before.
func (s *Server) isLearning(now int64, r *resource) bool {
	_, is := s.learningEnd(now, r.id, r.template)
	return is
}

// learningEnd returns when learning mode ends at the latest on a resource, which there may be no lease on,
// and whether it is on.
func (s *Server) learningEnd(now int64, id string, t *Template) (until int64, is bool) {
	end := s.learningDeadline(t)
	if now >= end {
		return 0, false
	}
	// Without a list of saved leases only time helps: until the longest lease has ended there may be holders
	// that this server has not heard of.
	if !s.restored {
		return end, true
	}
	w := s.awaited[id]
	if w == nil {
		return 0, false
	}
	last, pending := w.lastExpiry(now)
	if !pending {
		delete(s.awaited, id)
	}
	return min(end, last+1), pending
}

// learningDeadline returns when learning mode ends if nothing is known about earlier leases.
func (s *Server) learningDeadline(t *Template) int64 {
	return s.ledSince + int64(min(t.Algorithm.LearningMode(), maxLeaseLength))
}

// knowsAllLeases reports whether no client can hold a lease that this server does not know of.
func (s *Server) knowsAllLeases(now int64) bool {
	if s.restored {
		return true
	}
	end := s.ledSince
	// A lease may be on a resource that no client has asked this server for, so the longest learning mode of
	// any template counts.
	for i := range s.templates {
		end = max(end, s.learningDeadline(&s.templates[i]))
	}
	if s.parent != nil {
		end = max(end, s.learningDeadline(awaitingParentTemplate()))
		for _, supply := range s.parent.order {
			end = max(end, s.learningDeadline(supply.template))
		}
	}
	return now >= end
}

// noteReported notes that a client has said what it holds.
func (s *Server) noteReported(client, resource string) {
	if w := s.awaited[resource]; w != nil {
		delete(w.missing, client)
	}
}

// Snapshot lists all leases, and those that were given before this server led and may still be held. It is
// meant for the end of a server that gives no more leases after it. It takes O(n).
//
// It is nil if the server cannot know all of them: because it is not the master, or has begun without Restore
// and is in learning mode itself.
func (s *Server) Snapshot(now time.Time) []Saved {
	at := s.nanosecondsAt(now)
	if !s.Leading(now) || !s.knowsAllLeases(at) {
		return nil
	}
	all := []Saved{}
	for r := range s.byName.all {
		for i := range r.byName.all {
			if n := r.records.at(i); n.expiry >= at {
				all = append(all, Saved{r.id, n.client, time.Duration(n.expiry - at)})
			}
		}
	}
	// Holders that have not reported to this server yet may do so to the next one.
	for id, w := range s.awaited {
		for _, l := range w.byExpiry {
			if w.missing[l.client] && l.expiry >= at {
				all = append(all, Saved{id, l.client, time.Duration(l.expiry - at)})
			}
		}
	}
	slices.SortFunc(all, func(a, b Saved) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Client, b.Client))
	})
	return all
}

// Restore gives a server that has just begun to lead the list of all leases there were when the one before it
// ended in good order. Learning mode ends on a resource as soon as all their holders have reported or
// released, or their leases have run out, and at once where there are none. The time between the two servers
// does not count: only a clock that can be set would know it, and one that was set forward would end leases
// in use.
func (s *Server) Restore(now time.Time, all []Saved) {
	if !s.Leading(now) {
		return
	}
	s.restored, s.awaited, s.awaitedUntil = true, make(map[string]*awaitedHolders), 0
	for _, l := range all {
		// A client that has reported before this call is no longer awaited.
		if l.Left < 0 || s.hasLease(l.Client, l.Resource) {
			continue
		}
		w := s.awaited[l.Resource]
		if w == nil {
			w = &awaitedHolders{missing: make(map[string]bool)}
			s.awaited[l.Resource] = w
		}
		// A list from a file may name a client twice: it is awaited once, until the later end.
		w.missing[l.Client] = true
		end := s.nanosecondsAt(now) + int64(min(l.Left, maxLeaseLength))
		w.byExpiry = append(w.byExpiry, awaitedHolder{l.Client, end})
		s.awaitedUntil = max(s.awaitedUntil, end)
	}
	for _, w := range s.awaited {
		slices.SortStableFunc(w.byExpiry, func(a, b awaitedHolder) int {
			return cmp.Compare(a.expiry, b.expiry)
		})
	}
}

// hasLease reports whether this server has given a client a lease on a resource.
func (s *Server) hasLease(client, resource string) bool {
	r := s.resources[resource]
	if r == nil {
		return false
	}
	_, ok := r.findLease(client)
	return ok
}
