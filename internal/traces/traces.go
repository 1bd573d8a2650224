// Package traces records what becomes of requests that are part of a trace, as spans of OpenTelemetry, and
// sends them to a collector by OTLP over HTTP. A request is traced if it comes with a traceparent that says
// so: the caller decides, so that a server that is asked a million times a second does not trace a million
// requests.
//
// A request has a span from its arrival to its decision, with one inside for its time in line, and one for
// each time that it was put to the store.
package traces

import (
	"context"
	"errors"
	"net/url"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
)

// A Config says where spans are sent, and by whom.
type Config struct {
	// URL is that of the collector, such as http://localhost:4318; without a path /v1/traces is added. Empty
	// means what the environment says, as the field does it: OTEL_EXPORTER_OTLP_ENDPOINT and its like.
	URL string
	// Version is that of the server.
	Version string
	// Now is the clock of spans.
	Now func() time.Time
	// Failed is called when spans could not be sent.
	Failed func(error)
}

// endpointVariables are the variables of the environment that say where spans are sent.
var endpointVariables = []string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"}

// IsWanted reports whether a URL or the environment says where spans are to be sent.
func IsWanted(collector string) bool {
	if collector != "" {
		return true
	}
	for _, name := range endpointVariables {
		if os.Getenv(name) != "" {
			return true
		}
	}
	return false
}

// CheckURL returns what is wrong with the URL of a collector.
func CheckURL(text string) error {
	u, err := url.Parse(text)
	// A query is refused, as the library would drop it.
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" {
		return errors.New("want the URL of a collector such as http://localhost:4318")
	}
	return nil
}

// A Tracer records the spans of requests. Open makes one, in a program that was built with the tag otel.
type Tracer interface {
	// As an observer of a gate it ends the spans of requests that are decided.
	gate.Observer
	// Begin begins the span of a request that came with the fields traceparent and tracestate of W3C. It
	// returns what an Origin has as its Trace: nil if the request is not traced.
	Begin(traceparent, tracestate string) any
	// BeginCall begins the span of a call that is decided by no gate. end ends it; it is nil if the call is
	// not traced.
	BeginCall(traceparent, tracestate, name string) (end func(error))
	// Store returns a store in front of another one that records each call for a traced request. name is what
	// the store is called in spans.
	Store(store gate.Store, name string) gate.Store
	// Close sends what was recorded, until ctx ends.
	Close(ctx context.Context) error
}

// errNotBuilt is why there is no tracer in a program that was built without the tag.
var errNotBuilt = errors.New("this program was built without traces, which take 6 % of the time to compile " +
	"it: build it with -tags otel, as the released ones are")
