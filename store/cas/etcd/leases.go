package etcd

import (
	"context"
	"errors"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

const (
	// maxRevokers is how many leases are given back at once: etcd writes what comes together together.
	maxRevokers = 16
	// maxRevokes is how many leases wait to be given back. More end by themselves.
	maxRevokes = 4096
	// closeTimeout is how long giving leases back may take when a backend is closed.
	closeTimeout = time.Second
)

// leases are made here, and given back behind the backs of those who do not need them any more.
type leases struct {
	client pb.LeaseClient
	ctx    context.Context // of giving back
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu       sync.Mutex
	unused   []clientv3.LeaseID
	revokers int
	closed   bool
}

// createLease makes a lease. Its number is made here, not by etcd, so that one whose answer was lost can be
// given back; it never comes again.
func (l *leases) createLease(ctx context.Context, seconds int64) (clientv3.LeaseID, error) {
	var sent atomic.Bool
	id := 1 + rand.Int64N(math.MaxInt64)
	request := &pb.LeaseGrantRequest{ID: id, TTL: seconds}
	ctx = withSentFlag(clientv3.WithRequireLeader(ctx), &sent)
	if _, err := l.client.LeaseGrant(ctx, request, grpc.WaitForReady(true)); err != nil {
		err = classifyError(rpctypes.Error(err), sent.Load())
		// The lease may exist although its answer was lost.
		if mayBeDone(err) {
			l.revokeSoon(clientv3.LeaseID(id))
		}
		return 0, err
	}
	return clientv3.LeaseID(id), nil
}

// revokeSoon gives leases back that no key needs, soon, if that is possible.
func (l *leases) revokeSoon(ids ...clientv3.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	// What does not fit ends by itself.
	ids = ids[:min(len(ids), maxRevokes-len(l.unused))]
	l.unused = append(l.unused, ids...)
	// At most one goroutine for each lease; each goes on until none is left.
	for range ids {
		if l.revokers < maxRevokers {
			l.revokers++
			l.work.Go(l.revokeUnused)
		}
	}
}

// revokeUnused gives leases back until there are none.
func (l *leases) revokeUnused() {
	for {
		l.mu.Lock()
		if len(l.unused) == 0 {
			l.revokers--
			l.mu.Unlock()
			return
		}
		id := l.unused[0]
		l.unused = l.unused[1:]
		l.mu.Unlock()
		// Outside the lock: etcd may take its time.
		ctx, cancel := context.WithTimeout(l.ctx, maxCall)
		_, _ = l.client.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: int64(id)}) // it ends by itself
		cancel()
	}
}

func (l *leases) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	// The senders get a moment to finish, then their calls are cancelled.
	end := time.AfterFunc(closeTimeout, l.cancel)
	l.work.Wait()
	end.Stop()
	l.cancel()
}

// A leasesByLength is the leases of the holds that a change begins, by their length in seconds; for 0, of
// those that do not end, there is none. Holds of the same length share one, because they begin together; each
// other change makes its own.
type leasesByLength map[int64]clientv3.LeaseID

// createForHolds makes the leases of holds.
func (l *leases) createForHolds(ctx context.Context, holds []control.Hold) (leasesByLength, error) {
	lengths := lengthsOf(holds)
	ids, errs := make([]clientv3.LeaseID, len(lengths)), make([]error, len(lengths))
	var work sync.WaitGroup
	// All but the first in goroutines of their own: nearly always there is just one length.
	for i := 1; i < len(lengths); i++ {
		work.Go(func() { ids[i], errs[i] = l.createLease(ctx, lengths[i]) })
	}
	if len(lengths) > 0 {
		ids[0], errs[0] = l.createLease(ctx, lengths[0])
	}
	work.Wait()
	g := make(leasesByLength, len(lengths))
	for i, id := range ids {
		if id != 0 {
			g[lengths[i]] = id
		}
	}
	err := errors.Join(errs...)
	// Those that were made are of no use without the others.
	if err != nil {
		l.revokeSoon(g.allIDs()...)
	}
	return g, err
}

// lengthsOf are the different lengths of holds that end, in seconds.
func lengthsOf(holds []control.Hold) (lengths []int64) {
	for i := range holds {
		if seconds := ttl(holds[i].Expires); seconds != 0 && !slices.Contains(lengths, seconds) {
			lengths = append(lengths, seconds)
		}
	}
	return lengths
}

func (g leasesByLength) allIDs() []clientv3.LeaseID { return slices.Collect(maps.Values(g)) }

// unusedIDs are those under which nothing is held. After a change that was not made all are, unless the
// network has brought it twice, and it was made the first time.
func (g leasesByLength) unusedIDs(used map[int64]bool) []clientv3.LeaseID {
	return slices.DeleteFunc(g.allIDs(), func(id clientv3.LeaseID) bool { return used[int64(id)] })
}

// ttl is a length in etcd's seconds, rounded up, 0 for no end.
func ttl(d time.Duration) int64 {
	if d <= 0 {
		return 0
	}
	return int64((d + time.Second - 1) / time.Second)
}

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
	clear(k.byLength)
}
