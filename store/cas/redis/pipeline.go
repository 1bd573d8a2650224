package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
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
	link *link

	mu       sync.Mutex
	queue    []*request
	underWay [carriers][]*request // the batch of each carrier; nil in the place of what was answered
	working  [carriers]bool       // the carriers
	stalled  bool                 // the last batch was not answered: each carrier risks one request at a time
	timer    *time.Timer          // ends those whose time is up
	fires    time.Time            // it does; zero when it will not
}

// A request is one record that the script is to replace or read.
type request struct {
	key       string
	arguments []string // of the script for this key
	size      int      // about how many bytes it and its answer are
	change    *cas.Change

	deadline time.Time
	state    atomic.Int32
	done     chan struct{}          // is told when somebody waits
	answered func(cas.Reply, error) // is told when nobody does
	now      int64                  // the time of Redis in µs
	answer   rueidis.RedisMessage
	err      error // instead of an answer
}

// The states of a request.
const (
	queued = iota
	sent
	over // nobody waits for it any more, or it called back
)

var errDropped = fmt.Errorf("redis: %w: the connection was given up", cas.ErrNotSent)

var errLong = fmt.Errorf("redis: %w: %d requests wait already", cas.ErrNotSent, maxQueue)

// lane is the one for a key.
func (l *link) lane(key string) *lane {
	if len(l.lanes) == 1 {
		return &l.lanes[0]
	}
	command := l.client.B().Exists().Key(key).Build()
	return &l.lanes[int(command.Slot()%slots)*len(l.lanes)/slots]
}

// do has a request carried out. After an error that is not swap.ErrNotSent it may have been, or may be yet,
// and the request must not be used again.
func (l *lane) do(ctx context.Context, r *request) error {
	if !l.add(ctx, r) {
		return errLong
	}
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
	}
	if r.state.CompareAndSwap(queued, over) {
		return fmt.Errorf("redis: %w: %w", cas.ErrNotSent, ctx.Err())
	}
	return fmt.Errorf("redis: no answer in time: %w", ctx.Err())
}

// add has a request carried out by and by. It reports false when too many wait already.
func (l *lane) add(ctx context.Context, r *request) bool {
	r.deadline, _ = ctx.Deadline()
	r.state.Store(queued)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxQueue {
		return false
	}
	l.queue = append(l.queue, r)
	for i := range l.working {
		if !l.working[i] {
			l.working[i] = true
			go l.carry(i)
			break
		}
	}
	if r.answered != nil {
		l.arm(r.deadline)
	}
	return true
}

// carry sends batches until nobody waits any more.
func (l *lane) carry(carrier int) {
	for {
		batch, late := l.take(carrier)
		l.end(late, errLate)
		if len(batch) == 0 && len(late) == 0 {
			return
		}
		switch {
		case len(batch) == 0:
		case l.link.dropped.Load():
			l.fail(batch, errDropped)
		default:
			l.judge(l.send(batch))
		}
	}
}

// judge notes whether the last batch was answered.
func (l *lane) judge(answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = !answered
}

// take takes the next batch, and those whose time is up before they were sent. When there is neither the
// carrier is gone.
func (l *lane) take(carrier int) (batch, late []*request) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch = l.underWay[carrier][:0]
	n, most, now := 0, maxBatch, time.Now()
	if l.stalled {
		most = 1
	}
	for ; n < len(l.queue) && len(batch) < most; n++ {
		switch r := l.queue[n]; {
		case r.deadline.IsZero() || now.Before(r.deadline):
			if r.state.CompareAndSwap(queued, sent) {
				batch = append(batch, r)
			}
		case r.answered == nil: // who waits leaves by himself
		case r.state.CompareAndSwap(queued, over):
			late = append(late, r)
		}
	}
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue, l.underWay[carrier] = l.queue[:rest], batch
	if len(batch) == 0 && len(late) == 0 {
		l.working[carrier] = false
	}
	return batch, late
}

// definite reports whether an error says that nothing was changed.
func definite(err error) bool {
	return errors.Is(err, cas.ErrRefused) || errors.Is(err, cas.ErrNotSent)
}
