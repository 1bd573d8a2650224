package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
)

// This file ends requests without a waiting caller, when their time is up.

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
