package grpc

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/gatehousehq/gatehouse/internal/timeslice"
	"github.com/prometheus/client_golang/prometheus"
)

// maxSeries is how many resources have series of their own; see seriesChoice. The others are added up in one
// series without a resource.
const maxSeries = 1000

// maxLabel is how many bytes of a resource's name its label may have.
const maxLabel = 128

// gauges collect the state of the server at the moment of a scrape.
type gauges struct {
	server *Server

	mu     sync.Mutex
	rounds int
	since  map[string]int // the resources that had series last, with the round since which

	has, wants, clients             *prometheus.Desc // by resource
	resources, leases, learning     *prometheus.Desc
	excess, master, stale, reloaded *prometheus.Desc
}

func newGauges(s *Server) *gauges {
	of := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	own := func(name, help string) *prometheus.Desc { return of("gatehouse_capacity_"+name, help) }
	// The first three have doorman's names and labels, as its dashboards expect them.
	return &gauges{
		server:    s,
		has:       of("doorman_server_has", "Leased capacity.", "resource"),
		wants:     of("doorman_server_wants", "Wanted capacity.", "resource"),
		clients:   of("doorman_server_subclients", "Clients, including those behind servers.", "resource"),
		resources: own("resources", "Resources that clients asked for."),
		leases:    own("leases", "Leases in force."),
		learning:  own("learning", "Resources in learning mode."),
		excess:    own("excess", "Capacity leased beyond what exists, over all resources."),
		master:    own("master", "1 on the server that is master, 0 on all others."),
		stale: own("config_stale",
			"1 while a newer configuration exists that cannot be used."),
		reloaded: own("config_timestamp_seconds",
			"Time at which the configuration in use was loaded, in seconds since 1970; 0 without one."),
	}
}

// Describe implements [prometheus.Collector].
func (g *gauges) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{
		g.has, g.wants, g.clients, g.resources, g.leases, g.learning, g.excess, g.master, g.stale, g.reloaded,
	} {
		to <- desc
	}
}

// Collect implements [prometheus.Collector].
func (g *gauges) Collect(to chan<- prometheus.Metric) {
	// A thousand resources make three thousand series, each of which the registry checks as it comes.
	var work timeslice.Work
	show := func(desc *prometheus.Desc, value float64, labels ...string) {
		work.Yield()
		to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	each := func(resource string, sum *capacity.ResourceStatus) {
		show(g.has, sum.Has, resource)
		show(g.wants, sum.Wants, resource)
		show(g.clients, float64(sum.Clients), resource)
	}
	var all capacity.ResourceStatus
	resources, learning := 0, 0
	chosen := g.newSeries()
	// One pass, chunk by chunk, so that a scrape of a million resources does not hold the lock for long. The
	// sums are thus not of one instant.
	for status := range g.server.allResources() {
		chosen.addResource(status)
		addStatus(&all, status)
		resources++
		if status.Learning {
			learning++
		}
	}
	for label, sum := range chosen.sumsByLabel() {
		each(label, sum)
	}
	// After the pass, which may take a while: mastership may have ended meanwhile.
	leading, state := g.server.currentState()
	show(g.resources, float64(resources))
	show(g.leases, float64(all.Leases))
	show(g.learning, float64(learning))
	show(g.excess, all.Excess)
	show(g.master, float64(telemetry.Truth(leading)))
	show(g.stale, float64(telemetry.Truth(state.configError != nil)))
	show(g.reloaded, unixSeconds(state.changed))
}

// addStatus adds a resource to a sum.
func addStatus(sum, s *capacity.ResourceStatus) {
	sum.Has += s.Has
	sum.Wants += s.Wants
	sum.Clients += s.Clients
	sum.Leases += s.Leases
	sum.Excess += s.Excess
}

// currentState returns whether the server leads, and what it knows about itself.
func (s *Server) currentState() (leading bool, known serverState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Leading(s.now()), s.state
}

// allResources iterates over all resources in the order of their names, a chunk under the lock at a time.
func (s *Server) allResources() func(yield func(*capacity.ResourceStatus) bool) {
	return func(yield func(*capacity.ResourceStatus) bool) {
		after := ""
		for more := true; more; {
			some := s.resourcesAfter(after)
			for i := range some {
				// The lock is not held here, so the loop body may take its time.
				if !yield(&some[i]) {
					return
				}
				after = some[i].ID
			}
			// A chunk that is not full was the last. Going on after a name, not at an index, finds the place
			// again when resources have come or gone since.
			more = len(some) == chunkSize
		}
	}
}

func (s *Server) resourcesAfter(name string) []capacity.ResourceStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.core.Resources(s.now(), name, chunkSize)
}

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
	// A label must be valid UTF-8, so half a character at the cut is left out.
	return strings.ToValidUTF8(name[:maxLabel-len(more)], "") + more
}
