package e2e

import (
	"context"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
)

// A spanReceiver is a collector of traces, to which servers send spans by OTLP over HTTP.
type spanReceiver struct {
	*httptest.Server
	mu    sync.Mutex
	names []string // and the traces they are in
}

func newSpanReceiver(t *testing.T) *spanReceiver {
	t.Helper()
	r := new(spanReceiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var message collector.ExportTraceServiceRequest
		if err == nil {
			err = proto.Unmarshal(body, &message)
		}
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, resource := range message.ResourceSpans {
			for _, scope := range resource.ScopeSpans {
				for _, span := range scope.Spans {
					r.names = append(r.names, hex.EncodeToString(span.TraceId)[:4]+" "+span.Name)
				}
			}
		}
	}))
	t.Cleanup(r.Close)
	return r
}

// spans returns what has come, sorted, each once.
func (r *spanReceiver) spans() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	slices.Sort(r.names)
	return strings.Join(slices.Compact(r.names), ", ")
}

// traceparent is the field of a request that is part of the trace that begins with four digits.
func traceparent(begin string) string {
	return "00-" + begin + "2f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
}

// Requests over HTTP and gRPC that are part of a trace have spans, which are sent at the end at the latest.
// They go on without a collector.
func TestTraces(t *testing.T) {
	t.Parallel()
	r := newSpanReceiver(t)
	s := start(t, "--traces", r.URL)
	ask := func(url, begin string) {
		url = "http://" + s.address + url
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if begin != "" {
			request.Header.Set("Traceparent", traceparent(begin))
		}
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	}
	ask("/v1/lock/l/acquire?key=a", "1111")
	ask("/v1/lock/l/acquire?key=b&maxwait=50", "2222") // parked
	ask("/v1/gcra/a/acquire?size=5&parents=gcra/b:5/1m", "3333")
	ask("/v1/lock/l/stats", "")
	leases := doormanpb.NewCapacityClient(s.dialGRPC(t))
	with := metadata.AppendToOutgoingContext(soon(t), "traceparent", traceparent("4444"))
	for _, ctx := range []context.Context{with, soon(t)} {
		if _, err := leases.Discovery(ctx, &doormanpb.DiscoveryRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	want := "1111 acquire lock, 1111 store acquire, 2222 acquire lock, 2222 store acquire, " +
		"2222 wait in line, 3333 acquire grant, 3333 store acquire, 4444 doorman.Capacity/Discovery"
	if got := r.spans(); got != want {
		t.Errorf("the spans are %s, want %s", got, want)
	}

	away := start(t, "--traces", "http://127.0.0.1:1")
	s = away
	ask("/v1/lock/l/acquire?key=a", "1111")
}

// A client's id of a request is sent back with every answer, also of one that has waited, and is in the log
// and in the explanation. Without one nothing is sent.
func TestRequestID(t *testing.T) {
	t.Parallel()
	s := start(t)
	quiet := s
	verbose := start(t, "--log-level", "debug")
	ask := func(s *server, path, id string) (got, decision string) {
		url := "http://" + s.address + path
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if id != "" {
			request.Header["X-Request-Id"] = []string{id}
		}
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.Header.Get("X-Request-Id"), resp.Header.Get("Gatehouse-Decision")
	}
	for _, path := range []string{
		"/v1/lock/l/acquire?key=a", "/v1/lock/l/acquire?key=b&maxwait=0",
		"/v1/lock/l/acquire?key=b&maxwait=50",
		"/v1/nothing", "/v1/lock/l/acquire?x=y", "/metrics", "/v1/lock", "/capacity",
	} {
		if got, _ := ask(quiet, path, ""); got != "" {
			t.Errorf("%s without an id is answered with %q", path, got)
		}
		if got, _ := ask(quiet, path, "my-id-1"); got != "my-id-1" {
			t.Errorf("%s with an id is answered with %q", path, got)
		}
	}
	for _, bad := range []string{"a b", "a\"b", "a\\b", "é", strings.Repeat("x", 129), "a\tb"} {
		if got, _ := ask(quiet, "/v1/lock/l/stats", bad); got != "" {
			t.Errorf("the bad id %q is answered with %q", bad, got)
		}
	}
	_, decision := ask(quiet, "/v1/lock/l/acquire?key=b&maxwait=0", "trace-me")
	s.wants(t, "GET decisions/"+decision, http.StatusOK, `"request":"trace-me"`)
	if got, _ := ask(verbose, "/v1/counter/c/count", "logged-1"); got != "logged-1" {
		t.Errorf("the id is answered with %q", got)
	}
	awaitLine(t, verbose.journal, "logged-1")
	if got, _ := ask(verbose, "/v1/counter/c/count", ""); got != "" {
		t.Errorf("a request without an id is answered with %q", got)
	}
}
