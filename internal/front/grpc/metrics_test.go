package grpc

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/prometheus/client_golang/prometheus"
)

// figures are all metrics of a registry by name and labels, such as `doorman_server_has{resource="r"}`.
func figures(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]float64)
	for _, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue()
			value += float64(m.GetHistogram().GetSampleCount())
			all[family.GetName()+"{"+strings.Join(labels, ",")+"}"] = value
		}
	}
	return all
}

// expect compares some figures.
func expect(t *testing.T, fact string, got, want map[string]float64) {
	t.Helper()
	for name, value := range want {
		if g, ok := got[name]; !ok || g != value {
			t.Errorf("%s: %s = %v (there %t), want %v", fact, name, g, ok, value)
		}
	}
}

// Every request is counted, of all methods, and by how it ended.
func TestEveryRequestIsCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	v := newVote()
	s := start(t, Config{Metrics: registry, Election: v, Address: "here:1"}, shared(capacity.FairShare, 100))
	methods := map[string]string{"Discovery": "", get: "0a0178", server: "0a0178", release: "0a0178"}
	want := make(map[string]float64)
	for method, request := range methods {
		s.rawBytes(t, method, request) // not the master
	}
	v.tell(t, Mastership{Leading: true, Leader: "here:1"})
	for method, request := range methods {
		s.rawBytes(t, method, request)
		_, _ = s.raw(t, method, []byte{255})
		_, _ = s.raw(t, method, make([]byte, maxMessage+1))
		label := fmt.Sprintf(`{method=%q}`, method)
		op := map[string]string{
			"Discovery": "discover", get: "get", server: "get_server", release: "release",
		}[method]
		want["doorman_server_requests"+label] = 4
		want["doorman_server_request_errors"+label] = 2
		want["doorman_server_request_durations"+label] = 4
		for _, outcome := range []string{"granted", "redirected", "invalid", "unreceived"} {
			want[fmt.Sprintf(`gatehouse_requests_total{kind="capacity",op=%q,outcome=%q,protocol="grpc"}`,
				op, outcome)] = 1
		}
		want[fmt.Sprintf(`gatehouse_request_handling_seconds{kind="capacity",op=%q,protocol="grpc"}`, op)] = 4
	}
	want[`gatehouse_connections{protocol="grpc"}`] = 1
	expect(t, "each method four times", figures(t, registry), want)
}

// What the server holds is shown as it is at the moment.
func TestGauges(t *testing.T) {
	registry := prometheus.NewRegistry()
	var c clock
	s := start(t, Config{Metrics: registry, Now: c.now})
	const own = "gatehouse_capacity_"
	expect(t, "new", figures(t, registry), map[string]float64{
		own + "resources{}": 0, own + "leases{}": 0, own + "master{}": 1, own + "config_stale{}": 0,
		own + "config_timestamp_seconds{}": 0, own + "excess{}": 0, own + "learning{}": 0,
	})
	minute := time.Minute
	s.Configure(capacity.Templates{
		{Glob: "slow", Capacity: 50, Algorithm: shared(capacity.FairShare, 50, func(t *capacity.Template) {
			t.Algorithm.Learning = &minute
		}).Algorithm},
		shared(capacity.FairShare, 100),
	}, "first")
	s.ask(t, "x", want("r", 30), want("slow", 5))
	s.ask(t, "y", want("r", 90))
	_, err := s.client.GetServerCapacity(in(t), &doormanpb.GetServerCapacityRequest{
		ServerId: new("s"), Resource: []*doormanpb.ServerCapacityResourceRequest{
			{ResourceId: new("r"), Wants: []*doormanpb.PriorityBandAggregate{band(0, 5, 7)}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "with leases", figures(t, registry), map[string]float64{
		`doorman_server_has{resource="r"}`: 100, `doorman_server_wants{resource="r"}`: 127,
		`doorman_server_subclients{resource="r"}`: 7, `doorman_server_has{resource="slow"}`: 0,
		own + "resources{}": 2, own + "leases{}": 4, own + "learning{}": 1,
		own + "config_timestamp_seconds{}": 1_800_000_000,
	})
	s.ConfigFailed(errors.New("wrong"))
	stale := map[string]float64{own + "config_stale{}": 1}
	expect(t, "after a bad configuration", figures(t, registry), stale)
	s.Configure(capacity.Templates{shared(capacity.FairShare, 40)}, "second")
	expect(t, "after the capacity was cut", figures(t, registry), map[string]float64{
		own + "config_stale{}": 0, own + "excess{}": 60, own + "learning{}": 0,
	})
	c.move(time.Hour)
	s.onTimer()
	nothing := map[string]float64{own + "resources{}": 0, own + "leases{}": 0}
	expect(t, "an hour later", figures(t, registry), nothing)
}

// However many resources there are, there is a bounded number of series. What is in none of them is in
// their sum.
func TestSeriesAreBounded(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := start(t, Config{Metrics: registry}, shared(capacity.FairShare, 100))
	if _, err := s.client.GetCapacity(in(t), manyResources("x", maxSeries+20)); err != nil {
		t.Fatal(err)
	}
	got := figures(t, registry)
	series := 0
	for name := range got {
		if strings.HasPrefix(name, "doorman_server_has{") {
			series++
		}
	}
	if series != maxSeries+1 {
		t.Errorf("there are %d series of doorman_server_has, want %d", series, maxSeries+1)
	}
	expect(t, "more resources than series", got, map[string]float64{
		`doorman_server_has{resource="resource-0"}`: 10, `doorman_server_has{resource=""}`: 200,
		`doorman_server_wants{resource=""}`: 200, `doorman_server_subclients{resource=""}`: 20,
		"gatehouse_capacity_resources{}": maxSeries + 20,
	})
}
