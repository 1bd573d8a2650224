package redis_test

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// claimRecord has some server claim the record of the theSemaphore() for longer than a first look may take.
func claimRecord(t *testing.T, b *redis.Backend) {
	t.Helper()
	// Of no version that was ever stored, so that it loses and only the claim is noted.
	change := &cas.RecordChange{
		If: 1, Nonce: 1, Next: record(1, ""), Server: 7, Claim: 5 * cas.DefaultTimeout / 2,
	}
	if got := ask(t, b, theSemaphore(), change); got.Swapped || got.Record == nil || got.Claimed > 0 {
		t.Fatalf("a change that claims the record = %+v, want the record there is", got)
	}
}

// untilAnswered asks while the record is claimed. On a busy machine Redis may not answer in time, and the
// request fails: then it is asked again.
func untilAnswered[D any](t *testing.T, address string, ask func() (D, error)) (d D, err error) {
	t.Helper()
	b := open(t, "redis://"+address)
	redistest.Until(t, func() bool {
		claimRecord(t, b)
		d, err = ask()
		return gatehouse.CodeOf(err) != gatehouse.CodeUnavailable
	})
	return d, err
}

// A request that the store could not look at in time, as others had the record, goes on waiting. Its size
// comes into force by the first look that there is: the slot that this adds is its own.
func TestSizeOfAPostponedRequest(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t).Address
	servers := newServers(t, address, 2)
	servers[0].take(t, "first")
	cmd := acquire("second", 2)
	cmd.MaxWait = patience
	d, err := untilAnswered(t, address, func() (gatehouse.Decision, error) {
		return servers[1].Do(t.Context(), theSemaphore(), cmd)
	})
	if err != nil || d.Outcome != gatehouse.Granted || d.Limit != 2 {
		t.Errorf("an acquire of one of 2 slots = %+v, %v, want it granted", d, err)
	}
}

// The same holds for a member of a grant.
func TestSizeOfAPostponedGrant(t *testing.T) {
	t.Parallel()
	address := redistest.Start(t).Address
	servers := newServers(t, address, 2)
	servers[0].take(t, "first")
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "g", Expires: time.Minute, MaxWait: patience,
		Want: []gatehouse.Member{
			{Key: theSemaphore(), Rule: gatehouse.Rule{Size: 2}, Cost: 1},
			{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: "b"}, Rule: gatehouse.Rule{Size: 1}, Cost: 1},
		},
	}
	d, err := untilAnswered(t, address, func() (gatehouse.GrantDecision, error) {
		return servers[1].DoGrant(t.Context(), cmd)
	})
	if err != nil || d.Outcome != gatehouse.Granted || d.Want[0].Limit != 2 {
		t.Errorf("a grant with one of 2 slots = %+v, %v, want it granted", d, err)
	}
}
