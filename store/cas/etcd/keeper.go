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
	// minSpan is the shortest span of a shared lease: a shorter one would have to be made anew too often.
	minSpan = 64 // seconds
	// maxShare is how many times a shared lease is given to a record. Etcd deletes all that is under a lease
	// at once, and does nothing else meanwhile.
	maxShare = 4096
	// keepMargin is what a shared lease lasts beyond twice its span: the time in which a record that was
	// given it may still be on its way.
	keepMargin = 10 // seconds
)

// A keeper lends leases to records, so that etcd deletes those that are worth nothing any more. Many records
// share one, as it matters little when they go, as long as none goes early. For each power of two of seconds
// there is one lease at a time: it lasts for twice as long, and is lent during its first half. So a record
// lasts as long as it is worth something, and goes after four times that at the latest.
type keeper struct {
	leases *leases

	mu    sync.Mutex
	spans map[int]*span
}

// A span is the present lease of one length.
type span struct {
	turn  chan struct{} // whoever takes what is in it may look at the rest
	id    clientv3.LeaseID
	until time.Time // when it is not lent any more
	lent  int
}

// lease lends a lease for a record that is worth something for so long; 0 for one that does not end.
func (k *keeper) lease(ctx context.Context, keep time.Duration) (clientv3.LeaseID, error) {
	if keep == gatehouse.Forever {
		return 0, nil
	}
	power := bits.Len64(uint64(max(ttl(keep), minSpan) - 1)) // #nosec G115 -- it is at least 63
	length := int64(1) << power
	s := k.span(power)
	select {
	case <-s.turn:
	case <-ctx.Done():
		return 0, tell(ctx.Err(), false)
	}
	defer func() { s.turn <- struct{}{} }()
	if s.id == 0 || s.lent == maxShare || !time.Now().Before(s.until) {
		until := time.Now().Add(time.Duration(length) * time.Second)
		id, err := k.leases.grant(ctx, 2*length+keepMargin)
		if err != nil {
			return 0, tell(err, false)
		}
		s.id, s.until, s.lent = id, until, 0
	}
	s.lent++
	return s.id, nil
}

func (k *keeper) span(power int) *span {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.spans == nil {
		k.spans = make(map[int]*span)
	}
	s := k.spans[power]
	if s == nil {
		s = &span{turn: make(chan struct{}, 1)}
		s.turn <- struct{}{}
		k.spans[power] = s
	}
	return s
}

// forget lends no lease any more of those that were lent: one of them was not there, as after etcd was put
// back to a backup.
func (k *keeper) forget() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.spans = nil
}
