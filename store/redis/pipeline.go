package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/store/swap"
	"github.com/redis/rueidis"
)

// Requests go to Redis in batches: those that come while others are under way make up the next one. That
// costs less than to send each by itself, and it bounds what a Redis that stands still can keep: a caller
// leaves when its time is up, and what it asked for is not sent any more, if it was not yet.

const (
	// maxBatch is the most requests in one batch.
	maxBatch = 256
	// maxQueue is the most requests that wait for a batch in one lane. More than that are refused at once.
	maxQueue = 32_768
	// carriers is how many batches are under way at once in one lane.
	carriers = 2
	// clusterLanes is how many lanes the slots of a cluster are spread over, so that a server that stands
	// still keeps back few requests to others.
	clusterLanes = 16
	slots        = 16384 // of a cluster
)

// lanesOf is how many lanes a client has.
func lanesOf(mode rueidis.ClientMode) int {
	if mode == rueidis.ClientModeCluster {
		return clusterLanes
	}
	return 1
}

// A lane is where requests meet.
type lane struct {
	mu       sync.Mutex
	queue    []*request
	carriers int
	stalled  bool // the last batch was not answered: each carrier risks one request at a time
}

// A request is one call of the script.
type request struct {
	key       string
	arguments []string // of the script for this key

	deadline time.Time
	state    atomic.Int32 // queued, sent or left
	done     chan struct{}
	now      int64 // the time of Redis in µs
	answer   rueidis.RedisMessage
	err      error // instead of an answer
}

const (
	queued = iota
	sent
	left
)

var errLong = fmt.Errorf("redis: %w: %d requests wait already", swap.ErrNotSent, maxQueue)

// do has a request carried out. After an error that is not swap.ErrNotSent it may have been, or may be yet,
// and the request must not be used again.
func (l *link) do(ctx context.Context, r *request) error {
	on := &l.lanes[0]
	if len(l.lanes) > 1 {
		command := l.client.B().Exists().Key(r.key).Build()
		on = &l.lanes[int(command.Slot()%slots)*len(l.lanes)/slots]
	}
	r.deadline, _ = ctx.Deadline()
	r.state.Store(queued)
	on.mu.Lock()
	if len(on.queue) >= maxQueue {
		on.mu.Unlock()
		return errLong
	}
	on.queue = append(on.queue, r)
	start := on.carriers < carriers
	if start {
		on.carriers++
	}
	on.mu.Unlock()
	if start {
		go on.carry(l)
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(queued, left) {
		return fmt.Errorf("redis: %w: %w", swap.ErrNotSent, ctx.Err())
	}
	return fmt.Errorf("redis: no answer in time: %w", ctx.Err())
}

// carry sends batches until nobody waits any more.
func (l *lane) carry(link *link) {
	var batch []*request
	for {
		if batch = l.take(batch[:0]); len(batch) == 0 {
			return
		}
		l.judge(link.send(batch))
	}
}

// judge notes whether the last batch was answered.
func (l *lane) judge(answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = !answered
}

// take takes the next batch; when there is none the carrier is gone.
func (l *lane) take(batch []*request) []*request {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, most, now := 0, maxBatch, time.Now()
	if l.stalled {
		most = 1
	}
	for ; n < len(l.queue) && len(batch) < most; n++ {
		// Whose time is up leaves by itself, and knows that nothing was sent.
		r := l.queue[n]
		if (r.deadline.IsZero() || now.Before(r.deadline)) && r.state.CompareAndSwap(queued, sent) {
			batch = append(batch, r)
		}
	}
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if len(batch) == 0 {
		l.carriers--
	}
	return batch
}

// definite reports whether an error says that nothing was changed.
func definite(err error) bool {
	return errors.Is(err, swap.ErrRefused) || errors.Is(err, swap.ErrNotSent)
}
