package etcd

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A claim is a key beside the record: the server in 4 bytes, and for how many microseconds the others wait in
// 8. A change compares the revision of that key too, 0 as long as its server knows of none. Etcd has no clock
// that can be asked, so each server counts the time of a claim from when it first saw it.

// claimSize is the length of a claim.
const claimSize = 4 + 8

// maxClaims is how many claims a server remembers. One that was forgotten is waited for again.
const maxClaims = 1000

// claimTable are the claims that are known.
type claimTable struct {
	mu    sync.Mutex
	known map[string]seenClaim // by their keys
}

// A seenClaim is one that was seen.
type seenClaim struct {
	revision int64 // at which it was written last
	server   uint32
	until    time.Time // by this server's clock
}

// revisionFor is the revision of the claim that a change compares. The claim does not bar the change: there
// is none, it has ended, or it is the server's own.
func (c *claimTable) revisionFor(key string, server uint32) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	one, ok := c.known[key]
	// Another server's claim that still lasts is compared as absent, so that it fails the change.
	if !ok || one.server != server && time.Now().Before(one.until) {
		return 0
	}
	return one.revision
}

// noteClaim notes the present claim of a key, and returns for how much longer it bars changes of this server.
func (c *claimTable) noteClaim(key string, kvs []*mvccpb.KeyValue, server uint32) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(kvs) == 0 || len(kvs[0].Value) != claimSize {
		delete(c.known, key)
		return 0
	}
	kv := kvs[0]
	if one, ok := c.known[key]; !ok || one.revision != kv.ModRevision {
		// The table is bounded by forgetting all: a claim that is seen again only starts its time again.
		if len(c.known) >= maxClaims {
			clear(c.known)
		}
		// The time counts from the first sight of this revision: etcd has no clock that can be asked.
		lasts := int64(binary.BigEndian.Uint64(kv.Value[4:])) // written from one
		c.known[key] = seenClaim{
			kv.ModRevision, binary.BigEndian.Uint32(kv.Value),
			time.Now().Add(time.Duration(lasts) * time.Microsecond),
		}
	}
	one := c.known[key]
	if one.server == server {
		return 0
	}
	return max(0, time.Until(one.until))
}

// forgetClaim forgets the claim of a key, which is there no more.
func (c *claimTable) forgetClaim(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.known, key)
}

// A claimGuard is what keeps a change from passing the claim of another server.
type claimGuard struct {
	key      string        // the key of the claim; "" for a read, which no claim bars
	replaced int64         // the revision of a claim that does not bar the change, 0 if none is known
	reads    bool          // nothing is to be changed
	claimOps []clientv3.Op // claims the record if the change is not made
}

// newGuard makes the guard of a change.
func (b *Backend) newGuard(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange,
) (claimGuard, error) {
	if change.Read && change.Claim == 0 {
		return claimGuard{}, nil
	}
	// Of several records those that are only read are claimed too, and no claim bars them.
	g := claimGuard{key: b.keys.claimKey(key), reads: change.Read}
	g.replaced = b.claims.revisionFor(g.key, change.Server)
	if change.Claim == 0 {
		return g, nil
	}
	// The lease removes the claims of servers that died, at names that are not used.
	lease, err := b.pool.leaseFor(ctx, change.Claim)
	if err != nil {
		return g, err
	}
	data := binary.BigEndian.AppendUint32(nil, change.Server)
	data = binary.BigEndian.AppendUint64(data, uint64(change.Claim.Microseconds())) // above 0
	put := clientv3.OpPut(g.key, string(data), clientv3.WithLease(lease))
	// The claim has the same condition inside the failed transaction: it must not replace one that was made
	// meanwhile.
	g.claimOps = []clientv3.Op{clientv3.OpTxn(g.unclaimed(), []clientv3.Op{put}, nil)}
	return g, nil
}

// unclaimed is that no claim is there but one that bars nothing.
func (g *claimGuard) unclaimed() []clientv3.Cmp {
	return []clientv3.Cmp{clientv3.Compare(clientv3.ModRevision(g.key), "=", g.replaced)}
}

// conditions are what must hold so that no claim bars the change.
func (g *claimGuard) conditions() []clientv3.Cmp {
	if g.key == "" || g.reads {
		return nil
	}
	return g.unclaimed()
}

// successOps is what a change does to the claim that it replaces.
func (g *claimGuard) successOps() []clientv3.Op {
	if g.replaced == 0 || g.reads {
		return nil
	}
	return []clientv3.Op{clientv3.OpDelete(g.key)}
}

// failureOps is what a change that is not made does to the claim, and asks of it.
func (g *claimGuard) failureOps() []clientv3.Op {
	if g.key == "" {
		return nil
	}
	return append(g.claimOps, clientv3.OpGet(g.key))
}
