package etcd

import (
	"context"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
)

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
