package limiter

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Reservation is a place in the time to come that was taken: its caller goes at Start, and counts
// whether it goes or not, unless it is cancelled before.
type Reservation struct {
	place reservedTime
	key   string // of a Keyed
	clock clock
	owner owner
	ended atomic.Bool
}

// An owner is what a reservation was made with.
type owner interface {
	// giveBack takes the reservation back, as far as no later caller relies on it.
	giveBack(r *Reservation, now int64)
}

// Start returns when to go.
func (r *Reservation) Start() time.Time { return r.clock.toTime(r.place.begin) }

// Delay returns how long it is from now until Start, 0 when that is now or over.
func (r *Reservation) Delay() time.Duration {
	return time.Duration(max(0, r.place.begin-r.clock.nowNanos()))
}

// Cancel gives the place back, and reports whether it lay ahead: one whose Start is now or over, or
// that was cancelled before, stays as it is. The place comes free only while it is the last: the
// times of later callers count it in.
func (r *Reservation) Cancel() bool { return r.CancelAt(r.clock.now()) }

// CancelAt is Cancel at another time than now.
func (r *Reservation) CancelAt(now time.Time) bool {
	at := r.clock.toNanos(now)
	// The swap lets one of several callers that cancel at once through.
	if r.place.begin <= at || r.ended.Swap(true) {
		return false
	}
	r.owner.giveBack(r, at)
	return true
}

// waitForStart returns nil at Start, and cancels if ctx ends before.
func (r *Reservation) waitForStart(ctx context.Context) error {
	timer := time.NewTimer(r.Delay())
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		if !r.Cancel() {
			return nil // it has started meanwhile, and is taken
		}
		return gatehouse.Errorf(gatehouse.CodeTimeout, "wait: %w", ctx.Err())
	}
}

// longestWait is the longest wait, in ns, that ends before ctx does.
func longestWait(ctx context.Context) (most int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, gatehouse.Errorf(gatehouse.CodeTimeout, "wait: %w", err)
	}
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		if left < 0 { // which ctx has not noticed yet
			return 0, gatehouse.Errorf(gatehouse.CodeTimeout, "wait: %w", context.DeadlineExceeded)
		}
		return int64(min(left, gatehouse.MaxDuration)), nil
	}
	return int64(gatehouse.MaxDuration), nil
}

// checkWait says why n were given no place; nil when they were.
func checkWait(n, wait, most int64, ok bool) error {
	// Never comes before too late: with ok false, wait means nothing.
	if !ok {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "wait: %d can never go at this rate", n)
	}
	if wait > most {
		return gatehouse.Errorf(gatehouse.CodeTimeout, "wait: it would take %s, there are %s: %w",
			time.Duration(wait), time.Duration(most), context.DeadlineExceeded)
	}
	return nil
}
