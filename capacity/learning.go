package capacity

import (
	"cmp"
	"slices"
	"time"
)

// A Saved lease is one that was known when a server ended, for the next to begin with. How long it still
// lasts is a length and no instant, since the clock may be set before the next server reads it.
type Saved struct {
	Resource, Client string
	Left             time.Duration
}

// reporters are the holders of leases on a resource that were given before this server led, and that have not
// reported since.
type reporters struct {
	missing map[string]bool
	last    []reporter // in the order in which their leases end, those that have reported too
}

type reporter struct {
	client string
	expiry int64
}

// until is when the last lease ends of those who have not reported, and whether there is one that has
// not ended.
func (w *reporters) until(now int64) (end int64, pending bool) {
	for n := len(w.last); n > 0; n = len(w.last) {
		if l := w.last[n-1]; w.missing[l.client] {
			return l.expiry, l.expiry >= now
		}
		w.last = w.last[:n-1]
	}
	return 0, false
}

// learning reports whether a resource learns: its clients are given what they say they hold, because nobody
// here knows what was given before.
func (s *Server) learning(now int64, r *resource) bool {
	_, is := s.learns(now, r)
	return is
}

// learns is when learning ends at the latest, and whether it goes on.
func (s *Server) learns(now int64, r *resource) (until int64, is bool) {
	return s.learnsOf(now, r.id, r.template)
}

// learnsOf is learns for a resource that there may be no lease on.
func (s *Server) learnsOf(now int64, id string, t *Template) (until int64, is bool) {
	end := s.learnsUntil(t)
	if now >= end {
		return 0, false
	}
	if !s.restored {
		return end, true
	}
	w := s.awaited[id]
	if w == nil {
		return 0, false
	}
	last, pending := w.until(now)
	if !pending {
		delete(s.awaited, id)
	}
	return min(end, last+1), pending
}

// learnsUntil is when learning ends if nothing is known of who held leases before.
func (s *Server) learnsUntil(t *Template) int64 {
	return s.began + int64(min(t.Algorithm.LearningMode(), longestLease))
}

// whole reports whether nobody can hold a lease that this server does not know of.
func (s *Server) whole(now int64) bool {
	if s.restored {
		return true
	}
	end := s.began
	for i := range s.templates {
		end = max(end, s.learnsUntil(&s.templates[i]))
	}
	if s.up != nil {
		end = max(end, s.learnsUntil(unsupplied()))
		for _, supply := range s.up.order {
			end = max(end, s.learnsUntil(supply.template))
		}
	}
	return now >= end
}

// reported notes that a client has said what it holds.
func (s *Server) reported(client, resource string) {
	if w := s.awaited[resource]; w != nil {
		delete(w.missing, client)
	}
}

// Snapshot lists all leases, and those that were given before this server led and may still be held. It is
// for the end of a server that gives no more leases after it. It takes O(n).
//
// It is nil if the server cannot know of all: because it is not the master, or has begun without Restore
// and learns itself.
func (s *Server) Snapshot(now time.Time) []Saved {
	at := s.at(now)
	if !s.Leading(now) || !s.whole(at) {
		return nil
	}
	all := []Saved{}
	for r := range s.inOrder.all {
		for i := range r.inOrder.all {
			if n := r.rows.at(i); n.expiry >= at {
				all = append(all, Saved{r.id, n.client, time.Duration(n.expiry - at)})
			}
		}
	}
	for id, w := range s.awaited {
		for _, l := range w.last {
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

// Restore tells a server that has just begun to lead of all leases there were when the one before it
// ended in good order. Learning ends on a resource as soon as all their holders have reported or released, or
// their leases have run out, and at once where there are none. The time between the two servers does not
// count: only a clock that can be set would know it, and one that was set forward would end leases in use.
func (s *Server) Restore(now time.Time, all []Saved) {
	if !s.Leading(now) {
		return
	}
	s.restored, s.awaited, s.awaits = true, make(map[string]*reporters), 0
	for _, l := range all {
		if l.Left < 0 || s.known(l.Client, l.Resource) {
			continue
		}
		w := s.awaited[l.Resource]
		if w == nil {
			w = &reporters{missing: make(map[string]bool)}
			s.awaited[l.Resource] = w
		}
		w.missing[l.Client] = true
		end := s.at(now) + int64(min(l.Left, longestLease))
		w.last = append(w.last, reporter{l.Client, end})
		s.awaits = max(s.awaits, end)
	}
	for _, w := range s.awaited {
		slices.SortStableFunc(w.last, func(a, b reporter) int { return cmp.Compare(a.expiry, b.expiry) })
	}
}

// known reports whether a client has a lease of this server's on a resource.
func (s *Server) known(client, resource string) bool {
	r := s.resources[resource]
	if r == nil {
		return false
	}
	_, ok := r.find(client)
	return ok
}
