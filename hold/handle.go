package hold

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// defaultTerm is how long a hold lasts if nothing else is said: what a program that died keeps from others.
const defaultTerm = 30 * time.Second

// A Handle acquires holds of a semaphore, a lock or a grant. Its fields may be set before it is used. It
// is safe for use by many goroutines, each of which gets a hold of its own.
type Handle struct {
	// Term is how long a hold lasts at the server after its last renewal; 0 means 30 seconds. A shorter one
	// frees sooner what a dead program held, and bears shorter outages.
	Term time.Duration

	// Cost is how many slots of a semaphore a hold takes; 0 means 1.
	Cost int64

	// Owner says in lists for whom the holds are; nil if that is not known.
	Owner *gatehouse.Owner

	what subject
}

// Semaphore is a handle on a semaphore of some slots; [gatehouse.InForce] leaves their number as it is.
func Semaphore(g gatehouse.Gate, name string, size int64) *Handle {
	return &Handle{what: &single{
		gate: g, key: gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}, size: size,
	}}
}

// Lock is a handle on a lock.
func Lock(g gatehouse.Gate, name string) *Handle {
	return &Handle{what: &single{gate: g, key: gatehouse.Key{Kind: gatehouse.Lock, Name: name}}}
}

// Grant is a handle on several names at once: slots, locks and tokens of limiters, all of them or none.
func Grant(g Granter, want ...gatehouse.Member) *Handle {
	return &Handle{what: &joint{gate: g, want: want}}
}

// Acquire returns a hold as soon as it is granted, in the order of arrival, however long that takes. The
// error is of code [gatehouse.CodeTimeout] when ctx ends first, and then nothing is held. The hold does not
// end with ctx: its Context has the values of ctx alone.
func (h *Handle) Acquire(ctx context.Context) (*Hold, error) {
	hold, _, err := h.acquireWithin(ctx, gatehouse.Forever)
	return hold, err
}

// TryAcquire returns a hold if it is granted at once. ok is false if it is not.
func (h *Handle) TryAcquire(ctx context.Context) (hold *Hold, ok bool, err error) {
	return h.acquireWithin(ctx, 0)
}

// Do calls work with a hold, and a context that ends with ctx or when the hold is lost. It returns what work
// does, and the error of the release: ErrLost if the hold was lost meanwhile.
func (h *Handle) Do(ctx context.Context, work func(ctx context.Context) error) (err error) {
	hold, err := h.Acquire(ctx)
	if err != nil {
		return err
	}
	within, cancel := context.WithCancelCause(hold.Context())
	// The context of a hold does not end with ctx, and that of work has to.
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	defer func() {
		stop()
		cancel(nil)
		err = errors.Join(err, hold.Release())
	}()
	return work(within)
}

// term is how long a hold lasts.
func (h *Handle) term() time.Duration {
	if h.Term == 0 {
		return defaultTerm
	}
	return h.Term
}

// acquireWithin acquires a hold that may wait for so long.
func (h *Handle) acquireWithin(
	ctx context.Context, wait time.Duration,
) (hold *Hold, ok bool, err error) {
	for {
		// Each try has a key of its own: what an earlier one may still be granted is given back by its key.
		hold = &Hold{what: h.what, key: rand.Text(), term: h.term()}
		sent := time.Now()
		a, err := h.what.acquire(ctx, h, ask{key: hold.key, wait: wait})
		switch {
		case err != nil:
			hold.giveBack(err)
			return nil, false, err
		case a.outcome == gatehouse.Refused:
			return nil, false, nil
		case a.outcome != gatehouse.Granted:
			return nil, false, a.failure(h.what)
		}
		hold.fence = a.fence
		// It may have been granted at any time since it was asked for. If that is long ago, a renewal tells
		// what is left.
		if time.Since(sent) > a.lasts/confirmPart {
			sent, a, err = hold.confirm(ctx)
			if err != nil {
				hold.giveBack(err)
				return nil, false, err
			}
		}
		if a.outcome == gatehouse.Granted {
			hold.start(ctx, sent, a.lasts)
			return hold, true, nil
		}
		// It was lost before it was known: a caller that waits begins again.
		if wait == 0 {
			return nil, false, nil
		}
	}
}

// confirmPart is which part of its term a hold may have lost on its way.
const confirmPart = 8

// An ask is what an acquire has besides the handle.
type ask struct {
	key  string
	wait time.Duration
}

// A holdAnswer is what a gate answered about a hold.
type holdAnswer struct {
	outcome gatehouse.Outcome
	fence   uint64
	lasts   time.Duration // from the decision on
	message string
}

// failure is the error that an outcome other than a grant and a refusal is.
func (a *holdAnswer) failure(s subject) error {
	return outcomeError(s.String(), a.outcome, a.message)
}

// outcomeCodes are the codes of the errors that outcomes become where they are not handled.
var outcomeCodes = map[gatehouse.Outcome]gatehouse.Code{
	gatehouse.Refused: gatehouse.CodeTimeout, gatehouse.Conflict: gatehouse.CodeInvalid,
	gatehouse.Deleted: gatehouse.CodeUnavailable, gatehouse.Missing: gatehouse.CodeInvalid,
	gatehouse.Invalid: gatehouse.CodeInvalid, gatehouse.Exhausted: gatehouse.CodeExhausted,
	gatehouse.Forbidden: gatehouse.CodeForbidden,
}

// outcomeError is the error that an outcome is.
func outcomeError(subject string, o gatehouse.Outcome, message string) error {
	if message == "" {
		message = o.String()
	}
	return gatehouse.Errorf(outcomeCodes[o], "%s: %s", subject, message)
}

// A subject is what is held.
type subject interface {
	String() string
	acquire(ctx context.Context, h *Handle, a ask) (holdAnswer, error)
	renew(ctx context.Context, h *Hold) (holdAnswer, error)
	// release ends a hold; costs are what a grant has cost.
	release(ctx context.Context, h *Hold, costs []gatehouse.MemberCost) (holdAnswer, error)
}
