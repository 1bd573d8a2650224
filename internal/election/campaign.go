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

// A keyState is what the key was like at one revision of etcd.
type keyState struct {
	revision int64 // of all of etcd: each later change has a greater one
	changed  int64 // revision of the key's last change; 0 when there is no key
	leader   string
}

func (r keyState) exists() bool { return r.changed != 0 }

// isBefore reports whether an event happened to the key after this state was read.
func (r keyState) isBefore(event *clientv3.Event) bool { return event.Kv.ModRevision > r.revision }

// readKey reads the key. It asks for a linearizable read, that is, the majority of etcd's members and not
// only the one it is connected to.
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
	ttl   time.Duration // etcd keeps the lease alive at least this long
	sent  time.Time     // when the last granted or renewed request was sent
	key   keyState
}

// validUntil is the instant after which another candidate may be master. Etcd started counting after the
// request was sent, however long its answer took; so this is before the end by etcd's own clock.
func (t term) validUntil() time.Time { return t.sent.Add(t.ttl - t.ttl/marginFraction) }

// campaign tries to take the key. It returns nil and no error when another candidate has it.
func (e *Election) campaign(ctx context.Context, candidate string) (*term, error) {
	// The clock is read before the request is sent: see validUntil.
	t := term{sent: time.Now()}
	lease, err := e.grantLease(ctx)
	if err != nil {
		// If etcd granted it nevertheless, it has no key and expires by itself.
		return nil, fmt.Errorf("asking for a lease: %w", err)
	}
	t.lease, t.ttl = lease.ID, time.Duration(lease.TTL)*time.Second
	took, err := e.takeKey(ctx, &t, candidate)
	// Taking the key may have used up the lease's lifetime. Then another candidate may win at any moment,
	// and this term never begins.
	if took && time.Now().Before(t.validUntil()) {
		return &t, nil
	}
	// The lease is revoked also after an error: the put may have arrived although its answer did not.
	return nil, errors.Join(err, e.revokeLease(ctx, t.lease))
}

func (e *Election) grantLease(ctx context.Context) (*clientv3.LeaseGrantResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	return e.client.Grant(ctx, int64(e.ttl/time.Second))
}

// takeKey writes the key if there is none. It asks again until an answer comes: when an answer was lost, the
// key may be there already, and our lease on it shows that it is ours.
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
		// A lease that is gone cannot carry the key any more; everything else may be tried again while it
		// lasts.
		if errors.Is(err, rpctypes.ErrLeaseNotFound) || !pause.waitPause(ctx) {
			return false, fmt.Errorf("taking the key: %w", err)
		}
	}
}

// takeKeyOnce returns the key as it is after one attempt, ours or not.
func (e *Election) takeKeyOnce(
	ctx context.Context, lease clientv3.LeaseID, candidate string,
) (*mvccpb.KeyValue, error) {
	ctx, cancel := context.WithTimeout(ctx, maxCall)
	defer cancel()
	// One transaction, so that no candidate can put its key between our look and our put. CreateRevision 0
	// means that there is no key.
	response, err := e.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(e.key), "=", 0)).
		Then(clientv3.OpPut(e.key, candidate, clientv3.WithLease(lease))).
		Else(clientv3.OpGet(e.key)).
		Commit()
	if err != nil {
		return nil, err
	}
	if response.Succeeded {
		// A put returns no key; its revision is the transaction's.
		return &mvccpb.KeyValue{ModRevision: response.Header.Revision, Lease: int64(lease)}, nil
	}
	return response.Responses[0].GetResponseRange().Kvs[0], nil
}

// revokeLease ends a lease, and with it the key that is attached to it, if there is one. Etcd never uses a
// lease's number again, so a request that arrives late or twice takes nothing from another candidate. It
// also works when ctx has ended.
func (e *Election) revokeLease(ctx context.Context, lease clientv3.LeaseID) error {
	ctx = context.WithoutCancel(ctx)
	err := e.revokeOnce(ctx, lease)
	if err != nil {
		err = e.revokeOnce(ctx, lease) // the client asks another member
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
	// It expired, or an earlier attempt succeeded and its answer was lost.
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return nil
	}
	return err
}
