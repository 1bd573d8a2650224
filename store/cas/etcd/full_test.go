//go:build linux || darwin

package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// An etcd that is about to be full makes some changes and answers even so that it has no space. Those that
// count as refused are not among them.
func TestFullEtcd(t *testing.T) {
	t.Setenv("ETCD_QUOTA_BACKEND_BYTES", "16000000")
	b := backend(t, etcdtest.Start(t, 1).URL(""))
	const writers, most = 16, 100
	var work sync.WaitGroup
	refused := make(chan gatehouse.Key, writers)
	for writer := range writers {
		work.Go(func() {
			for i := range most {
				key := named(gatehouse.Counter, fmt.Sprintf("%d-%d", writer, i))
				if err := fill(b, key); errors.Is(err, cas.ErrRefused) {
					refused <- key
					return
				}
			}
			t.Errorf("after %d changes nothing is refused", most)
		})
	}
	work.Wait()
	close(refused)
	for key := range refused {
		r, err := b.Swap(t.Context(), key, &cas.RecordChange{If: 1<<64 - 1, Read: true})
		if err != nil || r.Record != nil {
			t.Errorf("%s was refused, and there is a record of %d bytes, %v", key, len(r.Record), err)
		}
	}
}

// fill puts a large record.
func fill(b *Backend, key gatehouse.Key) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*stall)
	defer cancel()
	record := make([]byte, 400<<10)
	const nonce = 7
	binary.BigEndian.PutUint64(record[cas.NonceAt:], nonce)
	_, err := b.Swap(ctx, key, &cas.RecordChange{Next: record, Nonce: nonce, Keep: 10 * time.Hour})
	return err
}
