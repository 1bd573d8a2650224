package redis_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// Two servers on a cluster grant over four names in several slots at once.
func TestGrantsOfTwoServersOnACluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	checkGrantsOfTwoServers(t, []string{nodes[0].Address, nodes[1].Address})
}

// A server that ends in the midst of its grants leaves no name with less than what its records say, for
// longer than 5 s.
func TestGrantsOfAServerThatEndsOnACluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	const size = 100_000
	backend := open(t, "redis://"+nodes[0].Address)
	redistest.Until(t, func() bool { return backend.Ping(soonest(t)) == nil })
	store := cas.New(backend, cas.Config{Server: 1})
	var mu sync.Mutex
	var work sync.WaitGroup
	known := 0
	for c := range 3 {
		work.Go(func() {
			for i := 0; ; i++ {
				d, err := decideGrant(store, grantOf(fmt.Sprint(c, "-", i), size, grantNames()))
				mu.Lock()
				if err == nil && d.Outcome == gatehouse.Granted {
					known++
				}
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	redistest.Until(t, func() bool { mu.Lock(); defer mu.Unlock(); return known > 50 })
	backend.Close() // in the midst
	work.Wait()
	store.Close()
	other := open(t, "redis://"+nodes[1].Address)
	redistest.Until(t, func() bool { return other.Ping(soonest(t)) == nil })
	s := newServer(t, other, 2)
	began := time.Now()
	redistest.Until(t, func() bool {
		_, err := decideGrant(s.store, grantOf("after", size, grantNames()))
		return err == nil
	})
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("names were closed for %s, want 5s at most", took)
	}
	free := int64(-1)
	for _, k := range grantNames() {
		n := freeOf(t, s, k, size)
		if free >= 0 && n != free {
			t.Errorf("%s: %d are free, and %d of the others", k, n, free)
		}
		free = n
	}
	if taken := size - free; taken < int64(known)+1 {
		t.Errorf("%d are taken, want at least %d, of which their callers know", taken, known+1)
	}
}
