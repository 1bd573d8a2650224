package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Twice the size asks at the end of a part, and again while the part leaves the interval: a mode that takes
// what is in the part, or in the window, to be spread over it then lets through all of it once more. No mode
// lets through more than its page says.
func TestSlidingWindowAttacked(t *testing.T) {
	const (
		size, interval = 100, time.Second
		part           = (interval + 59) / 60
		begin          = 107 * int64(part) * int64(time.Second) // of a part and of a window
	)
	// The end of the last part that lies in the first window alone.
	late := time.Duration(begin + int64(interval)/int64(part)*int64(part))
	instants := []time.Duration{}
	for i := range 2 * size {
		instants = append(instants, late-time.Duration(2*size-i))
	}
	for i := range 4 * size {
		instants = append(instants, late+interval-part+time.Duration(i)*(part/(4*size)))
	}
	for _, c := range []struct {
		mode        gatehouse.Mode
		least, most int // in an interval
	}{
		{gatehouse.ModeDefault, 2*size - 5, 2 * size},
		{gatehouse.ModeFine, 2*size - 5, 2 * size},
		{gatehouse.ModeStrict, size, size},
	} {
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1,
			Rule: gatehouse.Rule{Size: size, Interval: interval, Mode: c.mode},
		}
		var state State
		var passed []time.Duration
		worst, first := 0, 0
		for _, at := range instants {
			turns := []Turn{{Command: &cmd}}
			state = Serve(time.Unix(0, int64(at)), gatehouse.SlidingWindow, state, turns)
			if turns[0].Decision.Outcome != gatehouse.Granted {
				continue
			}
			passed = append(passed, at)
			for passed[first] <= at-interval {
				first++
			}
			worst = max(worst, len(passed)-first)
		}
		if worst < c.least || worst > c.most {
			t.Errorf("mode %s lets %d through in an interval, want %d to %d", c.mode, worst, c.least, c.most)
		}
	}
}
