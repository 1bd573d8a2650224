package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse/store/cas"
)

// This file ends requests that nobody waits for, when their time is up.

var (
	errLate   = fmt.Errorf("redis: %w: %w", cas.ErrNotSent, context.DeadlineExceeded)
	errSilent = fmt.Errorf("redis: no answer in time: %w", context.DeadlineExceeded)
)

// arm has the timer fire at a deadline, or before. It is called with the lock held.
func (l *lane) arm(deadline time.Time) {
	switch {
	case deadline.IsZero() || !l.fires.IsZero() && !deadline.Before(l.fires):
		return
	case l.timer == nil:
		l.timer = time.AfterFunc(time.Until(deadline), l.expire)
	default:
		l.timer.Reset(time.Until(deadline))
	}
	l.fires = deadline
}

// expire ends those whose time is up, and sets the timer for the next.
func (l *lane) expire() {
	l.mu.Lock()
	l.fires = time.Time{}
	now := time.Now()
	var unsent, silent []*request
	var next time.Time
	look := func(some []*request) {
		for _, r := range some {
			switch {
			case r == nil || r.answered == nil || r.deadline.IsZero():
			case now.Before(r.deadline):
				if next.IsZero() || r.deadline.Before(next) {
					next = r.deadline
				}
			case r.state.CompareAndSwap(queued, over):
				unsent = append(unsent, r)
			case r.state.CompareAndSwap(sent, over):
				silent = append(silent, r)
			}
		}
	}
	look(l.queue)
	for _, batch := range l.underWay {
		look(batch)
	}
	l.arm(next)
	l.mu.Unlock()
	l.end(unsent, errLate)
	l.end(silent, errSilent)
}

// end tells those whose time is up. They are not used again: they may still be under way.
func (l *lane) end(requests []*request, why error) {
	for _, r := range requests {
		r.answered(cas.Reply{}, why)
	}
}
