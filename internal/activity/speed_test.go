package activity

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A search among 100,000 names, pauses included.
func BenchmarkSearchAll(b *testing.B) {
	m, g := newMonitor(nil)
	for i := range 100_000 {
		name := gatehouse.Key{Kind: gatehouse.GCRA, Name: fmt.Sprintf("user:%05d", i)}
		_, _ = g.Gate.Do(b.Context(), name, gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 30, Interval: time.Minute},
		})
	}
	for b.Loop() {
		r, err := m.scanNames(b.Context(), Query{Sort: sortBusy, Limit: 100})
		if err != nil || len(r.Rows) != 100 {
			b.Fatal(len(r.Rows), err)
		}
	}
}
