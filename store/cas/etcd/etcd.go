// Package etcd keeps records in etcd, for a cas.Store. A record is one key, replaced by a transaction that
// compares the revision at which it was written last. A hold has a key of its own beside the record; one
// that has an end is under a lease of its own, so that etcd ends it, by no server's clock.
package etcd

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcd"
	"github.com/gatehousehq/gatehouse/store/cas"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// defaultPrefix is where all keys are when the address has no path.
const defaultPrefix = "/gatehouse/"

// A Backend keeps records in etcd. It is for one cas.Store at a time.
type Backend struct {
	client *clientv3.Client
	keys   keys
	leases leases
	pool   leasePool
	claims claimTable

	start time.Time // of its clock
	close sync.Once
}

// Open returns a backend for an address such as
//
//	etcd://user:password@host1:2379,host2:2379/gatehouse/
//
// The path is what all keys begin with, /gatehouse/ when it is left out. Servers that are to share
// controllers have the same. Etcd need not be there yet, unless the address has a user. The caller closes the
// backend after the store that uses it.
func Open(address string) (*Backend, error) { return openBackend(address) }

// Check says what is wrong with an address, nil when Open would take it. It makes no connection.
func Check(address string) error {
	_, query, err := etcd.Check(withPath(address))
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	for name := range query {
		return fmt.Errorf("store: etcd address: parameter %q is unknown, want none", name)
	}
	return nil
}

func openBackend(address string, options ...grpc.DialOption) (*Backend, error) {
	if err := Check(address); err != nil {
		return nil, err
	}
	address = withPath(address)
	client, path, _, err := etcd.Open(address, append(options, grpc.WithStatsHandler(sentTracker{}))...)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background()) // until the backend is closed
	b := &Backend{
		client: client, keys: keys(strings.TrimRight(path, "/") + "/"), start: time.Now(),
		leases: leases{client: pb.NewLeaseClient(client.ActiveConnection()), ctx: ctx, cancel: cancel},
	}
	b.pool.leases, b.pool.byLength = &b.leases, make(map[int]*sharedLease)
	b.claims.known = make(map[string]seenClaim)
	return b, nil
}

// withPath gives an address that has no path the default one.
func withPath(address string) string {
	rest, query, asks := strings.Cut(address, "?")
	scheme, behind, ok := strings.Cut(rest, "://")
	hosts, path, _ := strings.Cut(behind, "/")
	if !ok || path != "" {
		return address
	}
	rest = scheme + "://" + hosts + defaultPrefix
	if asks {
		return rest + "?" + query
	}
	return rest
}

// Close ends the connections. Leases that are of no use any more are given back if etcd answers soon; the
// others end by themselves.
func (b *Backend) Close() error {
	var err error
	b.close.Do(func() {
		b.leases.close()
		err = b.client.Close()
	})
	return err
}

// Traits implements cas.Backend. Fencing tokens rest on etcd's revision, which never goes back.
func (b *Backend) Traits() cas.Traits {
	return cas.Traits{Fences: true, ExpiresHolds: true, Claims: true, KeyOf: b.keys.recordKey}
}

// localTime is this server's time, as etcd has none: the wall clock as it was at the start, and what has
// passed since by the monotonic one.
func (b *Backend) localTime() time.Time { return b.start.Round(0).Add(time.Since(b.start)) }

// attemptContext bounds one attempt by half of the time there is, so that another one, of another member,
// can be made after it: the client asks its members in turn.
func attemptContext(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := maxCall
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, limit)
}

// maxCall is how long etcd may take for one answer, also while it elects a leader.
const maxCall = 2 * time.Second

const (
	// pageSize is how many records are asked for at once; each may have half a MiB.
	pageSize = 50
	// pageTimeout is how long one question may take.
	pageTimeout = 5 * time.Second
)

// Range implements cas.Backend. Each page is what the majority knows when it is asked for.
func (b *Backend) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(name string, record []byte) bool,
) error {
	prefix := b.keys.recordPrefix(kind)
	end := clientv3.GetPrefixRangeEnd(prefix)
	from := prefix
	if after != "" {
		// The zero byte makes the least key that comes after this name.
		from += after + "\x00"
	}
	for {
		response, err := b.readPage(ctx, from, end)
		if err != nil {
			return gatehouse.Errorf(gatehouse.CodeUnavailable, "listing of %s: the store does not answer: %w",
				kind, err)
		}
		for _, kv := range response.Kvs {
			name := strings.TrimPrefix(string(kv.Key), prefix)
			if !visit(name, unsealRecord(kv.Value)) {
				return nil
			}
		}
		if !response.More {
			return nil
		}
		// The next page begins behind the last key of this one.
		from = string(response.Kvs[len(response.Kvs)-1].Key) + "\x00"
	}
}

func (b *Backend) readPage(ctx context.Context, from, end string) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, pageTimeout)
	defer cancel()
	response, err := b.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(pageSize))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return response, nil
}
