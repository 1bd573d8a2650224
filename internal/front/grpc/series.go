package grpc

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A seriesChoice value chooses the resources that have series of their own. Clients choose names, so the order of
// names must not decide: first come the resources that a template names exactly, then those that had series
// last, the oldest of them first, and then others.
type seriesChoice struct {
	gauges    *gauges
	round     int
	since     map[string]int
	ranks     [3][]capacity.Status // at most maxSeries of each
	rest      capacity.Status
	restCount int // resources in rest
}

// newSeries begins to choose.
func (g *gauges) newSeries() *seriesChoice {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rounds++
	return &seriesChoice{gauges: g, round: g.rounds, since: g.since}
}

// addResource notes a resource.
func (s *seriesChoice) addResource(status *capacity.Status) {
	rank := 2
	switch {
	case status.Template != nil && status.Template.Glob == status.ID:
		rank = 0
	case s.since[status.ID] > 0:
		rank = 1
	}
	if len(s.ranks[rank]) == maxSeries {
		s.addToRest(status)
		return
	}
	s.ranks[rank] = append(s.ranks[rank], *status)
}

// addToRest adds a resource to those without series.
func (s *seriesChoice) addToRest(status *capacity.Status) {
	addStatus(&s.rest, status)
	s.restCount++
}

// sumsByLabel returns the sums by label. Names that are cut to the same label have one sum.
func (s *seriesChoice) sumsByLabel() map[string]*capacity.Status {
	chosen := make(map[string]*capacity.Status)
	had := make(map[string]int)
	slices.SortStableFunc(s.ranks[1], func(a, b capacity.Status) int {
		return cmp.Compare(s.since[a.ID], s.since[b.ID])
	})
	for _, rank := range s.ranks {
		for i := range rank {
			if len(had) == maxSeries {
				s.addToRest(&rank[i])
				continue
			}
			had[rank[i].ID] = cmp.Or(s.since[rank[i].ID], s.round)
			label := labelOf(rank[i].ID)
			if chosen[label] == nil {
				chosen[label] = new(capacity.Status)
			}
			addStatus(chosen[label], &rank[i])
		}
	}
	if s.restCount > 0 {
		chosen[""] = &s.rest
	}
	s.gauges.mu.Lock()
	defer s.gauges.mu.Unlock()
	s.gauges.since = had
	return chosen
}

// labelOf is a name, cut if it is long.
func labelOf(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	const more = "…"
	end := maxLabel - len(more)
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + more
}
