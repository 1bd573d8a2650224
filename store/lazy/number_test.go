package lazy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// An undo of what a chunk let through does not go to a chunk that was taken after the name was forgotten.
func TestUndoAfterTheNameWasForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 50}, 1)
		key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 100, Calendar: gatehouse.Day},
		}
		first := f.must(f.servers[0], key, cmd)
		<-time.After(5 * interval) // the chunk is given back, and the name is forgotten
		f.must(f.servers[0], key, gatehouse.Command{Op: gatehouse.OpReset})
		before := f.total()
		f.must(f.servers[0], key, cmd)
		f.takeBack(f.servers[0], key, cmd, first)
		f.exhaust(f.servers[0], key, cmd)
		if n := f.total() - before; n > cmd.Size {
			t.Errorf("%d passed after a reset, want at most %d", n, cmd.Size)
		}
		f.close()
	})
}
