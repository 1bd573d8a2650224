//go:build otel

package traces

import (
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// A tracedStore is a store whose calls for traced requests are recorded.
type tracedStore struct {
	gate.Store
	tracer *recorder
	name   attribute.KeyValue
}

// Store implements Tracer.
func (t *recorder) Store(store gate.Store, name string) gate.Store {
	return &tracedStore{store, t, attribute.String("gatehouse.store", name)}
}

// Apply implements [gate.Store].
func (s *tracedStore) Apply(c *control.Change) {
	var spans []trace.Span
	// One change serves the turns of several requests, each of which has a trace of its own.
	for i := range c.Turns {
		spans = s.begin(spans, &c.Turns[i])
	}
	if spans != nil {
		// Before Apply, which may call it at once.
		done := c.Done
		c.Done = func(err error) {
			s.end(spans, err)
			done(err)
		}
	}
	s.Store.Apply(c)
}

// ApplyJoint implements [gate.Store].
func (s *tracedStore) ApplyJoint(c *control.JointChange) {
	var spans []trace.Span
	// All parts are of one request, so the first that is traced tells.
	for i := range c.Parts {
		if spans == nil {
			spans = s.begin(spans, &c.Parts[i].Turn)
		}
	}
	if spans != nil {
		// As in Apply.
		done := c.Done
		c.Done = func(err error) {
			s.end(spans, err)
			done(err)
		}
	}
	s.Store.ApplyJoint(c)
}

// begin begins a span for a turn, if its request is traced.
func (s *tracedStore) begin(spans []trace.Span, turn *control.Turn) []trace.Span {
	if turn.Command == nil {
		return spans
	}
	r := traceOf(turn.Command.Origin)
	if r == nil {
		return spans
	}
	_, span := s.tracer.tracer.Start(r.ctx, "store "+turn.Op.String(),
		trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(s.tracer.now()),
		trace.WithAttributes(s.name))
	return append(spans, span)
}

// end ends spans of one change.
func (s *tracedStore) end(spans []trace.Span, err error) {
	now := s.tracer.now()
	for _, span := range spans {
		if err != nil {
			span.SetStatus(codes.Error, err.Error())
		}
		span.End(trace.WithTimestamp(now))
	}
}
