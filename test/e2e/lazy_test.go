package e2e

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// Two servers on one Redis are asked for more than there is. In chunks not one too many passes; lazily no
// more than the limit at each, and soon both refuse. A server that is stopped tells the store of all.
func TestLazyAndChunksAtTwoServers(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	config := configFile(t, `
rules:
  - {match: tokenbucket/lazy, lazy: 100ms}
  - {match: tokenbucket/chunk, lazy: 100ms, chunk: 7}
`)
	servers := startShared(t, redis, 2, append(patient, "--config", config)...)
	const limit = 100
	for name, most := range map[string]int64{"chunk": limit, "lazy": 2 * limit} {
		acquire := fmt.Sprintf("/v1/tokenbucket/%s/acquire?size=%d&interval=86400000&maxwait=0", name, limit)
		var passed atomic.Int64
		var work sync.WaitGroup
		for i := range 8 {
			work.Go(func() {
				for range limit {
					if servers[i%2].get(t, acquire).is("204") {
						passed.Add(1)
					}
				}
			})
		}
		work.Wait()
		// What is in the chunk of the other server comes back.
		until(t, name+" is used up at both", func() bool {
			left := 0
			for _, s := range servers {
				if s.get(t, acquire).is("204") {
					passed.Add(1)
					left++
				}
			}
			return left == 0 && passed.Load() >= limit
		})
		if n := passed.Load(); n < limit || n > most {
			t.Errorf("%s: %d passed, want %d to %d", name, n, limit, most)
		}
		request := fmt.Sprintf("/v1/tokenbucket/%s/peek?size=%d&interval=86400000", name, limit)
		servers[0].want(t, request, "408")
	}
}
