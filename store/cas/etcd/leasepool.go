package etcd

import (
	"context"
	"math/bits"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
)

const (
	// minSharedLength is the shortest span of a shared lease: a shorter one would have to be made again too
	// often.
	minSharedLength = 64 // seconds
	// maxUses is how many times a shared lease is given to a record. Etcd deletes all that is under a lease
	// at once, and does nothing else meanwhile.
	maxUses = 4096
	// sharedMargin is what a shared lease lasts beyond twice its span: the time in which a record that was
	// given it may still be on its way.
	sharedMargin = 10 // seconds
)

// A leasePool lends leases to records, so that etcd deletes those that are worth nothing any more. Many
// records share one, as it matters little when they go, as long as none goes early. For each power of two
// of seconds there is one lease at a time: it lasts for twice as long, and is lent during its first half.
// So a record lasts as long as it is worth something, and goes after four times that at the latest.
type leasePool struct {
	leases *leases

	mu       sync.Mutex
	byLength map[int]*sharedLease
}

// A sharedLease is the present lease of one length.
type sharedLease struct {
	lock  chan struct{} // holds one token: its taker may use the rest
	id    clientv3.LeaseID
	until time.Time // when it is not lent any more
	uses  int
}

// leaseFor lends a lease for a record that is worth something for so long; 0 for one that does not end.
func (k *leasePool) leaseFor(ctx context.Context, keep time.Duration) (clientv3.LeaseID, error) {
	if keep == gatehouse.Forever {
		return 0, nil
	}
	power := bits.Len64(uint64(max(ttl(keep), minSharedLength) - 1)) // it is at least 63
	length := int64(1) << power
	s := k.sharedOf(power)
	// One call makes the lease while the others of its length wait for it, for no longer than their context
	// lasts.
	select {
	case <-s.lock:
	case <-ctx.Done():
		return 0, classifyError(ctx.Err(), false)
	}
	defer func() { s.lock <- struct{}{} }()
	// None yet, used too often, or in its second half.
	if s.id == 0 || s.uses == maxUses || !time.Now().Before(s.until) {
		// Taken before the lease is made, so that its first half is over no later than here.
		until := time.Now().Add(time.Duration(length) * time.Second)
		id, err := k.leases.createLease(ctx, 2*length+sharedMargin)
		if err != nil {
			return 0, classifyError(err, false)
		}
		s.id, s.until, s.uses = id, until, 0
	}
	s.uses++
	return s.id, nil
}

func (k *leasePool) sharedOf(power int) *sharedLease {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byLength == nil {
		k.byLength = make(map[int]*sharedLease)
	}
	s := k.byLength[power]
	if s == nil {
		s = &sharedLease{lock: make(chan struct{}, 1)}
		// The token that the first user takes.
		s.lock <- struct{}{}
		k.byLength[power] = s
	}
	return s
}

// forgetAll lends no lease any more of those that were lent: one of them was not there, as after etcd was put
// back to a backup.
func (k *leasePool) forgetAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.byLength = nil
}
