package asking

import (
	"context"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// ReportAnswer tells the gate what a third party has answered, if that is news to it: each answer that
// pauses, the first success after one, that nothing is left, and else once a second how much is left. It
// takes no longer than Within. A report that fails changes nothing for the request.
func (a *Asker) ReportAnswer(ctx context.Context, key gatehouse.Key, f gatehouse.Feedback) {
	if !a.reports.noteReport(key, &f, time.Now()) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.within())
	defer cancel()
	_, _ = a.Gate.Do(ctx, key, gatehouse.Command{Op: gatehouse.OpFeedback, Rule: a.rule(), Feedback: &f})
}

const (
	// successInterval is how often a success is reported that has nothing new to say.
	successInterval = time.Second

	// maxReported is how many limiters are remembered. When they are forgotten, the success after a pause may
	// not be reported, and then the next pause is longer.
	maxReported = 1024
)

// A reportLog is what was reported last of each limiter. The zero value is ready.
type reportLog struct {
	mu   sync.Mutex
	last map[gatehouse.Key]lastReport
}

// A lastReport is the last report of one limiter.
type lastReport struct {
	at     time.Time
	failed bool // it was of an answer that pauses
}

// noteReport reports whether an answer is to be reported, and notes that it was.
func (l *reportLog) noteReport(key gatehouse.Key, f *gatehouse.Feedback, now time.Time) bool {
	if !f.Pauses() && !f.Succeeds() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	last, known := l.last[key]
	switch {
	// The first success after a failure makes the next pause short again, and an empty count is news.
	case f.Pauses(), last.failed, f.Reset > 0 && f.Remaining == 0:
	case f.Reset == 0, now.Sub(last.at) < successInterval:
		return false
	}
	if l.last == nil || !known && len(l.last) >= maxReported {
		l.last = make(map[gatehouse.Key]lastReport)
	}
	l.last[key] = lastReport{at: now, failed: f.Pauses()}
	return true
}
