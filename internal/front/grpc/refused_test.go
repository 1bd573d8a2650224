package grpc

import (
	"bytes"
	"fmt"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// names asks for resources, and returns those that are in the answer.
func (s *tested) names(t *testing.T, client string, resources ...string) ([]string, error) {
	t.Helper()
	request := &doormanpb.GetCapacityRequest{ClientId: &client}
	for _, r := range resources {
		request.Resource = append(request.Resource, want(r, 3))
	}
	answer, err := s.client.GetCapacity(in(t), request)
	names := []string{}
	for _, r := range answer.GetResponse() {
		names = append(names, r.GetResourceId())
		if got := r.GetGets().GetCapacity(); got != 3 {
			t.Errorf("%s gets %v of %s, want 3", client, got, r.GetResourceId())
		}
	}
	return names, err
}

// A limit that refuses some resources of a request leaves the others alone.
func TestRefusedResourceIsLeftOut(t *testing.T) {
	registry := prometheus.NewRegistry()
	config := Config{Metrics: registry, Limits: capacity.Limits{Resources: 3, Leases: 1}}
	s := start(t, config, shared(capacity.FairShare, 100))
	steps := []struct {
		client    string
		asks, got []string
	}{
		{"x", []string{"a"}, []string{"a"}},
		{"y", []string{"a", "b", "c", "d", "b"}, []string{"b", "c", "b"}},
		{"x", []string{"b", "a"}, []string{"a"}},
		{"x", []string{"e", "d"}, nil},
		{"z", []string{"a"}, nil},
		{"y", nil, []string{}},
	}
	for _, c := range steps {
		got, err := s.names(t, c.client, c.asks...)
		switch {
		case c.got == nil && status.Code(err) != codes.ResourceExhausted:
			t.Errorf("%s asks for %s = %s, %v, want ResourceExhausted", c.client, c.asks, got, err)
		case c.got != nil && (err != nil || !reflect.DeepEqual(got, c.got)):
			t.Errorf("%s asks for %s = %s, %v, want %s", c.client, c.asks, got, err, c.got)
		}
	}
	_, err := s.names(t, "x", "e", "d")
	want := `resource[0]: resource "e" is new, and the server has 3, want at most 3`
	if said := status.Convert(err).Message(); said != want {
		t.Errorf("nothing could be decided: %s, want %s", said, want)
	}
	expect(t, "with refusals", figures(t, registry), map[string]float64{
		"gatehouse_capacity_refused_resources_total{}":                                           8,
		`gatehouse_requests_total{kind="capacity",op="get",outcome="granted",protocol="grpc"}`:   4,
		`gatehouse_requests_total{kind="capacity",op="get",outcome="exhausted",protocol="grpc"}`: 3,
	})
}

// The same for servers below: one priority too many costs one resource.
func TestRefusedResourceOfAServerIsLeftOut(t *testing.T) {
	s := start(t, Config{Limits: capacity.Limits{Priorities: 2}}, shared(capacity.FairShare, 100))
	answer, err := s.client.GetServerCapacity(in(t), &doormanpb.GetServerCapacityRequest{
		ServerId: new("s"),
		Resource: []*doormanpb.ServerCapacityResourceRequest{
			{ResourceId: new("a"), Wants: bands(2)},
			{ResourceId: new("b"), Wants: bands(3)},
			{ResourceId: new("c"), Wants: bands(1)},
		},
	})
	if err != nil || len(answer.GetResponse()) != 2 || answer.GetResponse()[1].GetResourceId() != "c" {
		t.Errorf("one of too many priorities among three = %v, %v, want a and c answered", answer, err)
	}
}

// More than one turn of a large request is refused: what is behind it is answered.
func TestManyRefusedResourcesAreLeftOut(t *testing.T) {
	s := start(t, Config{Limits: capacity.Limits{Resources: 2}}, shared(capacity.FairShare, 100))
	if _, err := s.names(t, "x", "first", "last"); err != nil {
		t.Fatal(err)
	}
	all := []string{"first"}
	for i := range 3 * chunkSize {
		all = append(all, fmt.Sprint("between-", i))
	}
	got, err := s.names(t, "x", append(all, "last")...)
	if err != nil || !reflect.DeepEqual(got, []string{"first", "last"}) {
		t.Errorf("%d resources = %s, %v, want answers for the two there are", len(all)+1, got, err)
	}
}

func TestRefusedResourceIsLeftOutInJSON(t *testing.T) {
	r := newWebRig(t, Config{Limits: capacity.Limits{Resources: 1}})
	r.Configure(some(), "v1")
	const lease = `{"expiry_time":1800000020,"refresh_interval":5,"capacity":3},"safe_capacity":2.5}`
	for _, talk := range [][2]string{
		{`[{"resource_id":"a","wants":3},{"resource_id":"b","wants":3}]`,
			`200 {"response":[{"resource_id":"a","gets":` + lease + `]}`},
		{`[{"resource_id":"b","wants":3}]`,
			`503 resource[0]: resource "b" is new, and the server has 1, want at most 1`},
	} {
		got, _ := r.ask(t, getPath+`{"client_id":"me","resource":`+talk[0]+`}`)
		if got != talk[1] {
			t.Errorf("%s =\n%s, want\n%s", talk[0], got, talk[1])
		}
	}
}

// Whoever is refused comes again and again. The log says it once in a while.
func TestRefusalsAreToldNowAndThen(t *testing.T) {
	var c clock
	var log bytes.Buffer
	s := start(t, Config{
		Log: slog.New(slog.NewTextHandler(&log, nil)), Now: c.now, Limits: capacity.Limits{Resources: 1},
	}, shared(capacity.FairShare, 100))
	for _, step := range []struct {
		wait  time.Duration
		lines int
	}{{0, 1}, {0, 1}, {refusalLogInterval - 1, 1}, {1, 2}, {time.Second, 2}} {
		c.move(step.wait)
		if _, err := s.names(t, "x", "a", "b"); err != nil {
			t.Fatal(err)
		}
		if got := strings.Count(log.String(), "a limit refused resources"); got != step.lines {
			t.Errorf("%s later the log says it %d times, want %d:\n%s", step.wait, got, step.lines, &log)
		}
	}
	if !strings.Contains(log.String(), "client=x refused=1 of=2") {
		t.Errorf("the log says\n%s, want who was refused how much", &log)
	}
}

// What makes no sense is refused before anything is decided, also beside what a limit refuses.
func TestInvalidBeatsRefused(t *testing.T) {
	s := start(t, Config{Limits: capacity.Limits{Resources: 1}}, shared(capacity.FairShare, 100))
	_, err := s.client.GetCapacity(in(t), &doormanpb.GetCapacityRequest{
		ClientId: new("x"), Resource: []*doormanpb.ResourceRequest{want("a", 1), want("b", 1), want("c", -1)},
	})
	if status.Code(err) != codes.InvalidArgument || len(s.all()) != 0 {
		t.Errorf("one resource of -1 = %v and %v, want InvalidArgument and nothing", err, s.all())
	}
}
