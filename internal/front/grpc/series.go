package grpc

import (
	"cmp"
	"slices"
	"unicode/utf8"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A seriesChoice selects the resources that have series of their own. Clients choose the names, so the order
// of names must not decide. First come the resources that a template names exactly, then those that had
// series at the last scrape, the oldest first, and then others.
type seriesChoice struct {
	gauges    *gauges
	round     int
	since     map[string]int
	ranks     [3][]capacity.ResourceStatus // by priority, at most maxSeries of each
	rest      capacity.ResourceStatus
	restCount int // number of resources in rest
}

// newSeries begins the selection for one scrape.
func (g *gauges) newSeries() *seriesChoice {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.rounds++
	return &seriesChoice{gauges: g, round: g.rounds, since: g.since}
}

// addResource takes one resource into the selection.
func (s *seriesChoice) addResource(status *capacity.ResourceStatus) {
	rank := 2
	switch {
	case status.Template != nil && status.Template.Glob == status.ID:
		rank = 0
	// Keeping the same resources from scrape to scrape makes series without gaps.
	case s.since[status.ID] > 0:
		rank = 1
	}
	// More of one rank than there are series cannot all be chosen, so no more are kept.
	if len(s.ranks[rank]) == maxSeries {
		s.addToRest(status)
		return
	}
	s.ranks[rank] = append(s.ranks[rank], *status)
}

// addToRest adds a resource to those without series.
func (s *seriesChoice) addToRest(status *capacity.ResourceStatus) {
	addStatus(&s.rest, status)
	s.restCount++
}

// sumsByLabel returns the sums by label. Names that are cut to the same label share one sum.
func (s *seriesChoice) sumsByLabel() map[string]*capacity.ResourceStatus {
	chosen := make(map[string]*capacity.ResourceStatus)
	had := make(map[string]int)
	// The oldest first: a series that Prometheus has had for long is worth more than a new one, and clients
	// that keep making up names cannot displace it.
	slices.SortStableFunc(s.ranks[1], func(a, b capacity.ResourceStatus) int {
		return cmp.Compare(s.since[a.ID], s.since[b.ID])
	})
	// By rank, until there are maxSeries; all others go into the rest.
	for _, rank := range s.ranks {
		for i := range rank {
			if len(had) == maxSeries {
				s.addToRest(&rank[i])
				continue
			}
			had[rank[i].ID] = cmp.Or(s.since[rank[i].ID], s.round)
			label := labelOf(rank[i].ID)
			if chosen[label] == nil {
				chosen[label] = new(capacity.ResourceStatus)
			}
			addStatus(chosen[label], &rank[i])
		}
	}
	if s.restCount > 0 {
		chosen[""] = &s.rest
	}
	// Two scrapes at once both read the same round before; the later to finish is kept.
	s.gauges.mu.Lock()
	defer s.gauges.mu.Unlock()
	s.gauges.since = had
	return chosen
}

// labelOf returns a name, cut if it is too long for a label.
func labelOf(name string) string {
	if len(name) <= maxLabel {
		return name
	}
	const more = "…"
	end := maxLabel - len(more)
	// A label must be valid UTF-8, so the cut is not within a character.
	for !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + more
}
