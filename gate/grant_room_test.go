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
			d, err := g.DoGrantInto(b.Context(), &cmd, room[:])
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

// Room that a caller brings has the answer, as far as it goes; nothing of what was in it is left.
func TestGrantIntoRoom(t *testing.T) {
	g := newGate()
	for names := range 4 {
		cmd := limitersOf(names + 1)
		room := make([]gatehouse.MemberDecision, 2)
		room[0].Message, room[1].Cost = "of an earlier answer", 7
		d, err := g.DoGrantInto(t.Context(), &cmd, room)
		if err != nil || d.Outcome != gatehouse.Granted || len(d.Want) != len(cmd.Want) {
			t.Fatalf("%d names: %+v, %v, want them granted", len(cmd.Want), d, err)
		}
		for i := range d.Want {
			if m := &d.Want[i]; m.Key != cmd.Want[i].Key || m.Cost != 1 || m.Message != "" {
				t.Errorf("%d names: member %d is %+v, want 1 of %s", len(cmd.Want), i, m, cmd.Want[i].Key)
			}
		}
		if inRoom := &d.Want[0] == &room[0]; inRoom != (len(cmd.Want) <= len(room)) {
			t.Errorf("%d names: the answer is in the room: %t", len(cmd.Want), inRoom)
		}
	}
}
