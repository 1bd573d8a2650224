package gate_test

import (
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// A caller that waits for the answer is given a list of its own, which is all that is allocated. It is
// compared with an acquire of each name.
func BenchmarkDoGrant(b *testing.B) {
	g, cmd := newGate(), limitersOf(4)
	b.Run("four names, one grant", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d, err := g.DoGrant(b.Context(), cmd)
			if err != nil || d.Outcome != gatehouse.Granted {
				b.Fatal(d, err)
			}
		}
	})
	acquire := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: cmd.Want[0].Rule, Cost: 1}
	b.Run("four names, four acquires", func(b *testing.B) {
		for b.Loop() {
			for i := range cmd.Want {
				d, err := g.Do(b.Context(), cmd.Want[i].Key, acquire)
				if err != nil || d.Outcome != gatehouse.Granted {
					b.Fatal(d, err)
				}
			}
		}
	})
}
