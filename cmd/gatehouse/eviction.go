package main

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// An evictionCheck reads by what policy the store throws records away when its memory is full, and warns of
// any but none at all: an evicted record of a lock is a lock that can be acquired again.
type evictionCheck struct {
	log    *slog.Logger
	store  string // for the log
	asks   asksPolicy
	policy atomic.Pointer[string] // nil while the store has not answered
	work   sync.WaitGroup
}

// asksPolicy is a store that evicts.
type asksPolicy interface {
	EvictionPolicy(ctx context.Context) (string, error)
}

const unknownPolicy = "unknown"

// newEvictionCheck returns nil for a backend that evicts nothing.
func newEvictionCheck(log *slog.Logger, store string, backend cas.Backend) *evictionCheck {
	asks, ok := backend.(asksPolicy)
	if !ok {
		return nil
	}
	return &evictionCheck{log: log, store: store, asks: asks}
}

// run reads the policy, and logs it if it is dangerous and was another before.
func (c *evictionCheck) run(ctx context.Context) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	policy, err := c.asks.EvictionPolicy(ctx)
	if err != nil && !lasting(err) {
		return // it is asked again when the store is back
	}
	if err != nil {
		policy = unknownPolicy
	}
	before := c.policy.Swap(&policy)
	switch {
	case before != nil && *before == policy:
	case err != nil:
		c.log.Warn("it is not known whether the store evicts: its user may not ask for INFO; "+
			"maxmemory-policy must be noeviction, as an evicted record is a forgotten hold or limit",
			"store", c.store, "error", err)
	case policy != redis.NoEviction:
		c.log.Warn("the store evicts when its memory is full, and so forgets holds and limits; "+
			"set its maxmemory-policy to noeviction",
			"store", c.store, "maxmemory-policy", policy)
	}
}

// start reads the policy in the background, as after the store has come back, perhaps as another one.
func (c *evictionCheck) start(ctx context.Context) {
	if c != nil {
		c.work.Go(func() { c.run(ctx) })
	}
}

func (c *evictionCheck) close() {
	if c != nil {
		c.work.Wait()
	}
}

// health is the line that health checks show, none while nothing is wrong.
func (c *evictionCheck) health(kind string) string {
	if c == nil {
		return ""
	}
	policy := c.policy.Load()
	if policy == nil || *policy == redis.NoEviction {
		return ""
	}
	return "store " + kind + ": maxmemory-policy " + *policy + ", want " + redis.NoEviction + "\n"
}

// A lossLog logs records that the store lost and steps of its clock, not each of many.
type lossLog struct {
	log   *slog.Logger
	store string

	mu     sync.Mutex
	next   time.Time // before that no record is logged
	missed int       // records since the last that was logged
	set    time.Time // before that no step of the clock is logged
	steps  int       // since the last that was logged
}

// lossEvery is the least time between two lines.
const lossEvery = 10 * time.Second

// vanished logs a record that was gone before its time.
func (l *lossLog) vanished(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.missed++; now.Before(l.next) {
		return
	}
	l.log.Warn("the store has lost records before their time: it evicts, was restarted without them, failed "+
		"over to a replica without them, or they were deleted by hand; what they held may be granted again",
		"store", l.store, "last", key, "records", l.missed)
	l.missed, l.next = 0, now.Add(lossEvery)
}

// clockSet logs that the store's clock was set. Nodes of one store whose clocks differ look like a clock that
// is set with every answer.
func (l *lossLog) clockSet(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if l.steps++; now.Before(l.set) {
		return
	}
	l.log.Warn("the store's clock was set, or another store took over whose clock differs, or this machine "+
		"slept: forward ends holds and limits early, back lengthens them",
		"store", l.store, "step", by.Round(time.Millisecond).String(), "steps", l.steps)
	l.steps, l.set = 0, now.Add(lossEvery)
}
