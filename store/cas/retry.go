package cas

import (
	"sync"
	"time"
)

// A delayedRun runs something after a while, unless it is to run already. It has the lock of its owner.
type delayedRun struct {
	mu     sync.Mutex
	timer  *time.Timer
	closed bool
	work   sync.WaitGroup
}

// schedule is called with the lock held. What is run sets timer to nil, under the lock, when it may be
// scheduled again.
func (d *delayedRun) schedule(after time.Duration, run func()) {
	if d.timer == nil && !d.closed {
		d.work.Add(1)
		d.timer = time.AfterFunc(jittered(after), func() {
			defer d.work.Done()
			run()
		})
	}
}

// close lets nothing run any more, and waits for what is running, which needs the lock to end.
func (d *delayedRun) close() {
	d.mu.Lock()
	d.closed = true
	if d.timer != nil && d.timer.Stop() {
		d.work.Done()
	}
	d.mu.Unlock()
	d.work.Wait()
}

// A retryState says how often a transaction was tried in vain, and for how long it waits before it asks
// again.
type retryState struct {
	lost      int           // to a record that was not the known one
	conflicts int           // of them those in which something was to be changed
	pause     time.Duration // before the store is asked again if it is away
	claimPoll time.Duration // before it is asked again whether another server's claim is over
}

const (
	// firstPause is how long is waited at first before an unreachable store is asked again. It doubles, up to
	// lastPause, so that a store that is back is found soon.
	firstPause = 10 * time.Millisecond
	lastPause  = 100 * time.Millisecond

	// firstPoll is how long a server waits at first before it tries again to change a record that another
	// has claimed. It doubles, up to lastPoll.
	firstPoll = 500 * time.Microsecond
	lastPoll  = 4 * time.Millisecond
)

func newRetryState() retryState { return retryState{pause: firstPause, claimPoll: firstPoll} }

// nextPause is how long to wait for a store that does not answer.
func (r *retryState) nextPause() time.Duration {
	pause := r.pause
	r.pause = min(2*pause, lastPause)
	return jittered(pause)
}

// nextClaimPoll is how long to wait for another server's claim, which lasts that much longer.
func (r *retryState) nextClaimPoll(claimed time.Duration) time.Duration {
	pause := r.claimPoll
	r.claimPoll = min(2*pause, lastPoll)
	return jittered(min(claimed, pause))
}
