//go:build otel

package traces

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// A recorder implements Tracer.
type recorder struct {
	provider *sdktrace.TracerProvider
	tracer   trace.Tracer
	now      func() time.Time
}

// Open returns a tracer. It does not connect yet: spans are sent together, every few seconds, and are lost if
// they cannot be.
func Open(ctx context.Context, config Config) (Tracer, error) {
	var options []otlptracehttp.Option
	if config.URL != "" {
		u, err := url.Parse(config.URL)
		if err != nil {
			return nil, fmt.Errorf("reading the URL of the collector: %w", err)
		}
		// The library would send to the URL as it is, and collectors take traces at this path.
		if strings.Trim(u.Path, "/") == "" {
			u.Path = "/v1/traces"
		}
		options = append(options, otlptracehttp.WithEndpointURL(u.String()))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("preparing to send traces: %w", err)
	}
	// The environment comes last, so that OTEL_SERVICE_NAME and its like win.
	about, err := resource.New(ctx, resource.WithAttributes(attribute.String("service.name", "gatehouse"),
		attribute.String("service.version", config.Version)), resource.WithFromEnv(),
		resource.WithTelemetrySDK(), resource.WithHost())
	if err != nil {
		return nil, fmt.Errorf("preparing to send traces: %w", err)
	}
	// The library has no other way to tell that spans are lost.
	otel.SetErrorHandler(otel.ErrorHandlerFunc(config.Failed))
	// NeverSample, since callers decide: only what comes with a sampled traceparent is recorded.
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	return &recorder{
		provider: provider, tracer: provider.Tracer("github.com/gatehousehq/gatehouse"), now: config.Now,
	}, nil
}

// Close implements Tracer.
func (t *recorder) Close(ctx context.Context) error { return t.provider.Shutdown(ctx) }

// A requestTrace is the span of a request, as an Origin has it.
type requestTrace struct {
	ctx   context.Context // with the span
	span  trace.Span
	began time.Time
}

// Begin implements Tracer.
func (t *recorder) Begin(traceparent, tracestate string) any {
	carrier := propagation.MapCarrier{"traceparent": traceparent, "tracestate": tracestate}
	parent := propagation.TraceContext{}.Extract(context.Background(), carrier)
	// Most requests end here, and cost no span.
	if !trace.SpanContextFromContext(parent).IsSampled() {
		return nil
	}
	began := t.now()
	// Its name is known at the end, as is all else about it.
	ctx, span := t.tracer.Start(parent, "gatehouse", trace.WithSpanKind(trace.SpanKindServer),
		trace.WithTimestamp(began))
	return &requestTrace{ctx, span, began}
}

// BeginCall implements Tracer.
func (t *recorder) BeginCall(traceparent, tracestate, name string) (end func(error)) {
	// Begin returns nil without a type for what is not traced.
	r, ok := t.Begin(traceparent, tracestate).(*requestTrace)
	if !ok {
		return nil
	}
	r.span.SetName(name)
	return func(err error) {
		if err != nil {
			r.span.SetStatus(codes.Error, err.Error())
		}
		r.span.End(trace.WithTimestamp(t.now()))
	}
}

// traceOf returns the trace of a request, nil if it has none.
func traceOf(origin *gatehouse.Origin) *requestTrace {
	if origin == nil {
		return nil
	}
	// A program that uses the gate may have put something else there.
	r, _ := origin.Trace.(*requestTrace)
	return r
}

// ObserveRequests implements [gate.Observer].
func (t *recorder) ObserveRequests(requests []*gate.Request, _, _ int) {
	for _, r := range requests {
		if traced := traceOf(r.Command.Origin); traced != nil {
			t.endRequest(traced, r)
		}
	}
}

// endRequest ends the span of a request that is decided.
func (t *recorder) endRequest(traced *requestTrace, r *gate.Request) {
	d := r.Decision
	e := ending{key: r.Key, op: r.Command.Op, outcome: d.Outcome, number: d.Number, err: r.Err}
	// Without a decision its figures, and the instant in it, mean nothing.
	if r.Err == nil {
		e.waited = r.WaitedUntil(d.At)
		e.more = []attribute.KeyValue{
			attribute.Int64("gatehouse.cost", r.Command.Cost), attribute.Int64("gatehouse.limit", d.Limit),
			attribute.Int64("gatehouse.remaining", d.Remaining),
		}
	}
	t.end(traced, &e)
}

// ObserveGrant implements [gate.Observer].
func (t *recorder) ObserveGrant(r *gate.GrantRequest, _ int) {
	traced := traceOf(r.Command.Origin)
	if traced == nil {
		return
	}
	d := &r.Decision
	e := ending{
		key: gatehouse.Key{Kind: gatehouse.Grant, Name: r.Command.ID}, op: r.Command.Op, outcome: d.Outcome,
		number: d.Number, err: r.Err,
	}
	// As in endRequest. Controllers are in attributes alone: names of spans should be few.
	if r.Err == nil {
		e.waited = r.WaitedUntil(d.At)
		names := make([]string, len(d.Want))
		for i := range d.Want {
			names[i] = d.Want[i].Key.String()
		}
		e.more = []attribute.KeyValue{attribute.StringSlice("gatehouse.names", names)}
		if d.Binding >= 0 && d.Binding < len(names) {
			e.more = append(e.more, attribute.String("gatehouse.binding", names[d.Binding]))
		}
	}
	t.end(traced, &e)
}

// An ending is how a request ended.
type ending struct {
	key     gatehouse.Key
	op      gatehouse.Op
	outcome gatehouse.Outcome
	number  uint64
	waited  time.Duration
	err     error
	more    []attribute.KeyValue
}

// end ends the span of a request, with one for the time in line, which ends now too. A refusal is no error.
func (t *recorder) end(r *requestTrace, e *ending) {
	now := t.now()
	if e.waited > 0 {
		since := now.Add(-e.waited)
		if since.Before(r.began) { // the store's clock is another one
			since = r.began
		}
		_, wait := t.tracer.Start(r.ctx, "wait in line", trace.WithTimestamp(since))
		wait.End(trace.WithTimestamp(now))
	}
	// Without the name of a controller, as collectors group spans by that of the span.
	r.span.SetName(e.op.String() + " " + e.key.Kind.String())
	r.span.SetAttributes(e.more...)
	r.span.SetAttributes(attribute.String("gatehouse.kind", e.key.Kind.String()),
		attribute.String("gatehouse.name", e.key.Name), attribute.String("gatehouse.op", e.op.String()))
	if e.err != nil {
		r.span.SetStatus(codes.Error, e.err.Error())
		r.span.SetAttributes(attribute.String("gatehouse.outcome", gatehouse.CodeOf(e.err).String()))
	} else {
		r.span.SetAttributes(attribute.String("gatehouse.outcome", e.outcome.String()))
	}
	if e.number != 0 {
		r.span.SetAttributes(attribute.String("gatehouse.decision", gatehouse.DecisionID(e.number)))
	}
	r.span.End(trace.WithTimestamp(now))
}
