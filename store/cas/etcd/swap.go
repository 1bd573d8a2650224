package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

const (
	// fenceBits is how far etcd's revision is shifted to make a fencing token: a change, which has one
	// revision, may grant as many holds.
	fenceBits = 16

	// holdsPerTxn is how many holds go into a transaction within the transaction. Etcd takes 128
	// operations, if it is not told otherwise, less those of the one around it; so there may be 60 groups.
	holdsPerTxn = 50

	// maxHolder is how much of a holder stands beside the record, in bytes. It is there for people to read.
	maxHolder = 64
)

// Swap implements cas.Backend by one transaction. The leases of the holds that it begins are made before.
func (b *Backend) Swap(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange,
) (cas.Reply, error) {
	ctx, cancel := attemptContext(ctx)
	defer cancel()
	// The leases come first, because a transaction can name only leases that exist.
	g, err := b.leases.createForHolds(ctx, change.Begin)
	if err != nil {
		return cas.Reply{}, classifyError(err, false)
	}
	response, sent, err := b.commitChange(ctx, key, change, g)
	if err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			// Either lease may be meant; shared ones that are gone would fail every later change.
			b.pool.forgetAll()
		}
		if sent && errors.Is(err, rpctypes.ErrNoSpace) {
			return b.readAfterNoSpace(ctx, key, change, g)
		}
		err = classifyError(err, sent)
		if !mayBeDone(err) {
			b.leases.revokeSoon(g.allIDs()...) // otherwise the holds may be under them
		}
		return cas.Reply{}, err
	}
	return b.readReply(key, change, response, g)
}

// commitChange makes the transaction of a change. sent reports whether any of it may have been sent.
func (b *Backend) commitChange(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange, g leasesByLength,
) (response *clientv3.TxnResponse, sent bool, err error) {
	claim, err := b.newGuard(ctx, key, change)
	if err != nil {
		return nil, false, err
	}
	// The record needs a shared lease, which may have to be made first; until here nothing was sent.
	ops, err := b.changeOps(ctx, key, change, g)
	if err != nil {
		return nil, false, err
	}
	var noted atomic.Bool
	response, err = b.client.Txn(withSentFlag(clientv3.WithRequireLeader(ctx), &noted)).
		If(append(b.changeConditions(key, change), claim.conditions()...)...).
		Then(append(claim.successOps(), ops...)...).Else(b.readOps(key, &claim)...).Commit()
	// The results of the claim's operations stand first; the reader of the reply expects those of the
	// record.
	if err == nil && response.Succeeded && claim.replaced != 0 {
		response.Responses = response.Responses[len(claim.successOps()):]
		b.claims.forgetClaim(claim.key)
	}
	return response, noted.Load(), err
}

// readAfterNoSpace tells what became of a change that etcd had no space for: it says so too when it has
// just made it, and takes no other after that. A record that is another one than before is answered like a
// conflict; the nonces in it tell which it was.
func (b *Backend) readAfterNoSpace(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange, g leasesByLength,
) (cas.Reply, error) {
	look := b.readOps(key, &claimGuard{key: b.keys.claimKey(key)})
	response, err := b.client.Txn(clientv3.WithRequireLeader(ctx)).Then(look...).Commit()
	if err != nil {
		return cas.Reply{}, fmt.Errorf("%w, and whether it made the change: %w", rpctypes.ErrNoSpace, err)
	}
	// It is read like a conflict: the present record tells, by its nonces, whether the change was made.
	response.Succeeded = false
	r, err := b.readReply(key, change, response, g)
	if err == nil && r.Version == change.If {
		err = classifyError(rpctypes.ErrNoSpace, true)
	}
	return r, err
}

// changeConditions are what must hold for the change to be made.
func (b *Backend) changeConditions(key gatehouse.Key, change *cas.RecordChange) []clientv3.Cmp {
	version := int64(-1) // which no key has
	if change.If <= math.MaxInt64 {
		version = int64(change.If)
	}
	// The revision of the last write is the version of a record, 0 where there is none.
	all := []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(b.keys.recordKey(key)), "=", version)}
	if version == 0 && !change.Read && hasHolds(key.Kind) {
		// Should a record be lost while something is held, no client may be granted it a second time.
		none := clientv3.Compare(clientv3.CreateRevision(b.keys.holdPrefix(key)), "=", 0)
		all = append(all, none.WithPrefix())
	}
	return all
}

// changeOps are what the change does. The last one tells what is held after it.
func (b *Backend) changeOps(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange, g leasesByLength,
) (ops []clientv3.Op, err error) {
	switch {
	case change.Read:
	case change.Next == nil:
		ops = append(ops, clientv3.OpDelete(b.keys.recordKey(key)))
	default:
		lease, err := b.pool.leaseFor(ctx, change.Keep)
		if err != nil {
			return nil, err
		}
		ops = append(ops,
			clientv3.OpPut(b.keys.recordKey(key), sealRecord(change), clientv3.WithLease(lease)))
	}
	var holds []clientv3.Op
	for i := range change.Begin {
		h := &change.Begin[i]
		holder := h.Holder[:min(len(h.Holder), maxHolder)]
		// The former key comes back with its lease, which is revoked when nothing is under it any more.
		holds = append(holds, clientv3.OpPut(b.keys.holdKey(key, h.Fence), holder,
			clientv3.WithLease(g[ttl(h.Expires)]), clientv3.WithPrevKV()))
	}
	for i := range change.End {
		holds = append(holds,
			clientv3.OpDelete(b.keys.holdKey(key, change.End[i].Fence), clientv3.WithPrevKV()))
	}
	// A transaction inside counts as one operation of the outer one, so a change fits within the limit of
	// etcd.
	for len(holds) > holdsPerTxn {
		ops = append(ops, clientv3.OpTxn(nil, holds[:holdsPerTxn], nil))
		holds = holds[holdsPerTxn:]
	}
	if len(holds) > 0 {
		ops = append(ops, clientv3.OpTxn(nil, holds, nil))
	}
	// Last, so that it shows the holds as they are after the change.
	if hasHolds(key.Kind) {
		ops = append(ops, b.readHolds(key))
	}
	return ops, nil
}

// readOps is what is done when the record is another one.
func (b *Backend) readOps(key gatehouse.Key, claim *claimGuard) []clientv3.Op {
	ops := append([]clientv3.Op{clientv3.OpGet(b.keys.recordKey(key))}, claim.failureOps()...)
	if hasHolds(key.Kind) {
		ops = append(ops, b.readHolds(key))
	}
	return ops
}

// readHolds asks for the holds with their leases, which etcd does not tell with the keys only.
func (b *Backend) readHolds(key gatehouse.Key) clientv3.Op {
	return clientv3.OpGet(b.keys.holdPrefix(key), clientv3.WithPrefix())
}

// readReply reads the answer to a transaction.
func (b *Backend) readReply(
	key gatehouse.Key, change *cas.RecordChange, response *clientv3.TxnResponse, g leasesByLength,
) (cas.Reply, error) {
	revision := uint64(response.Header.Revision) // it counts from 1
	r := cas.Reply{Swapped: response.Succeeded, Now: b.localTime(), MinFence: (revision + 1) << fenceBits}
	results := response.Responses
	used := map[int64]bool{}
	if hasHolds(key.Kind) {
		// The holds are always the last result, see changeOps and readOps.
		last := len(results) - 1
		r.Live = make(map[uint64]bool)
		for _, kv := range results[last].GetResponseRange().Kvs {
			r.Live[fenceOf(kv.Key)], used[kv.Lease] = true, true
		}
		results = results[:last]
	}
	switch {
	case !r.Swapped:
		// The change was not made, so its new leases hold nothing.
		b.leases.revokeSoon(g.unusedIDs(used)...)
		if kvs := results[0].GetResponseRange().Kvs; len(kvs) > 0 {
			r.Record = unsealRecord(kvs[0].Value)
			r.Version = uint64(kvs[0].ModRevision) // as above
		} else if len(r.Live) > 0 {
			// The record was lost but holds are left. Granting now could grant twice.
			return cas.Reply{}, fmt.Errorf("%w: %d holds in etcd below %s without a record",
				cas.ErrRefused, len(r.Live), b.keys.holdPrefix(key))
		}
		if !change.Read {
			claim := results[len(results)-1].GetResponseRange().Kvs
			r.Claimed = b.claims.noteClaim(b.keys.claimKey(key), claim, change.Server)
		}
	case change.Read:
		r.Version = change.If
	default:
		if change.Next != nil {
			r.Version = revision
		}
		b.freeUnused(results, used)
	}
	return r, nil
}

// freeUnused gives the leases of holds back that were ended or got new ones, unless another hold, which began
// together with them, is still under them.
func (b *Backend) freeUnused(results []*pb.ResponseOp, used map[int64]bool) {
	for _, result := range results {
		previous := result.GetResponseDeleteRange().GetPrevKvs()
		if kv := result.GetResponsePut().GetPrevKv(); kv != nil {
			previous = append(previous, kv)
		}
		// Marked as used, so that a lease of several holds is given back once.
		for _, kv := range previous {
			if kv.Lease != 0 && !used[kv.Lease] {
				used[kv.Lease] = true
				b.leases.revokeSoon(clientv3.LeaseID(kv.Lease))
			}
		}
		b.freeUnused(result.GetResponseTxn().GetResponses(), used)
	}
}

// sealRecord is what is stored of a record: how many servers are to be told of it, in 2 bytes, each of them
// in 4, and the record. Too many to be counted are all.
func sealRecord(change *cas.RecordChange) string {
	wake, number := change.Wake, uint16(len(change.Wake)) // checked in the next line
	// The count has 2 bytes; its greatest value means all servers.
	if len(wake) >= allServers {
		wake, number = nil, allServers
	}
	data := make([]byte, 0, 2+4*len(wake)+len(change.Next))
	data = binary.BigEndian.AppendUint16(data, number)
	for _, server := range wake {
		data = binary.BigEndian.AppendUint32(data, server)
	}
	return string(append(data, change.Next...))
}

// allServers stands for all servers.
const allServers = math.MaxUint16

// unsealRecord is the record in what is stored, empty when that is damaged.
func unsealRecord(data []byte) []byte {
	_, record := splitStored(data)
	return record
}

// splitStored takes apart what is stored. What is damaged wakes no server and is an empty record, which is
// reported to the caller that asks for it.
func splitStored(data []byte) (wake, record []byte) {
	if len(data) < 2 {
		return nil, []byte{}
	}
	number := int(binary.BigEndian.Uint16(data))
	data = data[2:]
	if number == allServers {
		return nil, data
	}
	// An empty record, not none: none would let a new controller replace the damaged one.
	if len(data) < 4*number {
		return nil, []byte{}
	}
	return data[:4*number], data[4*number:]
}

// wakesServer reports whether a server is to be told of what is stored.
func wakesServer(data []byte, server uint32) bool {
	if len(data) >= 2 && binary.BigEndian.Uint16(data) == allServers {
		return true
	}
	wake, _ := splitStored(data)
	for ; len(wake) >= 4; wake = wake[4:] {
		if binary.BigEndian.Uint32(wake) == server {
			return true
		}
	}
	return false
}
