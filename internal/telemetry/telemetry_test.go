package telemetry

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
)

// gather returns one metric by its name and the values of its labels, in the order of their names.
func gather(t *testing.T, registry *prometheus.Registry, name string, values ...string) *dto.Metric {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var has []string
			for _, label := range m.GetLabel() {
				has = append(has, label.GetValue())
			}
			if family.GetName() == name && slices.Equal(has, values) {
				return m
			}
		}
	}
	t.Fatalf("there is no %s with %q", name, values)
	return nil
}

// What several goroutines count in shards of their own is shown as one.
func TestShardsAddUp(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := New(registry, RESP)
	var all sync.WaitGroup
	for range 4 {
		shard := p.Shard()
		all.Go(func() {
			for range 1000 {
				series := shard.Of(gatehouse.Lock, gatehouse.OpAcquire)
				series.Count(RequestOutcome(gatehouse.Granted), 3, time.Millisecond)
			}
		})
	}
	all.Wait()
	got := gather(t, registry, "gatehouse_requests_total", "lock", "acquire", "granted", "resp")
	if n := got.GetCounter().GetValue(); n != 12_000 {
		t.Errorf("%v requests are counted, want 12000", n)
	}
	h := gather(t, registry, "gatehouse_request_handling_seconds", "lock", "acquire", "resp").GetHistogram()
	if h.GetSampleCount() != 12_000 || h.GetSampleSum() != 12 {
		t.Errorf("%d requests took %v s, want 12000 and 12", h.GetSampleCount(), h.GetSampleSum())
	}
}

// A bucket holds what is at most its bound.
func TestBucketsHoldWhatIsAtMostTheirBound(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	s := New(registry, HTTP).Series(Capacity, "get")
	for _, d := range waitingBounds {
		s.Waited(d)
		s.Waited(d + 1)
	}
	h := gather(t, registry, "gatehouse_request_waiting_seconds", "capacity", "get", "http").GetHistogram()
	for i, bucket := range h.GetBucket() {
		if want := uint64(2*i + 1); bucket.GetCumulativeCount() != want {
			t.Errorf("at most %v s are %d, want %d",
				bucket.GetUpperBound(), bucket.GetCumulativeCount(), want)
		}
	}
	if want := uint64(2 * len(waitingBounds)); h.GetSampleCount() != want {
		t.Errorf("there are %d in all, want %d", h.GetSampleCount(), want)
	}
}

// Fronts of one protocol share what they count, such as several listeners of JARL; others do not.
func TestFrontsOfOneProtocolShareTheirMetrics(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	one, two, other := New(registry, JARL), New(registry, JARL), New(registry, GRPC)
	if one != two || one == other {
		t.Errorf("two fronts of JARL have %p and %p, one of gRPC %p", one, two, other)
	}
	if New(nil, JARL) == one {
		t.Error("a front without a registry shares the metrics of one that has one")
	}
}

// Outcomes have names of their own, which are the words of the module.
func TestOutcomesHaveNames(t *testing.T) {
	seen := make(map[string]RequestOutcome)
	for o := range numOutcomes {
		name := o.String()
		if before, taken := seen[name]; taken || name == "none" || name != strings.ToLower(name) {
			t.Errorf("outcome %d is %q, as is %d; want a word of its own", o, name, before)
		}
		seen[name] = o
	}
	for code := gatehouse.CodeInternal; code <= gatehouse.CodeTimeout; code++ {
		err := gatehouse.Errorf(code, "no")
		if got := OutcomeOf(gatehouse.Granted, err).String(); got != code.String() {
			t.Errorf("an error of code %s has the outcome %s", code, got)
		}
	}
	for o := gatehouse.Refused; o <= gatehouse.Forbidden; o++ {
		if got := OutcomeOf(o, nil).String(); got != o.String() {
			t.Errorf("a decision %s has the outcome %s", o, got)
		}
	}
}

// Counting allocates nothing once there is a series.
func TestCountingAllocatesNothing(t *testing.T) {
	p := New(nil, HTTP)
	shard := p.Shard()
	if n := testing.AllocsPerRun(100, func() {
		began := p.Now()
		series := shard.Of(gatehouse.GCRA, gatehouse.OpAcquire)
		series.Count(Internal, 1, p.Now()-began)
		series.Waited(p.Now() - began)
	}); n > 0 {
		t.Errorf("a request costs %v allocations, want none", n)
	}
}

// The names are those that Prometheus recommends.
func TestNamesAreWellFormed(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	p := New(registry, HTTP)
	p.Connections(registry, func() int64 { return 3 })
	p.Cuts("slow").Inc()
	p.Series(Capacity, "get").Count(Redirected, 1, time.Second)
	p.Series(Capacity, "get").Waited(time.Second)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}
