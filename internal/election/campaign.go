package election

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A keyState is what the key was like at a revision of etcd.
type keyState struct {
	revision int64 // of all of etcd: whatever happens to the key later has a greater one
	changed  int64 // of the last change of the key; 0 when there is none
	leader   string
}

func (r keyState) exists() bool { return r.changed != 0 }

// isBefore is whether something has happened to the key since.
func (r keyState) isBefore(event *clientv3.Event) bool { return event.Kv.ModRevision > r.revision }

// readKey asks etcd's majority, not only the member that is asked.
func (e *Election) readKey(ctx context.Context) (keyState, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	response, err := e.client.Get(ctx, e.key)
	if err != nil {
		return keyState{}, fmt.Errorf("reading the key: %w", err)
	}
	r := keyState{revision: response.Header.Revision}
	if len(response.Kvs) > 0 {
		r.changed, r.leader = response.Kvs[0].ModRevision, string(response.Kvs[0].Value)
	}
	return r, nil
}

// A term is a key that was won, under a lease of its own that no other term ever has.
type term struct {
	lease clientv3.LeaseID
	ttl   time.Duration // etcd lets the lease live at least so long
	sent  time.Time     // when the last request was sent that etcd has granted or renewed it for
	key   keyState
}

// validUntil is the instant after which another candidate may be master. Etcd began to count after the request
// was sent, however long the answer took; so this is before etcd's own.
func (t term) validUntil() time.Time { return t.sent.Add(t.ttl - t.ttl/marginFraction) }

// campaign tries to take the key. It returns nil and no error when another has it.
func (e *Election) campaign(ctx context.Context, candidate string) (*term, error) {
	t := term{sent: time.Now()}
	lease, err := e.grantLease(ctx)
	if err != nil {
		// If it was granted nevertheless, it ends by itself and has no key.
		return nil, fmt.Errorf("asking for a lease: %w", err)
	}
	t.lease, t.ttl = lease.ID, time.Duration(lease.TTL)*time.Second
	took, err := e.takeKey(ctx, &t, candidate)
	if took && time.Now().Before(t.validUntil()) {
		return &t, nil
	}
	return nil, errors.Join(err, e.revokeLease(ctx, t.lease))
}

func (e *Election) grantLease(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	return e.client.Grant(ctx, int64(e.ttl/time.Second))
}

// takeKey writes the key if there is none. It asks again as long as no answer comes: when an answer was lost,
// the key may be there, and our lease on it says that it is ours.
func (e *Election) takeKey(ctx context.Context, t *term, candidate string) (took bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, t.validUntil())
	defer cancel()
	pause := e.newBackoff()
	for {
		var kv *mvccpb.KeyValue
		kv, err = e.takeKeyOnce(ctx, t.lease, candidate)
		if err == nil {
			t.key = keyState{revision: kv.ModRevision, changed: kv.ModRevision, leader: candidate}
			return kv.Lease == int64(t.lease), nil
		}
		if errors.Is(err, rpctypes.ErrLeaseNotFound) || !pause.waitPause(ctx) {
			return false, fmt.Errorf("taking the key: %w", err)
		}
	}
}

// takeKeyOnce returns the key as it is then, ours or not.
func (e *Election) takeKeyOnce(
	ctx context.Context, lease clientv3.LeaseID, candidate string,
) (*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	response, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(e.key), "=", 0)).
		Then(clientv3.OpPut(e.key, candidate, clientv3.WithLease(lease))).
		Else(clientv3.OpGet(e.key)).
		Commit()
	if err != nil {
		return nil, err
	}
	if response.Succeeded {
		return &mvccpb.KeyValue{ModRevision: response.Header.Revision, Lease: int64(lease)}, nil
	}
	return response.Responses[0].GetResponseRange().Kvs[0], nil
}

// revokeLease ends a lease, and with it the key that is under it, if there is one. A lease's number never comes
// again: a request that arrives late, or twice, takes nothing from anybody. It also works when ctx has ended.
func (e *Election) revokeLease(ctx context.Context, lease clientv3.LeaseID) error {
	ctx = context.WithoutCancel(ctx)
	err := e.revokeOnce(ctx, lease)
	if err != nil {
		err = e.revokeOnce(ctx, lease) // of another member
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNotGivenBack, err)
	}
	return nil
}

func (e *Election) revokeOnce(ctx context.Context, lease clientv3.LeaseID) error {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	_, err := e.client.Revoke(ctx, lease)
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
