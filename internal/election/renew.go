package election

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// holdKey is master for as long as the lease can be renewed and the key stays. It returns when this is over.
func (e *Election) holdKey(ctx context.Context, t term, candidate string, n *statusNotifier) {
	if !n.beginTerm(candidate, t.validUntil()) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel() // ends the renewals, even one that is on its way
		e.watchKey(ctx, t.key, n)
	})
	e.renewLease(ctx, t, n)
	cancel()
	watch.Wait()
}

// watchKey returns when the key is not as it was any more, or ctx has ended. A lease that is renewed keeps its
// key, but an operator may have deleted it.
func (e *Election) watchKey(ctx context.Context, key keyState, n *statusNotifier) {
	for pause := e.newBackoff(); ctx.Err() == nil; pause.waitPause(ctx) {
		seen, err := e.readKey(ctx)
		if err == nil && seen.changed == key.changed {
			err = e.awaitChange(ctx, seen, func() {})
		}
		if err == nil && ctx.Err() == nil {
			n.endTerm()
			return
		}
	}
}

// renewLease renews the lease until that is not possible any more. A call that hangs does not prolong anything:
// the notice ends the mastership by itself.
func (e *Election) renewLease(ctx context.Context, t term, n *statusNotifier) {
	pause := e.renewalBackoff()
	for next := t.sent.Add(t.ttl / renewalsPerTTL); sleepFor(ctx, time.Until(next)) && n.isLeading(); {
		sent := time.Now()
		err := e.renewOnce(ctx, &t)
		switch {
		case err == nil:
			t.sent = sent
			if !n.extendTerm(t.validUntil()) {
				return // the term had ended while the answer was on its way
			}
			pause = e.renewalBackoff()
			next = sent.Add(t.ttl / renewalsPerTTL)
		case errors.Is(err, rpctypes.ErrLeaseNotFound), ctx.Err() != nil:
			return
		default:
			n.setError(fmt.Errorf("renewing the lease: %w", err))
			next = time.Now().Add(min(pause.nextPause(), time.Until(t.validUntil())))
		}
	}
}

// renewOnce asks once, and for a fifth of the lease's time at most. The client's own renewals repeat what
// they ask, so that nobody knows when the request was sent that was answered.
func (e *Election) renewOnce(ctx context.Context, t *term) error {
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
	case response.TTL <= 0:
		return rpctypes.ErrLeaseNotFound
	}
	t.ttl = time.Duration(response.TTL) * time.Second
	return nil
}
