package cas

import "time"

// A retryState says how often a transaction was tried in vain, and for how long it waits before it asks
// again.
type retryState struct {
	lost      int           // to a record that was not the known one
	conflicts int           // of them those in which something was to be changed
	pause     time.Duration // before the store is asked again if it is away
	claimPoll time.Duration // before it is asked again whether another server's claim is over
}

const (
	// backoff is how long is waited at first before an unreachable store is asked again. It doubles, up to
	// maxBackoff, so that a store that is back is found soon.
	backoff    = 10 * time.Millisecond
	maxBackoff = 100 * time.Millisecond

	// firstPoll is how long a server waits at first before it tries again to change a record that another
	// has claimed. It doubles, up to lastPoll.
	firstPoll = 500 * time.Microsecond
	lastPoll  = 4 * time.Millisecond
)

func newRetryState() retryState { return retryState{pause: backoff, claimPoll: firstPoll} }

// nextPause is how long to wait for a store that does not answer.
func (r *retryState) nextPause() time.Duration {
	pause := r.pause
	r.pause = min(2*pause, maxBackoff)
	return jittered(pause)
}

// nextClaimPoll is how long to wait for another server's claim, which lasts that much longer.
func (r *retryState) nextClaimPoll(claimed time.Duration) time.Duration {
	pause := r.claimPoll
	r.claimPoll = min(2*pause, lastPoll)
	return jittered(min(claimed, pause))
}
