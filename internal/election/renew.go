package election

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/gatehousehq/gatehouse/internal/backoff"
)

// holdKey is master for as long as the lease can be renewed and the key stays. It returns when either ends.
func (e *Election) holdKey(ctx context.Context, t term, candidate string, n *statusNotifier) {
	if !n.beginTerm(candidate, t.validUntil()) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel() // ends the renewals, even one in flight
		e.watchKey(ctx, t.key, n)
	})
	// Whichever of the two ends first stops the other.
	e.renewLease(ctx, t, n)
	cancel()
	watch.Wait()
}

// watchKey returns when the key is not what it was any more, or ctx has ended. A lease that is renewed keeps
// its key, but an operator may have deleted or replaced it.
func (e *Election) watchKey(ctx context.Context, key keyState, n *statusNotifier) {
	for pause := e.newBackoff(); ctx.Err() == nil; pause.waitPause(ctx) {
		// A watch can break without the key having changed. So each round reads the key first, and an error
		// only leads to another round: the lease's renewal decides how long this candidate stays master
		// meanwhile.
		seen, err := e.readKey(ctx)
		if err == nil && seen.changed == key.changed {
			err = e.awaitChange(ctx, seen, func() {})
		}
		if err == nil && ctx.Err() == nil {
			// The key has changed, seen by the read or by the watch.
			n.endTerm()
			return
		}
	}
}

// renewLease renews the lease until that is no longer possible. A call that hangs does not prolong anything:
// the notifier ends the mastership by itself, when its time is up.
func (e *Election) renewLease(ctx context.Context, t term, n *statusNotifier) {
	pause := e.renewalBackoff()
	for next := t.sent.Add(t.ttl / renewalsPerTTL); backoff.Sleep(ctx, time.Until(next)) && n.isLeading(); {
		// Before the request, for the same reason as in campaign: etcd counts from when it receives it.
		sent := time.Now()
		err := e.renewOnce(ctx, &t)
		switch {
		case err == nil:
			t.sent = sent
			if !n.extendTerm(t.validUntil()) {
				return // the term ended while the answer was in flight
			}
			pause = e.renewalBackoff()
			next = sent.Add(t.ttl / renewalsPerTTL)
		case errors.Is(err, rpctypes.ErrLeaseNotFound), ctx.Err() != nil:
			return
		default:
			n.setError(fmt.Errorf("renewing the lease: %w", err))
			// Never later than the term's end, so that the loop sees it and returns.
			next = time.Now().Add(min(pause.nextPause(), time.Until(t.validUntil())))
		}
	}
}

// renewOnce sends one renewal, and waits for a fifth of the lease's lifetime at most. The client library's
// own renewals repeat the request, which hides when the one that was answered was sent.
func (e *Election) renewOnce(ctx context.Context, t *term) error {
	// A member without a leader would take the request and never answer; WithRequireLeader makes it fail
	// instead.
	within := min(t.ttl/renewAttempts, maxCall, time.Until(t.validUntil()))
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), within)
	defer cancel()
	stream, err := e.leases.LeaseKeepAlive(ctx, grpc.WaitForReady(true)) // there may be a connection soon
	if err != nil {
		return rpctypes.Error(err)
	}
	if err := stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(t.lease)}); err != nil {
		return rpctypes.Error(err)
	}
	response, err := stream.Recv()
	switch {
	case err != nil:
		return rpctypes.Error(err)
	// This is how etcd answers for a lease that it does not have.
	case response.TTL <= 0:
		return rpctypes.ErrLeaseNotFound
	}
	// Etcd may grant a longer lifetime than was asked for.
	t.ttl = time.Duration(response.TTL) * time.Second
	return nil
}

// A growingPause is a pause that doubles each time, up to a bound. Each pause is drawn at random from its
// upper half, so that candidates which failed together do not come back together.
type growingPause struct{ pause, most time.Duration }

// newBackoff starts with a fiftieth of the lease's lifetime and ends at the time between two renewals. Both
// have upper bounds, for long leases.
func (e *Election) newBackoff() *growingPause {
	return &growingPause{pause: min(e.ttl/50, maxPause/10), most: min(e.ttl/renewalsPerTTL, maxPause)}
}

// renewalBackoff is for renewals, which have little time.
func (e *Election) renewalBackoff() *growingPause {
	return &growingPause{pause: min(e.ttl/50, maxPause/10), most: min(e.ttl/20, maxPause/2)}
}

// nextPause returns how long to pause now, and doubles the next one.
func (b *growingPause) nextPause() time.Duration {
	pause := b.pause
	b.pause = min(2*b.pause, b.most)
	return pause/2 + rand.N(pause/2+1)
}

// waitPause pauses, and returns false when ctx ended first.
func (b *growingPause) waitPause(ctx context.Context) bool { return backoff.Sleep(ctx, b.nextPause()) }
