package hold

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A LimiterHandle is a handle on a limiter. Its fields may be set before it is used. It is safe for use by
// many goroutines. It meets [gatehouse.Throttle].
type LimiterHandle struct {
	// Prefetch is how many tokens the handle takes at once, to decide by itself in less than a microsecond.
	// It is for a TokenBucket and a FixedWindow of one limit that is no calendar's, over a [Granter]; all
	// other handles ask each time. Tokens are used only while the window that they were taken of certainly
	// lasts, so that no more pass than the limit says; those that are not used for a tenth of the window are
	// given back. Tokens that a handle has taken are not there for others meanwhile, and it learns of another
	// limit, a close or a pause with its next tokens. If Prefetch is set, call Close in the end.
	Prefetch int64

	// Owner says in lists for whom requests wait; nil if that is not known.
	Owner *gatehouse.Owner

	named
	rule gatehouse.Rule

	chunk    atomic.Pointer[prefetched]
	fetching chan struct{} // has an element while tokens are fetched
	closed   atomic.Bool
	reports  atomic.Int64   // that held back
	returns  sync.WaitGroup // of what is given back in the background
}

var _ gatehouse.Throttle = (*LimiterHandle)(nil)

// Limiter is a handle on a limiter of a kind. The rule is in force for all from the first request on; that
// with a Size of [gatehouse.InForce] leaves it as it is.
func Limiter(g gatehouse.Gate, key gatehouse.Key, rule gatehouse.Rule) *LimiterHandle {
	return &LimiterHandle{named: named{g, key}, rule: rule, fetching: make(chan struct{}, 1)}
}

// Allow reports whether one may go now, and takes a token if so.
func (l *LimiterHandle) Allow(ctx context.Context) (bool, error) { return l.AllowN(ctx, 1) }

// AllowN reports whether n may go now, and takes their tokens if so: all of them or none.
func (l *LimiterHandle) AllowN(ctx context.Context, n int64) (bool, error) {
	if ok, err := l.takeAhead(ctx, n); ok || err != nil {
		return ok, err
	}
	d, err := l.Decide(ctx, n)
	return d.Outcome == gatehouse.Granted && err == nil, err
}

// Wait returns as soon as one may go.
func (l *LimiterHandle) Wait(ctx context.Context) error { return l.WaitN(ctx, 1) }

// WaitN returns as soon as n may go, in the order of arrival. The error is of code [gatehouse.CodeTimeout]
// when ctx ends first, and then nothing is taken, and of code [gatehouse.CodeInvalid] if n can never go.
func (l *LimiterHandle) WaitN(ctx context.Context, n int64) error {
	if ok, err := l.takeAhead(ctx, n); ok || err != nil {
		return err
	}
	_, err := l.ask(ctx, l.command(n, gatehouse.Forever))
	return err
}

// Decide asks the gate whether n may go now, and returns all there is to know. A refusal is no error, and an
// outcome that is neither that nor a grant is one.
func (l *LimiterHandle) Decide(ctx context.Context, n int64) (gatehouse.Decision, error) {
	d, err := l.gate.Do(ctx, l.key, l.command(n, 0))
	if err == nil && d.Outcome > gatehouse.Granted {
		err = outcomeError(l.key.String(), d.Outcome, d.Message)
	}
	return d, err
}

func (l *LimiterHandle) command(n int64, wait time.Duration) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpAcquire, Rule: l.rule, Cost: n, MaxWait: wait, Owner: l.Owner}
}

// Report tells the limiter what a third party has answered, which may pause it for all clients. What holds
// calls back holds back this handle at once, whether the gate could be told or not: it gives back the tokens
// that it has fetched.
func (l *LimiterHandle) Report(ctx context.Context, f gatehouse.Feedback) error {
	_, err := l.ask(ctx, gatehouse.Command{Op: gatehouse.OpFeedback, Rule: l.rule, Feedback: &f})
	if f.Pauses() || f.Reset > 0 {
		// In this order: tokens that are being fetched may have been granted before the report. If they are
		// put down behind this look, putDown sees it.
		l.reports.Add(1)
		l.retire(l.chunk.Load())
	}
	return err
}

// Close gives back the fetched tokens that are not used, and waits until the gate has them, at most five
// seconds. The handle fetches nothing more, and can be used on.
func (l *LimiterHandle) Close() {
	l.closed.Store(true)
	// A fetch in progress sees it after this, or has stored what it fetched.
	l.fetching <- struct{}{}
	l.retire(l.chunk.Load())
	<-l.fetching
	l.returns.Wait()
}
