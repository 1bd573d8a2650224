package cas

import (
	"testing"
	"time"
)

// between reports whether a pause is what it is to be, or up to a quarter less.
func between(pause, most time.Duration) bool { return pause >= most-most/4 && pause <= most }

// A store that is away is asked less and less often, up to a limit.
func TestPausesDouble(t *testing.T) {
	r := newRetryState()
	for i, want := range []time.Duration{
		firstPause, 2 * firstPause, 4 * firstPause, 8 * firstPause, lastPause, lastPause,
	} {
		if got := r.nextPause(); !between(got, want) {
			t.Errorf("pause %d is %s, want up to a quarter less than %s", i, got, want)
		}
	}
}

// A claim is waited for no longer than it lasts, whatever is left of it.
func TestClaimPolls(t *testing.T) {
	for _, claimed := range []time.Duration{1, 2, 3, 4, time.Microsecond, time.Millisecond, time.Hour} {
		r := newRetryState()
		for i, want := range []time.Duration{firstPoll, 2 * firstPoll, 4 * firstPoll, lastPoll, lastPoll} {
			want = min(want, claimed)
			if got := r.nextClaimPoll(claimed); !between(got, want) {
				t.Errorf("wait %d for a claim of %s is %s, want up to a quarter less than %s",
					i, claimed, got, want)
			}
		}
	}
}
