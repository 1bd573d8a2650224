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

// An evictionCheck reads the store's eviction policy and warns of every policy except noeviction: when the
// record of a lock is evicted, the lock can be acquired a second time. A nil evictionCheck does nothing.
type evictionCheck struct {
	log    *slog.Logger
	store  string // for the log
	reader policyReader
	policy atomic.Pointer[string] // nil while the store has not answered
	checks sync.WaitGroup
}

// policyReader is a store that may evict records.
type policyReader interface {
	EvictionPolicy(ctx context.Context) (string, error)
}

const unknownPolicy = "unknown"

// newEvictionCheck returns nil for a backend that evicts nothing.
func newEvictionCheck(log *slog.Logger, store string, backend cas.Backend) *evictionCheck {
	asks, ok := backend.(policyReader)
	if !ok {
		return nil
	}
	return &evictionCheck{log: log, store: store, reader: asks}
}

// checkPolicy reads the policy, and logs a warning if it is dangerous and differs from the one before.
func (c *evictionCheck) checkPolicy(ctx context.Context) {
	if c == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// With a time of its own: the ctx of the server has none, and the store may be slow just now.
	policy, err := c.reader.EvictionPolicy(ctx)
	if err != nil && !isPermanent(err) {
		return // startCheck comes again when the store is back
	}
	if err != nil {
		// The store answers but refuses the question. That does not pass, and may hide an eviction.
		policy = unknownPolicy
	}
	before := c.policy.Swap(&policy)
	switch {
	case before != nil && *before == policy: // logged already
	case err != nil:
		c.log.Warn("whether the store evicts is unknown, because its user may not call INFO; "+
			"maxmemory-policy must be noeviction, because an evicted record is a lost hold or limit",
			"store", c.store, "error", err)
	case policy != redis.NoEviction:
		c.log.Warn("the store evicts records when its memory is full, and so loses holds and limits; "+
			"set its maxmemory-policy to noeviction",
			"store", c.store, "maxmemory-policy", policy)
	}
}

// startCheck reads the policy in the background. It is called after the store has come back: another server
// with another policy may have taken over.
func (c *evictionCheck) startCheck(ctx context.Context) {
	if c != nil {
		c.checks.Go(func() { c.checkPolicy(ctx) })
	}
}

// awaitChecks waits for the checks in the background, which use the backend, to end.
func (c *evictionCheck) awaitChecks() {
	if c != nil {
		c.checks.Wait()
	}
}

// healthLine returns the line that health checks show, or "" while nothing is wrong.
func (c *evictionCheck) healthLine(kind string) string {
	if c == nil {
		return ""
	}
	// Before the first answer nothing is known, and the line about the store itself says that it is away.
	policy := c.policy.Load()
	if policy == nil || *policy == redis.NoEviction {
		return ""
	}
	return "store " + kind + ": maxmemory-policy " + *policy + ", want " + redis.NoEviction + "\n"
}

// A lossLog logs lost records and steps of the store's clock. A restarted store may lose thousands of records
// at once, so that it writes at most one line of each sort within lossInterval, with the number since the
// line before.
type lossLog struct {
	log   *slog.Logger
	store string

	mu          sync.Mutex
	nextLoss    time.Time // when a lost record may be logged again
	lostRecords int       // since the last line about them
	nextStep    time.Time // when a step of the clock may be logged again
	steps       int       // since the last line about them
}

// lossInterval is the least time between two lines of one sort.
const lossInterval = 10 * time.Second

// logVanished logs a record that was gone before it expired.
func (l *lossLog) logVanished(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.lostRecords++
	if now.Before(l.nextLoss) {
		return
	}
	l.log.Warn("the store has lost records before their time: it evicts, was restarted without them, failed "+
		"over to a replica without them, or they were deleted by hand; what they held may be granted again",
		"store", l.store, "last", key, "records", l.lostRecords)
	// Reset after the line, so that records lost in between are part of the next one.
	l.lostRecords = 0
	l.nextLoss = now.Add(lossInterval)
}

// logClockStep logs that the store's clock was set. A store whose nodes have different clocks looks like one
// clock that is set with every answer, hence the limit on lines.
func (l *lossLog) logClockStep(by time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.steps++
	if now.Before(l.nextStep) {
		return
	}
	l.log.Warn("the store's clock was set, or another store took over whose clock differs, or this machine "+
		"slept: forward ends holds and limits early, back lengthens them",
		"store", l.store, "step", by.Round(time.Millisecond).String(), "steps", l.steps)
	l.steps = 0
	l.nextStep = now.Add(lossInterval)
}
