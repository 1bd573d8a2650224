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

// hold is master for as long as the lease can be renewed and the key stays. It returns when this is over.
func (e *Election) hold(ctx context.Context, t term, candidate string, n *notice) {
	if !n.lead(candidate, t.until()) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	var watch sync.WaitGroup
	watch.Go(func() {
		defer cancel() // ends the renewals, even one that is on its way
		e.guard(ctx, t.key, n)
	})
	e.renew(ctx, t, n)
	cancel()
	watch.Wait()
}

// guard returns when the key is not as it was any more, or ctx has ended. A lease that is renewed keeps its
// key, but an operator may have deleted it.
func (e *Election) guard(ctx context.Context, key reading, n *notice) {
	for pause := e.backoff(); ctx.Err() == nil; pause.wait(ctx) {
		seen, err := e.read(ctx)
		if err == nil && seen.changed == key.changed {
			err = e.await(ctx, seen, func() {})
		}
		if err == nil && ctx.Err() == nil {
			n.resign()
			return
		}
	}
}

// renew renews the lease until that is not possible any more. A call that hangs does not prolong anything:
// the notice ends the mastership by itself.
func (e *Election) renew(ctx context.Context, t term, n *notice) {
	pause := e.quickly()
	for next := t.sent.Add(t.ttl / renewals); sleep(ctx, time.Until(next)) && n.leading(); {
		sent := time.Now()
		err := e.renewOnce(ctx, &t)
		switch {
		case err == nil:
			t.sent = sent
			if !n.prolong(t.until()) {
				return // the term had ended while the answer was on its way
			}
			pause = e.quickly()
			next = sent.Add(t.ttl / renewals)
		case errors.Is(err, rpctypes.ErrLeaseNotFound), ctx.Err() != nil:
			return
		default:
			n.trouble(fmt.Errorf("renewing the lease: %w", err))
			next = time.Now().Add(min(pause.next(), time.Until(t.until())))
		}
	}
}

// renewOnce asks once, and for a fifth of the lease's time at most. The client's own renewals repeat what
// they ask, so that nobody knows when the request was sent that was answered.
func (e *Election) renewOnce(ctx context.Context, t *term) error {
	within := min(t.ttl/tries, maxCall, time.Until(t.until()))
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
