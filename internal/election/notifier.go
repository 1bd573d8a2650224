package election

import (
	"sync"
	"time"
)

// A statusNotifier is what is known about the master, and when it stops being known. It tells each change. When its
// time is over it says so by itself, whatever those are waiting for who should renew it.
type statusNotifier struct {
	tell func(MasterStatus)

	mu     sync.Mutex
	status MasterStatus
	until  time.Time // when nothing of it is known any more
	expiry *time.Timer
	closed bool
}

func newNotifier(tell func(MasterStatus)) *statusNotifier {
	n := &statusNotifier{tell: tell}
	n.expiry = time.AfterFunc(maxTTL, n.onExpiry)
	n.expiry.Stop()
	return n
}

// beginTerm begins a term: candidate is master until then. It is false, and nothing is said, when that has passed.
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

// extendTerm moves the end of the present term. It is false when there is none: what has run out or was resigned
// while a renewal was on its way does not come back by its answer, since another may have been told of the
// end already.
func (n *statusNotifier) extendTerm(until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	switch {
	case !n.status.Leading:
		return false
	case !now.Before(until), !now.Before(n.until): // the timer is late
		n.setStatus(MasterStatus{}, time.Time{})
		return false
	}
	n.setStatus(MasterStatus{Leading: true, Until: until, Leader: n.status.Leader}, until)
	return true
}

// isLeading is whether the mastership said last still lasts.
func (n *statusNotifier) isLeading() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status.Leading && time.Now().Before(n.until)
}

// setLeader says that another is master, or nobody when leader is empty, and that this can be believed for a
// while.
func (n *statusNotifier) setLeader(leader string, while time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.setStatus(MasterStatus{Leader: leader}, time.Now().Add(while))
}

// setError adds what is wrong to what is known.
func (n *statusNotifier) setError(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := n.status
	status.Err = err
	n.setStatus(status, n.until)
}

// endTerm ends a mastership. Nothing is known then.
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

// close ends all notices.
func (n *statusNotifier) close() {
	n.endTerm()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.expiry.Stop()
}

// setStatus is called with the lock held, so that notices come one at a time and in order.
func (n *statusNotifier) setStatus(status MasterStatus, until time.Time) {
	if n.closed {
		return
	}
	n.until = until
	n.expiry.Stop()
	if !until.IsZero() {
		n.expiry.Reset(time.Until(until))
	}
	if !sameStatus(n.status, status) {
		n.status = status
		n.tell(status)
	}
}

// sameStatus is whether two notices say the same. Errors are compared by what they say.
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
