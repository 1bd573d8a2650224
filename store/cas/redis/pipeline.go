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
	// senders is how many batches are under way at once in one lane.
	senders = 2
	// clusterLanes is how many lanes the slots of a cluster are spread over, so that a server that stands
	// still keeps back few requests to others.
	clusterLanes = 16
	slots        = 16384 // of a cluster
)

// A lane is where requests meet.
type lane struct {
	link *link

	mu         sync.Mutex
	queue      []*scriptCall
	underWay   [senders][]*scriptCall // the batch of each sender; nil in the place of what was answered
	senderRuns [senders]bool          // the carriers
	stalled    bool                   // the last batch was not answered: each sender risks one call
	timer      *time.Timer            // ends those whose time is up
	timerAt    time.Time              // it does; zero when it will not
}

// A scriptCall is one record that the script is to replace or read, or several, together.
type scriptCall struct {
	script    *namedScript
	key       string
	more      []string // further keys, if there are several records
	arguments []string // of the script for this key
	size      int      // about how many bytes it and its answer are
	change    *cas.RecordChange
	together  *togetherCall // room for what it has besides if it is of several, so that change is nil

	deadline time.Time
	state    atomic.Int32
	answered chan struct{}          // receives when the caller waits
	callback func(cas.Reply, error) // is called when the caller does not wait
	now      int64                  // the time of Redis in µs
	made     bool                   // the records were replaced, or are the same as those read
	answer   rueidis.RedisMessage   // otherwise
	err      error                  // instead of an answer
}

// countKeys is of how many records it is.
func (r *scriptCall) countKeys() int { return 1 + len(r.more) }

// The states of a request.
const (
	callQueued = iota
	callSent
	callOver // its caller has gone, or its callback was called
)

var errDropped = fmt.Errorf("redis: %w: the connection was given up", cas.ErrNotSent)

var errQueueFull = fmt.Errorf("redis: %w: %d requests wait already", cas.ErrNotSent, maxQueue)

// laneFor is the one for a key.
func (l *link) laneFor(key string) *lane {
	if len(l.lanes) == 1 {
		return &l.lanes[0]
	}
	// rueidis computes the slot of a key; keys of one slot, and so of one server, share a lane.
	command := l.client.B().Exists().Key(key).Build()
	return &l.lanes[int(command.Slot()%slots)*len(l.lanes)/slots]
}

// doCall has a request carried out. After an error that is not cas.ErrNotSent it may have been, or may be
// yet, and the request must not be used again.
func (l *lane) doCall(ctx context.Context, r *scriptCall) error {
	if !l.addCall(ctx, r) {
		return errQueueFull
	}
	select {
	case <-r.answered:
		return nil
	case <-ctx.Done():
	}
	// A call that is taken out of the queue here is certain not to be sent.
	if r.state.CompareAndSwap(callQueued, callOver) {
		return fmt.Errorf("redis: %w: %w", cas.ErrNotSent, ctx.Err())
	}
	return fmt.Errorf("redis: no answer in time: %w", ctx.Err())
}

// addCall has a request carried out by and by. It reports false when too many wait already.
func (l *lane) addCall(ctx context.Context, r *scriptCall) bool {
	r.deadline, _ = ctx.Deadline()
	r.state.Store(callQueued)
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.queue) >= maxQueue {
		return false
	}
	l.queue = append(l.queue, r)
	// A sender runs only while there is something to send; a free one is started here.
	for i := range l.senderRuns {
		if !l.senderRuns[i] {
			l.senderRuns[i] = true
			go l.sendBatches(i)
			break
		}
	}
	// A caller that waits has its context; only callbacks need the timer.
	if r.callback != nil {
		l.startTimer(r.deadline)
	}
	return true
}

// sendBatches sends batches until the queue is empty.
func (l *lane) sendBatches(sender int) {
	for {
		batch, late := l.takeBatch(sender)
		// Their time was up before they were sent, which is certain to have changed nothing.
		l.timeOutCalls(late, errTimeoutUnsent)
		// takeBatch has marked this sender as ended under the lock, so a call that comes now starts
		// another.
		if len(batch) == 0 && len(late) == 0 {
			return
		}
		switch {
		case len(batch) == 0:
		case l.link.dropped.Load():
			l.failCalls(batch, errDropped)
		default:
			l.noteAnswered(l.sendBatch(batch))
		}
	}
}

// noteAnswered notes whether the last batch was answered.
func (l *lane) noteAnswered(answered bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stalled = !answered
}

// takeBatch takes the next batch, and those whose time is up before they were sent. When there is neither the
// sender ends.
func (l *lane) takeBatch(sender int) (batch, late []*scriptCall) {
	l.mu.Lock()
	defer l.mu.Unlock()
	batch = l.underWay[sender][:0]
	n, most, now := 0, maxBatch, time.Now()
	// Redis may stand still. Each call sent now may end with an unknown outcome, so one at a time tests it.
	if l.stalled {
		most = 1
	}
	for ; n < len(l.queue) && len(batch) < most; n++ {
		switch r := l.queue[n]; {
		case r.deadline.IsZero() || now.Before(r.deadline):
			// A call that ended meanwhile stays out of the batch.
			if r.state.CompareAndSwap(callQueued, callSent) {
				batch = append(batch, r)
			}
		case r.callback == nil: // who waits leaves by himself
		case r.state.CompareAndSwap(callQueued, callOver):
			late = append(late, r)
		}
	}
	rest := copy(l.queue, l.queue[n:])
	// The freed end must not keep calls alive.
	clear(l.queue[rest:])
	l.queue, l.underWay[sender] = l.queue[:rest], batch
	if len(batch) == 0 && len(late) == 0 {
		l.senderRuns[sender] = false
	}
	return batch, late
}

// nothingChanged reports whether an error says that nothing was changed.
func nothingChanged(err error) bool {
	return errors.Is(err, cas.ErrRefused) || errors.Is(err, cas.ErrNotSent)
}

// What follows ends requests without a waiting caller, when their time is up.

var (
	errTimeoutUnsent = fmt.Errorf("redis: %w: %w", cas.ErrNotSent, context.DeadlineExceeded)
	errTimeoutSent   = fmt.Errorf("redis: no answer in time: %w", context.DeadlineExceeded)
)

// startTimer has the timer fire at a deadline, or before. It is called with the lock held.
func (l *lane) startTimer(deadline time.Time) {
	switch {
	// The timer fires early enough already.
	case deadline.IsZero() || !l.timerAt.IsZero() && !deadline.Before(l.timerAt):
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(deadline), l.endOverdue)
	default:
		l.timer.Reset(time.Until(deadline))
	}
	l.timerAt = deadline
}

// endOverdue ends those whose time is up, and sets the timer for the next.
func (l *lane) endOverdue() {
	l.mu.Lock()
	l.timerAt = time.Time{}
	now := time.Now()
	var unsent, silent []*scriptCall
	var next time.Time
	// Queued and sent calls fail differently: of a sent one the outcome is not known.
	look := func(some []*scriptCall) {
		for _, r := range some {
			switch {
			// nil is a call that was answered. One with a waiting caller ends by its context.
			case r == nil || r.callback == nil || r.deadline.IsZero():
			case now.Before(r.deadline):
				if next.IsZero() || r.deadline.Before(next) {
					next = r.deadline
				}
			case r.state.CompareAndSwap(callQueued, callOver):
				unsent = append(unsent, r)
			case r.state.CompareAndSwap(callSent, callOver):
				silent = append(silent, r)
			}
		}
	}
	look(l.queue)
	for _, batch := range l.underWay {
		look(batch)
	}
	l.startTimer(next)
	l.mu.Unlock()
	// Callbacks run without the lock, as they may bring the next call.
	l.timeOutCalls(unsent, errTimeoutUnsent)
	l.timeOutCalls(silent, errTimeoutSent)
}

// timeOutCalls tells those whose time is up. They are not used again: they may still be under way.
func (l *lane) timeOutCalls(requests []*scriptCall, why error) {
	for _, r := range requests {
		r.callback(cas.Reply{}, why)
	}
}
