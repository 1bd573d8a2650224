//go:build otel

package traces_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/traces"
	"github.com/gatehousehq/gatehouse/store/memory"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// A receiver is a collector: it takes spans by OTLP over HTTP.
type receiver struct {
	*httptest.Server
	mu       sync.Mutex
	spans    []*tracepb.Span
	services []string
	refuses  bool
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := new(receiver)
	r.Server = httptest.NewServer(http.HandlerFunc(r.receive))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) receive(w http.ResponseWriter, request *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var message collector.ExportTraceServiceRequest
	body, err := io.ReadAll(request.Body)
	if err == nil {
		err = proto.Unmarshal(body, &message)
	}
	if err != nil || request.URL.Path != "/v1/traces" || r.refuses {
		http.Error(w, fmt.Sprint(err), http.StatusBadRequest)
		return
	}
	for _, resource := range message.ResourceSpans {
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				r.services = append(r.services, a.Value.GetStringValue())
			}
		}
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
}

// describe returns the spans as text, sorted: name, parent and trace of each, and its name and outcome.
func (r *receiver) describe() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	names := make(map[string]string)
	for _, s := range r.spans {
		names[string(s.SpanId)] = s.Name
	}
	var all []string
	for _, s := range r.spans {
		parent := names[string(s.ParentSpanId)]
		if parent == "" {
			parent = hex.EncodeToString(s.ParentSpanId)
		}
		text := fmt.Sprintf("%s in %s of %s", s.Name, parent, hex.EncodeToString(s.TraceId)[28:])
		for _, a := range s.Attributes {
			if a.Key == "gatehouse.outcome" || a.Key == "gatehouse.name" {
				text += " " + a.Value.GetStringValue()
			}
		}
		if s.EndTimeUnixNano < s.StartTimeUnixNano {
			text += " ends before it begins"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

func open(t *testing.T, url string) traces.Tracer {
	t.Helper()
	tracer, err := traces.Open(t.Context(), traces.Config{
		URL: url, Version: "v1", Now: time.Now, Failed: func(err error) { t.Log(err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tracer
}

const (
	traceID = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00-" + traceID + "-00f067aa0ba902b7-01"
)

// A request has a span under that of its caller, and in it one for its time in line and one for each call of
// the store.
// A refusal is no error, and knows its id.
func TestSpans(t *testing.T) {
	r := newReceiver(t)
	tracer := open(t, r.URL)
	g := gate.New(tracer.Store(memory.New(memory.Config{}), "memory"), gate.Config{Observer: tracer})
	origin := func() *gatehouse.Origin { return &gatehouse.Origin{Trace: tracer.Begin(parent, "")} }
	lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "l"}
	acquire := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Holder: "a", Expires: time.Hour, Origin: origin(),
	}
	do := func(cmd gatehouse.Command) {
		if _, err := g.Do(t.Context(), lock, cmd); err != nil {
			t.Error(err)
		}
	}
	do(acquire)
	acquire.Holder, acquire.MaxWait, acquire.Origin = "b", 20*time.Millisecond, origin()
	do(acquire)
	// One that leaves, one that is not traced, and one that makes no sense.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	acquire.Origin = nil
	_, _ = g.Do(ctx, lock, acquire)
	acquire.MaxWait, acquire.Origin = 0, &gatehouse.Origin{RequestID: "x"}
	do(acquire)
	var bad gate.Request
	bad.Key, bad.Command = lock, gatehouse.Command{Op: gatehouse.OpAcquire, Origin: origin()}
	g.Submit(&bad)
	if _, err := g.DoGrant(t.Context(), gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g", Expires: time.Minute, Origin: origin(),
		Want: []gatehouse.Member{{Key: lock, Cost: 1}},
	}); err != nil {
		t.Error(err)
	}
	end := tracer.BeginCall(parent, "", "doorman.Capacity/GetCapacity")
	end(errors.New("the server is stopping"))
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	want := strings.Join([]string{
		"acquire grant in 00f067aa0ba902b7 of 4736 g refused",
		"acquire lock in 00f067aa0ba902b7 of 4736 l granted",
		"acquire lock in 00f067aa0ba902b7 of 4736 l invalid",
		"acquire lock in 00f067aa0ba902b7 of 4736 l refused",
		"doorman.Capacity/GetCapacity in 00f067aa0ba902b7 of 4736",
		"store acquire in acquire grant of 4736",
		"store acquire in acquire lock of 4736",
		"store acquire in acquire lock of 4736",
		"store acquire in acquire lock of 4736",
		"store acquire in acquire lock of 4736",
		"wait in line in acquire lock of 4736",
	}, "\n")
	got := r.describe()
	// How often a waiting request is put to the store is not fixed.
	got = strings.Join(slices.Compact(strings.Split(got, "\n")), "\n")
	want = strings.Join(slices.Compact(strings.Split(want, "\n")), "\n")
	if got != want {
		t.Errorf("the spans are\n%s, want\n%s", got, want)
	}
	if len(r.services) == 0 || r.services[0] != "gatehouse" {
		t.Errorf("the service is %v, want gatehouse", r.services)
	}
}

// What is no traceparent, or one that says not to record, is not traced.
func TestNotTraced(t *testing.T) {
	r := newReceiver(t)
	tracer := open(t, r.URL)
	for _, text := range []string{
		"", "x", "00-" + traceID + "-00f067aa0ba902b7-00", "00-" + traceID + "-0000000000000000-01",
		"00-00000000000000000000000000000000-00f067aa0ba902b7-01", parent + "-x", strings.Repeat("0", 10_000),
		"ff" + parent[2:], strings.ToUpper(parent), "00-" + traceID + "-00f067aa0ba902b7",
	} {
		if got := tracer.Begin(text, ""); got != nil {
			t.Errorf("traceparent %.80q is traced", text)
		}
		if tracer.BeginCall(text, "", "x") != nil {
			t.Errorf("a call with traceparent %.80q is traced", text)
		}
	}
	// A bad tracestate leaves the rest as it is.
	if tracer.Begin(parent, "=,=;\x00") == nil {
		t.Error("a bad tracestate keeps a request from being traced")
	}
	if err := tracer.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if got := r.describe(); got != "" {
		t.Errorf("the spans are %s, want none", got)
	}
}

// A collector that is away, or takes nothing, delays no request and no end.
func TestCollectorAway(t *testing.T) {
	r := newReceiver(t)
	r.refuses = true
	var mu sync.Mutex
	var failures []error
	tracer, err := traces.Open(t.Context(), traces.Config{URL: r.URL, Now: time.Now, Failed: func(err error) {
		mu.Lock()
		defer mu.Unlock()
		failures = append(failures, err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	const many = 10_000 // more than there is room for
	for range many {
		tracer.BeginCall(parent, "", "x")(nil)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	failed := tracer.Close(ctx)
	mu.Lock()
	defer mu.Unlock()
	if failed == nil && len(failures) == 0 {
		t.Error("nothing says that no span could be sent")
	}
}

// What a traced request costs, and one that is not.
func BenchmarkTraced(b *testing.B) {
	r := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer r.Close()
	tracer, err := traces.Open(b.Context(), traces.Config{URL: r.URL, Now: time.Now, Failed: func(error) {}})
	if err != nil {
		b.Fatal(err)
	}
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprintf("traced=%t", traced), func(b *testing.B) {
			g := gate.New(tracer.Store(memory.New(memory.Config{}), "memory"), gate.Config{Observer: tracer})
			key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1, Interval: time.Hour},
			}
			for b.Loop() {
				if traced {
					cmd.Origin = &gatehouse.Origin{Trace: tracer.Begin(parent, "")}
				}
				_, _ = g.Do(b.Context(), key, cmd)
			}
		})
	}
}
