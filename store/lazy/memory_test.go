//go:build !race

package lazy_test

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// DefaultNames says what memory they need.
func TestMemoryPerName(t *testing.T) {
	const names = 20_000
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: time.Hour}, 1)
		s := f.servers[0]
		visit := func(store gate.Store) (used uint64) {
			for range 2 {
				for i := range names {
					acquire(t, store, fmt.Sprintf("a name of %d bytes", i))
				}
			}
			runtime.GC()
			runtime.GC()
			var memory runtime.MemStats
			runtime.ReadMemStats(&memory)
			return memory.HeapAlloc
		}
		before := visit(s.swap)
		after := visit(s.lazy)
		each := (max(after, before) - before) / names
		t.Logf("%d bytes a name", each)
		if each > 1500 || s.lazy.Len() != names {
			t.Errorf("each of %d names needs %d bytes, want at most 1500", s.lazy.Len(), each)
		}
		f.close()
	})
}
