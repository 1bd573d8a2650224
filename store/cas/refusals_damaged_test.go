package cas_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A damaging backend answers with records of one name that cannot be read.
type damaging struct {
	*castest.Server
	name string
	on   atomic.Bool
}

func (d *damaging) Swap(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange,
) (cas.Reply, error) {
	reply, err := d.Server.Swap(ctx, key, change)
	if err == nil && d.on.Load() && key.Name == d.name {
		reply.Swapped, reply.Record = false, []byte("damaged")
	}
	return reply, err
}

// A record that cannot be read, as one of a later version, does not keep the refusals at other names from the
// store.
func TestOneNameDoesNotKeepBackTheRefusalsAtOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := castest.New(1, false)
		bad := &damaging{Server: store.Server(0), name: "bad"}
		near := cas.New(bad, cas.Config{Server: 1})
		other := cas.New(store.Server(0), cas.Config{Server: 2})
		defer other.Close()
		defer near.Close()
		names := []string{bad.name}
		for i := range 300 {
			names = append(names, fmt.Sprintf("n%d", i))
		}
		cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "a", Cost: 1} // of a size of 0
		for _, name := range names {
			for range 3 {
				if _, err := applyOne(near, named(gatehouse.Semaphore, name), cmd); err != nil {
					t.Fatal(err)
				}
			}
		}
		bad.on.Store(true)
		pass(10 * time.Second)
		late := 0
		for _, name := range names[1:] {
			if timedOut(t, other, named(gatehouse.Semaphore, name)) != 3 {
				late++
			}
		}
		if late > 0 {
			t.Errorf("after 10 s the refusals at %d of %d names are not stored", late, len(names)-1)
		}
		bad.on.Store(false)
	})
}
