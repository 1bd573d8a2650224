package main

import (
	"context"
	"log/slog"
	"net/url"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/traces"
	"github.com/prometheus/client_golang/prometheus"
)

// newObserver returns what is told of all decisions, and registers its metrics.
func newObserver(p *servePlan, metrics prometheus.Registerer) *decisions.Recorder {
	config := decisions.Config{Kept: p.decisions, Now: time.Now}
	rules := p.file.Rules
	for i := range rules {
		config.Rules = append(config.Rules, rules[i].Match)
	}
	config.RuleOf = func(key gatehouse.Key) int { return rules.Index(key) }
	o := decisions.New(config)
	metrics.MustRegister(o)
	return o
}

// observers are several observers as one. They are told in their order, so that the later ones know the
// number that the first has given to a refusal.
type observers []gate.Observer

// ObserveRequests implements [gate.Observer].
func (all observers) ObserveRequests(requests []*gate.Request, refused, waiting int) {
	for _, o := range all {
		o.ObserveRequests(requests, refused, waiting)
	}
}

// ObserveGrant implements [gate.Observer].
func (all observers) ObserveGrant(r *gate.GrantRequest, waiting int) {
	for _, o := range all {
		o.ObserveGrant(r, waiting)
	}
}

// tracing is how requests are traced. The zero value traces none.
type tracing struct {
	tracer    traces.Tracer
	begin     func(traceparent, tracestate string) any
	beginCall func(traceparent, tracestate, name string) func(error)
}

// openTracing begins to trace if the settings or the environment say where to.
func openTracing(ctx context.Context, s *settings, log *slog.Logger) (t tracing, err error) {
	if !traces.IsWanted(s.traces) {
		return t, nil
	}
	var failed peer.RareLine
	t.tracer, err = traces.Open(ctx, traces.Config{
		URL: s.traces, Version: buildVersion(), Now: time.Now, Failed: func(err error) {
			// A collector that is away fails for each batch.
			if _, ok := failed.MayLog(time.Now(), time.Minute); ok {
				log.Warn("traces could not be sent", "error", err)
			}
		},
	})
	if err != nil {
		return t, err
	}
	t.begin, t.beginCall = t.tracer.Begin, t.tracer.BeginCall
	return t, nil
}

// endTracing sends the last traces, until ctx ends.
func (t *tracing) endTracing(ctx context.Context) error {
	if t.tracer == nil {
		return nil
	}
	return t.tracer.Close(ctx)
}

// observer returns what a gate is to tell its decisions.
func (t *tracing) observer(first gate.Observer) gate.Observer {
	if t.tracer == nil {
		return first
	}
	return observers{first, t.tracer}
}

// store returns the store with its calls traced. Of its address only the scheme is told.
func (t *tracing) store(store gate.Store, address string) gate.Store {
	if t.tracer == nil {
		return store
	}
	name := address
	if u, err := url.Parse(address); err == nil && u.Scheme != "" {
		name = u.Scheme
	}
	return t.tracer.Store(store, name)
}

// newGate returns the gate in front of a store. Its decisions are told to the observer, and traced.
func newGate(store *openedStore, s *settings, t *tracing, observer gate.Observer) *gate.Gate {
	return gate.New(t.store(store.Store, s.store), gate.Config{
		Waiters: s.maxWaiters, Line: s.maxLine, FirstTicket: store.firstTicket, MaxPause: s.maxPause,
		Observer: t.observer(observer),
	})
}
