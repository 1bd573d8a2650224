package capacity

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// TestWeight: what a server says that it keeps weighs between two thirds of what it takes on the heap and one
// and a half times as much, with few leases on many resources and many on few.
func TestWeight(t *testing.T) {
	for _, test := range []struct{ resources, clients, demands, name int }{
		{4000, 1, 1, 20}, {1, 50_000, 1, 20}, {1, 50_000, 1, 300}, {100, 500, 1, 20}, {10, 2000, 5, 20},
	} {
		v := newBench(t, "FAIR_SHARE capacity=1e9")
		before := heapInUse()
		for n := range test.resources * test.clients {
			resource, client := n/test.clients, n%test.clients
			q := Request{Resource: fmt.Sprintf("%0*d", test.name, resource)}
			for p := range test.demands {
				q.Demands = append(q.Demands, Demand{Priority: int64(p), Clients: 1, Wants: float64(n % 977)})
			}
			if _, err := v.Lease(v.now, fmt.Sprintf("%0*d", test.name, client), &q); err != nil {
				t.Fatal(err)
			}
		}
		weight, used := v.Weight(), heapInUse()-before
		t.Logf("%+v: %d bytes a lease by weight, %d on the heap: %.2f", test, weight/v.leaseCount,
			used/v.leaseCount, float64(weight)/float64(used))
		if 3*weight < 2*used || 2*weight > 3*used {
			t.Errorf("%+v: %d bytes by weight, %d on the heap", test, weight, used)
		}
		runtime.KeepAlive(v)
	}
}

func heapInUse() int {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestTotals: leases are bounded together, and by memory; what is known goes on, and what ends makes room.
func TestTotals(t *testing.T) {
	for _, limit := range []string{"leases", "memory"} {
		v := newBench(t, "FAIR_SHARE capacity=100")
		if limit == "leases" {
			v.limits.LeasesTotal = 10
		} else {
			v.BoundMemory(func() int64 { return 7500 - int64(v.Weight()) })
		}
		lease := func(client, resource string) error {
			_, err := v.Lease(v.now, client, &Request{
				Resource: resource, Demands: []Demand{{Clients: 1, Wants: 1}},
			})
			return err
		}
		n, err := 0, error(nil)
		for ; n < 100 && err == nil; n++ {
			err = lease(fmt.Sprint(n), fmt.Sprint(n/2))
		}
		n-- // the last was refused
		if gatehouse.CodeOf(err) != gatehouse.CodeExhausted || !strings.Contains(err.Error(), limit) {
			t.Errorf("%s: after %d leases the error is %v", limit, n, err)
		}
		if n < 5 || n > 15 || v.leaseCount != n || len(v.resources) > (n+1)/2 {
			t.Errorf("%s: %d leases on %d resources, granted %d", limit, v.leaseCount, len(v.resources), n)
		}
		if err := lease("0", "0"); err != nil {
			t.Errorf("%s: a lease that is known: %v", limit, err)
		}
		v.Release(v.now, "0", "0")
		if err := lease("new", "0"); err != nil {
			t.Errorf("%s: after a release: %v", limit, err)
		}
		v.now = v.now.Add(time.Hour)
		v.Expire(v.now)
		if v.Weight() != 0 || v.leaseCount != 0 {
			t.Errorf("%s: when all have ended there are %d leases of %d bytes",
				limit, v.leaseCount, v.Weight())
		}
	}
}
