package disk

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// How many holds are granted a second, each by its own name, and how many transactions that takes.
func BenchmarkGrants(b *testing.B) {
	for _, writers := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			s, err := Open(b.TempDir(), Config{})
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = s.Close() }()
			before := s.db.Stats().TxStats
			began := time.Now()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := w; i < b.N; i += writers {
						cmd := gatehouse.Command{
							Op:   gatehouse.OpAcquire,
							Rule: gatehouse.Rule{Size: 1}, Cost: 1, Holder: "k", Expires: time.Minute,
						}
						key := gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprint("lock/", i%100_000)}
						change := control.Change{Key: key, Turns: []control.Turn{{Command: &cmd}}}
						if err := change.ApplyTo(s); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			after := s.db.Stats().TxStats
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "grants/s")
			b.ReportMetric(float64(b.N)/float64(after.GetSpill()-before.GetSpill()+1), "grants/spill")
		})
	}
}
