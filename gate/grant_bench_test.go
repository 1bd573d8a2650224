package gate_test

import (
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// A caller that brings no room for the answer is given a list of its own, which is all that is allocated. It
// is compared with an acquire of each name.
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
	b.Run("four names, one grant into room", func(b *testing.B) {
		b.ReportAllocs()
		var room [4]gatehouse.MemberDecision
		for b.Loop() {
			d, err := g.DoGrantInto(b.Context(), cmd, room[:])
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
