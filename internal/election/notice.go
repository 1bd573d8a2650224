package election

import (
	"sync"
	"time"
)

// A notice is what is known about the master, and when it stops being known. It tells each change. When its
// time is over it says so by itself, whatever those are waiting for who should renew it.
type notice struct {
	tell func(Status)

	mu     sync.Mutex
	status Status
	until  time.Time // when nothing of it is known any more
	expiry *time.Timer
	closed bool
}

func newNotice(tell func(Status)) *notice {
	n := &notice{tell: tell}
	n.expiry = time.AfterFunc(maxTTL, n.expire)
	n.expiry.Stop()
	return n
}

// lead begins a term: candidate is master until then. It is false, and nothing is said, when that has passed.
func (n *notice) lead(candidate string, until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !time.Now().Before(until) {
		n.put(Status{}, time.Time{})
		return false
	}
	n.put(Status{Leading: true, Until: until, Leader: candidate}, until)
	return true
}

// prolong moves the end of the present term. It is false when there is none: what has run out or was resigned
// while a renewal was on its way does not come back by its answer, since another may have been told of the
// end already.
func (n *notice) prolong(until time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	switch {
	case !n.status.Leading:
		return false
	case !now.Before(until), !now.Before(n.until): // the timer is late
		n.put(Status{}, time.Time{})
		return false
	}
	n.put(Status{Leading: true, Until: until, Leader: n.status.Leader}, until)
	return true
}

// leading is whether the mastership said last still lasts.
func (n *notice) leading() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.status.Leading && time.Now().Before(n.until)
}

// follow says that another is master, or nobody when leader is empty, and that this can be believed for a
// while.
func (n *notice) follow(leader string, while time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(Status{Leader: leader}, time.Now().Add(while))
}

// trouble adds what is wrong to what is known.
func (n *notice) trouble(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	status := n.status
	status.Err = err
	n.put(status, n.until)
}

// resign ends a mastership. Nothing is known then.
func (n *notice) resign() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.put(Status{Err: n.status.Err}, time.Time{})
}

// expire is called by the timer.
func (n *notice) expire() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !time.Now().Before(n.until) { // it may have been prolonged meanwhile
		n.put(Status{Err: n.status.Err}, time.Time{})
	}
}

// close ends all notices.
func (n *notice) close() {
	n.resign()
	n.mu.Lock()
	defer n.mu.Unlock()
	n.closed = true
	n.expiry.Stop()
}

// put is called with the lock held, so that notices come one at a time and in order.
func (n *notice) put(status Status, until time.Time) {
	if n.closed {
		return
	}
	n.until = until
	n.expiry.Stop()
	if !until.IsZero() {
		n.expiry.Reset(time.Until(until))
	}
	if !same(n.status, status) {
		n.status = status
		n.tell(status)
	}
}

// same is whether two notices say the same. Errors are compared by what they say.
func same(a, b Status) bool {
	text := func(err error) string {
		if err == nil {
			return ""
		}
		return err.Error()
	}
	return a.Leading == b.Leading && a.Until.Equal(b.Until) &&
		a.Leader == b.Leader && text(a.Err) == text(b.Err)
}
