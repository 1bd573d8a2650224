// Package telemetry counts requests and connections in the same words for every protocol, and registers them
// with Prometheus. No label holds a name that a client chose, so the number of series is bounded.
package telemetry

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/prometheus/client_golang/prometheus"
)

// The protocols, as the label protocol spells them.
const (
	HTTP = "http"
	RESP = "resp"
	JARL = "jarl"
	GRPC = "grpc"
)

// Capacity is the kind of requests for leases on capacity, which are no controller's.
const Capacity = "capacity"

// A Protocol holds the metrics of one protocol. Make one with New.
type Protocol struct {
	// Hangups counts requests whose client went away before the response.
	Hangups prometheus.Counter
	// Refused counts connections beyond the limit.
	Refused prometheus.Counter

	name  string
	start time.Time
	cuts  *prometheus.CounterVec

	requests, handling, waiting *prometheus.Desc

	mu     sync.Mutex
	shards []*Shard
	named  []*Series
}

// New returns the metrics of a protocol, registered with to unless that is nil. Fronts that speak the same
// protocol and register with the same registry share them.
func New(to prometheus.Registerer, protocol string) *Protocol {
	labels := prometheus.Labels{"protocol": protocol}
	// Counters of requests are made as they are collected, from the shards: these are only described.
	desc := func(name, help string, variable ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, variable, labels)
	}
	p := &Protocol{
		name: protocol, start: time.Now(),
		Hangups: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gatehouse_hangups_total", ConstLabels: labels,
			Help: "Requests whose client disconnected before the response; their grants were taken back.",
		}),
		Refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gatehouse_connections_refused_total", ConstLabels: labels,
			Help: "Connections that were refused because of a limit.",
		}),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gatehouse_connections_cut_total", ConstLabels: labels,
			Help: "Connections that the server closed because of their client's behavior, by reason.",
		}, []string{"reason"}),
		requests: desc("gatehouse_requests_total",
			"Requests that got a response, by kind, operation and outcome.", "kind", "op", "outcome"),
		handling: desc("gatehouse_request_handling_seconds",
			"Time that requests took, not counting the time in a queue.", "kind", "op"),
		waiting: desc("gatehouse_request_waiting_seconds",
			"Time that requests waited in line (a queue) or for a slow store; disconnected clients count.",
			"kind", "op"),
	}
	if to == nil {
		return p
	}
	if err := to.Register(p); err != nil {
		// Prometheus knows a name once, so all listeners of a protocol count into the first one's.
		if known, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
			return known.ExistingCollector.(*Protocol)
		}
		panic(err) // two metrics of one name, which a test of any server finds
	}
	return p
}

// Connections registers the gauge of open connections.
func (p *Protocol) Connections(to prometheus.Registerer, open func() int64) {
	if to == nil {
		return
	}
	Gauge(prometheus.WrapRegistererWith(prometheus.Labels{"protocol": p.name}, to),
		"gatehouse_connections", "Open connections, including waiting and idle ones.", open)
}

// Gauge registers a gauge. Its value is asked for at each scrape, so that what is counted anyway is counted
// once.
func Gauge[N int | int64 | float64](to prometheus.Registerer, name, help string, value func() N) {
	to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
		func() float64 { return float64(value()) }))
}

// Truth is the value of a gauge that says whether something is so.
func Truth(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Counter registers a counter. Its value is asked for at each scrape, as that of a Gauge is.
func Counter[N int64 | uint64](to prometheus.Registerer, name, help string, value func() N) {
	to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help},
		func() float64 { return float64(value()) }))
}

// Cuts returns the counter of connections that were cut for a reason.
func (p *Protocol) Cuts(reason string) prometheus.Counter { return p.cuts.WithLabelValues(reason) }

// Now returns the time since the protocol's metrics were made. It cannot go back.
func (p *Protocol) Now() time.Duration { return time.Since(p.start) }

// Shard returns room to count in, for goroutines that do not run at once: those that count together slow one
// another down.
func (p *Protocol) Shard() *Shard {
	s := new(Shard)
	// Shards are never taken out: what they counted must stay in the sums.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shards = append(p.shards, s)
	return s
}

// Series returns the series of an operation that is no controller's.
func (p *Protocol) Series(kind, op string) *Series {
	p.mu.Lock()
	defer p.mu.Unlock()
	// There are few of these, so a search is enough.
	for _, s := range p.named {
		if s.kind == kind && s.op == op {
			return s
		}
	}
	s := &Series{kind: kind, op: op}
	p.named = append(p.named, s)
	return s
}

// A Shard counts the requests of some of a protocol's goroutines.
type Shard struct {
	series [gatehouse.Kinds][gatehouse.OpUndo]atomic.Pointer[Series]
}

// Of returns the series of an operation, which is made at the first request. Kind and op are 0 where the
// request did not say.
func (s *Shard) Of(kind gatehouse.Kind, op gatehouse.Op) *Series {
	slot := &s.series[kind][op]
	if known := slot.Load(); known != nil {
		return known
	}
	// Of two goroutines that make it at once one wins, and both count in the winner's.
	slot.CompareAndSwap(nil, &Series{kind: kind.String(), op: op.String()})
	return slot.Load()
}

// Series are the counts of one operation.
type Series struct {
	kind, op string
	outcomes [numOutcomes]atomic.Uint64
	handling histogram
	waiting  histogram
}

// Count notes n requests that ended alike, and how long each took apart from waiting in line.
func (s *Series) Count(o RequestOutcome, n uint64, took time.Duration) {
	s.outcomes[o].Add(n)
	s.handling.observeEqual(handlingBounds[:], took, n)
}

// Waited notes how long a request waited in line.
func (s *Series) Waited(d time.Duration) { s.waiting.observeEqual(waitingBounds[:], d, 1) }

// Describe implements [prometheus.Collector].
func (p *Protocol) Describe(to chan<- *prometheus.Desc) {
	p.Hangups.Describe(to)
	p.Refused.Describe(to)
	p.cuts.Describe(to)
	to <- p.requests
	to <- p.handling
	to <- p.waiting
}

// Collect implements [prometheus.Collector]. It shows what was counted and nothing else: a series for each
// outcome of each operation there is would be thousands of zeros.
func (p *Protocol) Collect(to chan<- prometheus.Metric) {
	p.Hangups.Collect(to)
	p.Refused.Collect(to)
	p.cuts.Collect(to)
	p.mu.Lock()
	// Copied, as sending to a slow reader under the lock would stop the making of shards.
	shards, named := slices.Clone(p.shards), slices.Clone(p.named)
	p.mu.Unlock()
	for _, s := range named {
		p.sendSeries(to, []*Series{s})
	}
	for kind := range gatehouse.Kinds {
		for op := range gatehouse.OpUndo {
			p.sendSeries(to, seriesOfOp(shards, kind, op))
		}
	}
}

// seriesOfOp returns the series of one operation in all shards.
func seriesOfOp(shards []*Shard, kind int, op gatehouse.Op) (all []*Series) {
	for _, shard := range shards {
		if s := shard.series[kind][op].Load(); s != nil {
			all = append(all, s)
		}
	}
	return all
}

// sendSeries sends the sum of series of one operation.
func (p *Protocol) sendSeries(to chan<- prometheus.Metric, all []*Series) {
	if len(all) == 0 {
		return
	}
	// All are of one operation, so the first names them.
	kind, op := all[0].kind, all[0].op
	for o := range numOutcomes {
		n := uint64(0)
		for _, s := range all {
			n += s.outcomes[o].Load()
		}
		// An outcome that never was is left out, as Collect says.
		if n > 0 {
			to <- prometheus.MustNewConstMetric(p.requests, prometheus.CounterValue, float64(n),
				kind, op, o.String())
		}
	}
	// The shards are read while others count in them: a request may be in the counter above and not yet in
	// the histogram. The next scrape has it in both.
	var handling, waiting histogramSum
	for _, s := range all {
		handling.addHistogram(&s.handling)
		waiting.addHistogram(&s.waiting)
	}
	handling.sendHistogram(to, handlingBounds[:], p.handling, kind, op)
	waiting.sendHistogram(to, waitingBounds[:], p.waiting, kind, op)
}

// A RequestOutcome says how a request ended, in one word: an outcome of a decision, the code of an error, or
// those that only capacity has.
type RequestOutcome uint8

// The outcomes that no decision has.
const (
	Internal RequestOutcome = RequestOutcome(gatehouse.Forbidden) + 1 + iota
	Unavailable
	Timeout
	// Redirected is a request for capacity whose answer is the address of the master.
	Redirected
	// Unreceived is a request for capacity that did not arrive whole.
	Unreceived
	// Quota is a request beyond what its user may have.
	Quota
	numOutcomes
)

// codes are the outcomes of errors.
var codes = [...]RequestOutcome{
	gatehouse.CodeInternal:    Internal,
	gatehouse.CodeInvalid:     RequestOutcome(gatehouse.Invalid),
	gatehouse.CodeExhausted:   RequestOutcome(gatehouse.Exhausted),
	gatehouse.CodeUnavailable: Unavailable,
	gatehouse.CodeTimeout:     Timeout,

	gatehouse.CodeUnauthenticated: RequestOutcome(gatehouse.Forbidden),
	gatehouse.CodeForbidden:       RequestOutcome(gatehouse.Forbidden),
	gatehouse.CodeQuota:           Quota,
}

// OutcomeOf returns the outcome of a decision, or of the error that took its place.
func OutcomeOf(d gatehouse.Outcome, err error) RequestOutcome {
	if err != nil {
		return codes[gatehouse.CodeOf(err)]
	}
	return RequestOutcome(d)
}

// outcomeNames are the names of the outcomes that no decision has.
var outcomeNames = [numOutcomes]string{
	Internal: gatehouse.CodeInternal.String(), Unavailable: gatehouse.CodeUnavailable.String(),
	Timeout: gatehouse.CodeTimeout.String(), Redirected: "redirected", Unreceived: "unreceived",
	Quota: gatehouse.CodeQuota.String(),
}

// String returns the outcome in lower case, as the label outcome spells it.
func (o RequestOutcome) String() string {
	return cmp.Or(outcomeNames[o], gatehouse.Outcome(o).String())
}

// maxBounds is the length of the longest table of bounds.
const maxBounds = 20

// handlingBounds are the upper bounds of how long requests take: a decision in memory takes microseconds,
// one at a shared store milliseconds, and one at a store that does not answer half a second.
var handlingBounds = [...]time.Duration{
	time.Microsecond, 2500 * time.Nanosecond, 5 * time.Microsecond, 10 * time.Microsecond,
	25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
}

// waitingBounds are the upper bounds of how long requests wait in line, which their clients choose.
var waitingBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// A histogram counts durations. Prometheus' own cannot count many that are equal at once, which is what makes
// one for each batch of RESP cheap.
type histogram struct {
	buckets [maxBounds + 1]atomic.Uint64 // not cumulative; the last is for what is above all bounds
	total   atomic.Int64                 // ns
}

// observeEqual notes n equal durations.
func (h *histogram) observeEqual(bounds []time.Duration, d time.Duration, n uint64) {
	i := 0
	// From below, as most requests end in the first few buckets.
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(n)
	h.total.Add(int64(d) * int64(n)) // a count of requests
}

// A histogramSum is several histograms together.
type histogramSum struct {
	buckets [maxBounds + 1]uint64
	total   int64
}

func (s *histogramSum) addHistogram(h *histogram) {
	for i := range h.buckets {
		s.buckets[i] += h.buckets[i].Load()
	}
	s.total += h.total.Load()
}

// sendHistogram sends the sum, unless nothing was observed.
func (s *histogramSum) sendHistogram(
	to chan<- prometheus.Metric, bounds []time.Duration, desc *prometheus.Desc, labels ...string,
) {
	count := uint64(0)
	below := make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		// Prometheus wants cumulative counts. The bucket above all bounds is only in the count.
		count += s.buckets[i]
		below[bound.Seconds()] = count
	}
	count += s.buckets[len(bounds)]
	// An operation whose requests never waited has no histogram of waiting.
	if count == 0 {
		return
	}
	seconds := time.Duration(s.total).Seconds()
	to <- prometheus.MustNewConstHistogram(desc, count, seconds, below, labels...)
}
