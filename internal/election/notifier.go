package election

import (
	"sync"
	"time"
)

// A statusNotifier keeps what is known about the master, and until when it is known. It calls tell for each
// change. A timer ends what it knows on time, even while the goroutine that should renew it hangs.
//
//	unknown <──expiry, endTerm── following (setLeader)
//	   │                            ^ v
//	   └──beginTerm──> leading ──extendTerm──> leading ──endTerm, expiry──> unknown
type statusNotifier struct {
	tell func(MasterStatus)

	mu     sync.Mutex
	status MasterStatus
	until  time.Time // when status stops being known; zero if it has no end
	expiry *time.Timer
	closed bool
}

func newNotifier(tell func(MasterStatus)) *statusNotifier {
	n := &statusNotifier{tell: tell}
	n.expiry = time.AfterFunc(maxTTL, n.onExpiry)
	n.expiry.Stop()
	return n
}

// beginTerm makes candidate the master until then. It returns false, and reports no master, when that
// instant has passed.
func (n *statusNotifier) beginTerm(candidate string, until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !time.Now().Before(until) {
		n.setStatus(MasterStatus{}, time.Time{})
		return false
	}
	n.setStatus(MasterStatus{Leading: true, Until: until, Leader: candidate}, until)
	return true
}

// extendTerm moves the end of the present term. It returns false when there is none: a term that expired or
// ended while a renewal was in flight does not come back by its answer, since tell may have reported its end
// already.
func (n *statusNotifier) extendTerm(until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	switch {
	case !n.status.Leading:
		return false
	case !now.Before(until), !now.Before(n.until): // the timer is late to say so
		n.setStatus(MasterStatus{}, time.Time{})
		return false
	}
	n.setStatus(MasterStatus{Leading: true, Until: until, Leader: n.status.Leader}, until)
	return true
}

// isLeading reports whether the mastership reported last still lasts.
func (n *statusNotifier) isLeading() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status.Leading && time.Now().Before(n.until)
}

// setLeader reports that another candidate is master, or none when leader is empty. This is believed for a
// while only.
func (n *statusNotifier) setLeader(leader string, while time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setStatus(MasterStatus{Leader: leader}, time.Now().Add(while))
}

// setError adds a failure to what is known, and leaves the rest.
func (n *statusNotifier) setError(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	// A failed call says nothing about the master; the time until which it is known stays too.
	status := n.status
	status.Err = err
	n.setStatus(status, n.until)
}

// endTerm ends a mastership. After it no master is known.
func (n *statusNotifier) endTerm() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setStatus(MasterStatus{Err: n.status.Err}, time.Time{})
}

// onExpiry is called by the timer.
func (n *statusNotifier) onExpiry() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !time.Now().Before(n.until) { // it may have been prolonged meanwhile
		n.setStatus(MasterStatus{Err: n.status.Err}, time.Time{})
	}
}

// close ends all notifications, after one that no master is known.
func (n *statusNotifier) close() {
	n.endTerm()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.expiry.Stop()
}

// setStatus is called with the lock held, so that notifications come one at a time and in order.
func (n *statusNotifier) setStatus(status MasterStatus, until time.Time) {
	if n.closed {
		return
	}
	n.until = until
	// The timer is set also when the status is the same as before: its end has moved.
	n.expiry.Stop()
	if !until.IsZero() {
		n.expiry.Reset(time.Until(until))
	}
	if !sameStatus(n.status, status) {
		n.status = status
		n.tell(status)
	}
}

// sameStatus reports whether two statuses say the same. Errors are compared by their text.
func sameStatus(a, b MasterStatus) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return a.Leading == b.Leading && a.Until.Equal(b.Until) &&
		a.Leader == b.Leader && text(a.Err) == text(b.Err)
}
