package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A jointSwap is a change of several records, which is one transaction.
type jointSwap struct {
	*Backend
	keys    []gatehouse.Key
	changes []cas.RecordChange
	leases  []leasesByLength
	guards  []claimGuard

	conditions       []clientv3.Cmp
	success, failure []clientv3.Op
	successEnds      []int // where the operations of each record end
	failureEnds      []int
	claimSpan        int // how many operations the claims are, behind all others
}

// SwapTogether implements cas.Backend by one transaction. The leases of the holds that it begins are made
// before: of each name its own, so that a hold that is ended alone takes no other one with it.
func (b *Backend) SwapTogether(
	ctx context.Context, keys []gatehouse.Key, changes []cas.RecordChange,
) ([]cas.Reply, error) {
	ctx, cancel := attemptContext(ctx)
	defer cancel()
	j := &jointSwap{Backend: b, keys: keys, changes: changes}
	if err := j.makeLeases(ctx); err != nil {
		return nil, classifyError(err, false)
	}
	var noted atomic.Bool
	err := j.buildTransaction(ctx)
	var response *clientv3.TxnResponse
	if err == nil {
		response, err = b.client.Txn(withSentFlag(clientv3.WithRequireLeader(ctx), &noted)).
			If(j.conditions...).Then(j.success...).Else(j.failure...).Commit()
	}
	if err == nil {
		return j.readReplies(response)
	}
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		b.pool.forgetAll() // it may be one that records share
	}
	if noted.Load() && errors.Is(err, rpctypes.ErrNoSpace) {
		return j.readAfterNoSpace(ctx)
	}
	err = classifyError(err, noted.Load())
	if !mayBeDone(err) {
		j.revokeAll()
	}
	return nil, err
}

// makeLeases makes the leases of the holds of all names at once.
func (j *jointSwap) makeLeases(ctx context.Context) error {
	j.leases = make([]leasesByLength, len(j.keys))
	errs := make([]error, len(j.keys))
	var work sync.WaitGroup
	for i := range j.changes {
		if len(j.changes[i].Begin) > 0 {
			work.Go(func() {
				j.leases[i], errs[i] = j.Backend.leases.createForHolds(ctx, j.changes[i].Begin)
			})
		}
	}
	work.Wait()
	err := errors.Join(errs...)
	if err != nil {
		// Those that were made would end by themselves, and take room in etcd until then.
		j.revokeAll()
	}
	return err
}

func (j *jointSwap) revokeAll() {
	for _, g := range j.leases {
		j.Backend.leases.revokeSoon(g.allIDs()...)
	}
}

// buildTransaction puts together what the records are compared by, and what is done to all of them.
func (j *jointSwap) buildTransaction(ctx context.Context) error {
	j.guards = make([]claimGuard, len(j.keys))
	for i, key := range j.keys {
		change := &j.changes[i]
		var err error
		j.guards[i], err = j.newGuard(ctx, key, change)
		if err != nil {
			return err
		}
		guard := &j.guards[i]
		ops, err := j.changeOps(ctx, key, change, j.leases[i])
		if err != nil {
			return err
		}
		if len(ops) == 0 {
			// A transaction within tells nothing, but has a place among the results.
			ops = []clientv3.Op{clientv3.OpTxn(nil, nil, nil)}
		}
		j.conditions = append(append(j.conditions, j.changeConditions(key, change)...), guard.conditions()...)
		j.success = append(append(j.success, ops...), guard.successOps()...)
		j.successEnds = append(j.successEnds, len(j.success))
		// The claim itself stands behind all that is read: it depends on the other claims.
		look := *guard
		look.claimOps = nil
		j.failure = append(j.failure, j.readOps(key, &look)...)
		j.failureEnds = append(j.failureEnds, len(j.failure))
	}
	j.claimTogether()
	return nil
}

// claimTogether has the records claimed if the change is not made: all of them, or none if another server has
// claimed one, so that no two servers wait for each other. What there is not is not claimed.
func (j *jointSwap) claimTogether() {
	var free []clientv3.Cmp
	var claims []clientv3.Op
	for i := range j.guards {
		g := &j.guards[i]
		if len(g.claimOps) == 0 {
			return
		}
		_, claim, _ := g.claimOps[0].Txn() // the part that claims
		free = append(free, g.unclaimed()...)
		there := clientv3.Compare(clientv3.CreateRevision(j.Backend.keys.recordKey(j.keys[i])), ">", 0)
		claims = append(claims, clientv3.OpTxn([]clientv3.Cmp{there}, claim, nil))
	}
	j.failure = append([]clientv3.Op{clientv3.OpTxn(free, claims, nil)}, j.failure...)
	j.claimSpan = 1
}

// readReplies reads the answer to the transaction, about each record.
func (j *jointSwap) readReplies(response *clientv3.TxnResponse) ([]cas.Reply, error) {
	results, ends := response.Responses, j.successEnds
	if !response.Succeeded {
		results, ends = results[j.claimSpan:], j.failureEnds
	}
	replies, from, all := make([]cas.Reply, len(j.keys)), 0, true
	for i, key := range j.keys {
		one := results[from:ends[i]]
		from = ends[i]
		if response.Succeeded && len(j.guards[i].successOps()) > 0 {
			// The last result is that of the claim that was removed.
			one = one[:len(one)-1]
			j.claims.forgetClaim(j.guards[i].key)
		}
		var err error
		replies[i], err = j.readOne(key, i, response, one)
		if err != nil {
			return nil, err
		}
		all = all && replies[i].Swapped
	}
	// What was compared is all as it was: it was a claim that has just ended, or was not known.
	if all && !response.Succeeded {
		replies[0].Swapped = false
	}
	return replies, nil
}

// readOne reads the results about one record.
func (j *jointSwap) readOne(
	key gatehouse.Key, i int, response *clientv3.TxnResponse, results []*pb.ResponseOp,
) (cas.Reply, error) {
	change := &j.changes[i]
	part := &clientv3.TxnResponse{
		Header: response.Header, Succeeded: response.Succeeded, Responses: results,
	}
	r, err := j.readReply(key, change, part, j.leases[i])
	if err != nil {
		return r, fmt.Errorf("%s: %w", key, err)
	}
	if response.Succeeded {
		return r, nil
	}
	const claimAt = 1 // behind the record
	if guard := &j.guards[i]; guard.key != "" {
		claim := results[claimAt].GetResponseRange().Kvs
		claimed := j.claims.noteClaim(guard.key, claim, change.Server)
		if !change.Read { // which no claim bars
			r.Claimed = claimed
		}
	}
	r.Swapped = r.Version == change.If && r.Claimed == 0
	return r, nil
}

// readAfterNoSpace tells what became of changes that etcd had no space for, as of a single one.
func (j *jointSwap) readAfterNoSpace(ctx context.Context) ([]cas.Reply, error) {
	response, err := j.client.Txn(clientv3.WithRequireLeader(ctx)).
		Then(j.failure[j.claimSpan:]...).Commit()
	if err != nil {
		return nil, fmt.Errorf("%w, and whether it made the changes: %w", rpctypes.ErrNoSpace, err)
	}
	response.Succeeded, j.claimSpan = false, 0
	replies, err := j.readReplies(response)
	if err != nil {
		return nil, err
	}
	for i := range replies {
		if replies[i].Version != j.changes[i].If {
			return replies, nil
		}
	}
	j.revokeAll()
	return nil, classifyError(rpctypes.ErrNoSpace, true)
}
