package hold

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/backoff"
)

// ErrLost says that a hold was lost before it was released: it could not be renewed in time, it was evicted,
// or its name was deleted. Errors about such a hold wrap it, and say which of these it was.
var ErrLost = errors.New("the hold is lost")

// errReleased is why the Context of a hold has ended that was released.
var errReleased = errors.New("the hold is released")

// A Hold is what a handle has acquired. It renews itself by timers, and has no goroutine of its own but
// while a renewal is under way. It is safe for use by many goroutines.
//
//	acquired ──► held ──term/3──► renewal ──granted──► held, from before it was sent
//	              │                  ├──no answer──► again, a twelfth of a term later
//	              │                  └──conflict──► lost
//	              ├──9/10 of the term are over──► lost
//	              └──Release──► released
type Hold struct {
	what  subject
	key   string
	fence uint64
	term  time.Duration

	ctx    context.Context //nolint:containedctx // it is the hold's own, and ends with it
	cancel context.CancelCauseFunc

	mu      sync.Mutex
	end     time.Time   // when it counts as lost
	ender   *time.Timer // goes off then
	renewer *time.Timer // goes off at the next renewal
	failure error       // why it is lost; nil while it is not
	last    error       // why the last renewal failed
	left    bool        // Release was called

	renewals sync.WaitGroup // those under way
	leaving  sync.Once
	result   error // of Release
}

// The parts of a term. A renewal is begun at a third, has a quarter to be answered, and is tried again at
// once, so that two fit before the end.
const (
	renewPart = 3
	waitPart  = 4
	againPart = 12
	// marginPart is what is left of the term when the hold counts as lost, at most maxMargin: timers fire
	// late, and clocks do not run alike.
	marginPart = 10
	maxMargin  = time.Second
)

// Fence returns the fencing token of the hold: each later hold under the name has a greater one.
func (h *Hold) Fence() uint64 { return h.fence }

// Key returns the key of the hold, or the id of a grant. Every client that has it can release the hold.
func (h *Hold) Key() string { return h.key }

// Context returns a context that ends when the hold is lost or released. Its cause says which: an error that
// wraps [ErrLost] if it is lost.
func (h *Hold) Context() context.Context { return h.ctx }

// Err returns nil while the hold is held, by the clock and not only by the Context, and an error that wraps
// [ErrLost] once it is lost. After Release it is what Release returned.
func (h *Hold) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.checkEnd()
	if h.failure == nil && h.left {
		return h.result
	}
	return h.failure
}

// start makes the hold one that lasts for so long from when its request was sent.
func (h *Hold) start(ctx context.Context, sent time.Time, lasts time.Duration) {
	h.ctx, h.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	// Both timers may fire at once, and have to find each other.
	h.mu.Lock()
	defer h.mu.Unlock()
	h.setEnd(sent, lasts)
	h.ender = time.AfterFunc(time.Until(h.end), func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.checkEnd()
	})
	h.renewer = time.AfterFunc(time.Until(sent.Add(lasts/renewPart)), h.renewOnce)
}

// setEnd sets when the hold counts as lost. h.mu is held.
func (h *Hold) setEnd(sent time.Time, lasts time.Duration) {
	h.end = sent.Add(lasts - min(lasts/marginPart, maxMargin))
}

// checkEnd loses the hold if its time is over. h.mu is held.
func (h *Hold) checkEnd() {
	if h.failure != nil || h.left {
		return
	}
	// A renewal may have moved the end after the timer had fired.
	if left := time.Until(h.end); left > 0 {
		h.ender.Reset(left)
		return
	}
	reason := "it was not renewed within its term"
	if h.last != nil {
		reason = h.last.Error()
	}
	h.lose(reason)
}

// lose makes the hold a lost one. h.mu is held.
func (h *Hold) lose(reason string) {
	h.failure = h.lostError(reason)
	h.ender.Stop()
	h.renewer.Stop()
	h.cancel(h.failure)
}

// lostError is the error about a hold that is lost.
func (h *Hold) lostError(reason string) error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w: %s", h.what, ErrLost, reason)
}

// renewOnce renews the hold, and says when to do it next.
func (h *Hold) renewOnce() {
	h.mu.Lock()
	h.checkEnd()
	if h.failure != nil || h.left {
		h.mu.Unlock()
		return
	}
	// Under the lock: a release either waits for this renewal, or keeps it from beginning.
	h.renewals.Add(1)
	defer h.renewals.Done()
	h.mu.Unlock()
	sent := time.Now()
	within, cancel := context.WithTimeout(h.ctx, h.term/waitPart)
	a, err := h.what.renew(within, h)
	cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	// It has ended meanwhile, and its timers must stay stopped.
	case h.failure != nil || h.left:
	// It is not known whether it was renewed. Until its end by the clock it is held.
	case err != nil:
		h.last = err
		h.renewer.Reset(h.term / againPart)
	case a.outcome != gatehouse.Granted:
		h.lose(a.message)
	default:
		h.last = nil
		h.setEnd(sent, a.lasts)
		h.ender.Reset(time.Until(h.end))
		h.renewer.Reset(time.Until(sent.Add(a.lasts / renewPart)))
	}
}

// confirm renews a hold that was granted at an unknown time, until that is answered. The outcome may be a
// conflict: the hold was lost meanwhile.
func (h *Hold) confirm(ctx context.Context) (sent time.Time, a holdAnswer, err error) {
	within, cancel := context.WithTimeout(ctx, h.term)
	defer cancel()
	for {
		sent = time.Now()
		// A server that hangs must not use up the term, of which the holder would have nothing left.
		once, cancelOnce := context.WithTimeout(within, h.term/waitPart)
		a, err = h.what.renew(once, h)
		cancelOnce()
		if err == nil || !backoff.Sleep(within, h.term/againPart) {
			return sent, a, err
		}
	}
}

// maxGiveBack bounds how long a release is tried: what is not released ends by itself.
const maxGiveBack = 5 * time.Second

// giveBack releases in the background what an acquire that failed may have been granted.
func (h *Hold) giveBack(err error) {
	// Such an error says that nothing was granted.
	if code := gatehouse.CodeOf(err); code == gatehouse.CodeInvalid || code == gatehouse.CodeExhausted {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), min(h.term, maxGiveBack))
		defer cancel()
		_, _ = h.what.release(ctx, h, nil) // it was probably never granted
	}()
}

// Release gives the hold back. A hold that is lost already, or turns out to be, gets an error that wraps
// [ErrLost]. One whose server does not answer within the term, and within five seconds, gets an error of code
// [gatehouse.CodeUnavailable], and ends by itself. A second Release returns what the first did.
func (h *Hold) Release() error { return h.releaseOnce(nil) }

func (h *Hold) releaseOnce(costs []gatehouse.MemberCost) error {
	h.leaving.Do(func() {
		h.mu.Lock()
		h.checkEnd()
		lost, end := h.failure, h.end
		h.left = true
		h.ender.Stop()
		h.renewer.Stop()
		h.mu.Unlock()
		// Before the server is told: the work has to end before another one can be granted it.
		h.cancel(errReleased)
		// A renewal that is under way ends with its context.
		h.renewals.Wait()
		if lost == nil {
			lost = h.tellRelease(end, costs)
		}
		h.mu.Lock()
		h.result = lost
		h.mu.Unlock()
	})
	return h.result
}

// tellRelease tells the gate of the release until it has answered, or the hold has ended by itself.
func (h *Hold) tellRelease(end time.Time, costs []gatehouse.MemberCost) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.ctx), min(time.Until(end), maxGiveBack))
	defer cancel()
	for tries := 0; ; tries++ {
		// One try may hang, and there is time for several.
		once, cancelOnce := context.WithTimeout(ctx, h.term/waitPart)
		a, err := h.what.release(once, h, costs)
		cancelOnce()
		switch {
		case err == nil && a.outcome == gatehouse.Granted:
			return nil
		// One that was not answered may have been it.
		case err == nil && a.outcome == gatehouse.Conflict && tries > 0:
			return nil
		// It was lost earlier, and this is the first answer that says so.
		case err == nil && (a.outcome == gatehouse.Conflict || a.outcome == gatehouse.Missing):
			return h.lostError(a.message)
		case err == nil:
			return a.failure(h.what)
		}
		if !backoff.Sleep(ctx, h.term/againPart) {
			return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the release is not confirmed, and "+
				"it ends by itself: %w", h.what, err)
		}
	}
}
