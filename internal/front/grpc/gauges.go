package grpc

import (
	"sync"

	"github.com/gatehousehq/gatehouse/capacity"
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
	show(g.master, boolValue(leading))
	show(g.stale, boolValue(state.configError != nil))
	// In seconds, as Prometheus wants all times.
	loaded := float64(0)
	if !state.changed.IsZero() {
		loaded = float64(state.changed.UnixMilli()) / 1e3
	}
	show(g.reloaded, loaded)
}

// addStatus adds a resource to a sum.
func addStatus(sum, s *capacity.ResourceStatus) {
	sum.Has += s.Has
	sum.Wants += s.Wants
	sum.Clients += s.Clients
	sum.Leases += s.Leases
	sum.Excess += s.Excess
}

func boolValue(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
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
