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
	// page is how many records are asked for at once; each may have half a MiB.
	page = 50
	// maxPage is how long one question may take.
	maxPage = 5 * time.Second
)

// Range implements swap.Backend. Each page is what the majority knows when it is asked for.
func (b *Backend) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(name string, record []byte) bool,
) error {
	prefix := b.keys.records(kind)
	end := clientv3.GetPrefixRangeEnd(prefix)
	from := prefix
	if after != "" {
		from += after + "\x00"
	}
	for {
		response, err := b.page(ctx, from, end)
		if err != nil {
			return gatehouse.Errorf(gatehouse.CodeUnavailable, "listing of %s: the store does not answer: %w",
				kind, err)
		}
		for _, kv := range response.Kvs {
			name := strings.TrimPrefix(string(kv.Key), prefix)
			if !visit(name, unseal(kv.Value)) {
				return nil
			}
		}
		if !response.More {
			return nil
		}
		from = string(response.Kvs[len(response.Kvs)-1].Key) + "\x00"
	}
}

func (b *Backend) page(ctx context.Context, from, end string) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, maxPage)
	defer cancel()
	response, err := b.client.Get(ctx, from, clientv3.WithRange(end), clientv3.WithLimit(page))
	if err != nil {
		return nil, fmt.Errorf("etcd: %w", err)
	}
	return response, nil
}
