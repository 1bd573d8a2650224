package lazy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// A caller that was told that a name is decided in memory does not wait for the store, although the
// name is not used in that interval and would be forgotten before the caller's command comes.
func TestANameIsKeptForWhoeverAskedWhetherItIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
		defer f.close()
		s, key := f.servers[0], gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1,
			Rule: gatehouse.Rule{Size: 1000, Interval: time.Hour, Burst: 100},
		}
		for i := range 20 {
			f.must(s, key, cmd)
			f.must(s, key, cmd)
			<-time.After(time.Duration(100+i*9) * interval / 100) // until some time in or after the next
			if s.lazy.Slow(key) {
				continue // it was forgotten before
			}
			<-time.After(interval * 9 / 10)
			s.backend.Cut(true)
			began := time.Now()
			err := s.lazy.Apply(context.Background(), key, []control.Turn{{Command: &cmd}})
			if took := time.Since(began); err != nil || took > 0 {
				t.Errorf("%d: Apply after Slow had said no = %v after %v, want at once", i, err, took)
			}
			s.backend.Cut(false)
			<-time.After(5 * time.Second)
		}
	})
}
