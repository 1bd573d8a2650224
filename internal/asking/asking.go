// Package asking asks a gate on behalf of requests that others make, and knows what to do when it does not
// answer in time. It is what middleware of all protocols has in common.
package asking

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An Asker asks. Its fields must not change once it is used. It is safe for use by many goroutines.
type Asker struct {
	Gate gatehouse.Gate
	// Rule is the limit; the zero Rule is the limit in force.
	Rule gatehouse.Rule
	// MaxWait is how long a request may wait in line.
	MaxWait time.Duration
	// Within is how long the gate may take to answer, beside MaxWait; 0 means 100 ms.
	Within time.Duration
	// FailClosed has requests refused, and not let through, while the gate does not answer.
	FailClosed bool

	again   atomic.Pointer[time.Time] // before which the gate is not asked, as it has not answered
	reports reportLog
}

const (
	defaultWithin = 100 * time.Millisecond
	// pauseTimes is for how many times Within requests are decided without asking, when one has shown that
	// the gate does not answer: so most of them are not delayed.
	pauseTimes = 10
)

// A Verdict says what becomes of a request.
type Verdict struct {
	Pass bool
	// Decision is the gate's; it means nothing if there is an Err.
	Decision gatehouse.Decision
	// Err is why there is no decision. One of CodeInvalid says that the request makes no sense, and then it
	// does not pass. One of CodeTimeout says that the request's own context has ended.
	Err error
}

// AskOnce asks whether a request may pass, which may wait for MaxWait.
func (a *Asker) AskOnce(ctx context.Context, key gatehouse.Key, cost int64) Verdict {
	return a.ask(ctx, key, cost, a.MaxWait)
}

// AskInLine asks whether a request may pass now, and if not, waits in line for it, as long as its context
// lasts and at most MaxWait; a MaxWait of 0 is without limit.
func (a *Asker) AskInLine(ctx context.Context, key gatehouse.Key, cost int64) Verdict {
	v := a.ask(ctx, key, cost, 0)
	if v.Pass || v.Err != nil {
		return v
	}
	// The gate answers, so that a long silence now is the line and not an outage.
	return a.ask(ctx, key, cost, cmp.Or(a.MaxWait, gatehouse.Forever))
}

func (a *Asker) ask(ctx context.Context, key gatehouse.Key, cost int64, wait time.Duration) Verdict {
	if again := a.again.Load(); again != nil && time.Now().Before(*again) {
		return a.without(gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the gate has not answered lately",
			key))
	}
	within := ctx
	if wait != gatehouse.Forever {
		var cancel context.CancelFunc
		within, cancel = context.WithTimeout(ctx, wait+a.within())
		defer cancel()
	}
	d, err := a.Gate.Do(within, key, gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: a.rule(), Cost: max(1, cost), MaxWait: wait,
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return Verdict{Err: err}
	case err != nil && gatehouse.CodeOf(err) == gatehouse.CodeInvalid:
		return Verdict{Err: err}
	case err != nil && gatehouse.CodeOf(err) == gatehouse.CodeExhausted:
		return a.without(err) // it has answered: other names, and the next request, may find room
	case err != nil:
		again := time.Now().Add(pauseTimes * a.within())
		a.again.Store(&again)
		return a.without(err)
	}
	switch d.Outcome {
	case gatehouse.Granted, gatehouse.Refused:
		return Verdict{Pass: d.Outcome == gatehouse.Granted, Decision: d}
	case gatehouse.Exhausted, gatehouse.Deleted:
		return a.without(gatehouse.Errorf(gatehouse.CodeExhausted, "%s %s", key, d.Message))
	}
	return Verdict{Err: gatehouse.Errorf(gatehouse.CodeInvalid, "%s %s", key, d.Message)}
}

// without is the verdict where there is no decision.
func (a *Asker) without(err error) Verdict {
	// The context of the question has ended, which says nothing about that of the request.
	return Verdict{Pass: !a.FailClosed, Err: gatehouse.Errorf(gatehouse.CodeUnavailable, "%w", err)}
}

func (a *Asker) within() time.Duration { return cmp.Or(a.Within, defaultWithin) }

func (a *Asker) rule() gatehouse.Rule {
	if a.Rule == (gatehouse.Rule{}) {
		return gatehouse.Rule{Size: gatehouse.InForce}
	}
	return a.Rule
}
