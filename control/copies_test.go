package control

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// fullLogs returns a sliding log of eight limits, each of which keeps as many starts as it can, so many
// reservations besides, and a command of other limits with the same windows.
func fullLogs(tb testing.TB, reservations int) (s State, now time.Time, other gatehouse.Command) {
	tb.Helper()
	s, now = New(gatehouse.SlidingLog), epoch()
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1}
	cmd.Limits, other.Limits = logLimits(maxExact), logLimits(maxExact-1)
	for range maxExact {
		now = now.Add(time.Microsecond)
		if d := stepTurn(s, now, &Turn{Command: &cmd}); d.Outcome != gatehouse.Granted {
			tb.Fatalf("filling the logs: %v", d)
		}
	}
	cmd.Op = gatehouse.OpReserve
	for i := range reservations {
		cmd.Holder = fmt.Sprint(i)
		if d := stepTurn(s, now, &Turn{Command: &cmd}); d.Outcome != gatehouse.Granted {
			tb.Fatalf("reserving: %v", d)
		}
	}
	other.Op, other.Cost = gatehouse.OpPeek, 1
	return s, now, other
}

// logLimits are eight limits of one size.
func logLimits(size int64) gatehouse.LimitList {
	var limits []gatehouse.Limit
	for i := range gatehouse.MaxLimits {
		window := time.Hour + time.Duration(i)*time.Minute
		limits = append(limits, gatehouse.Limit{Size: size, Interval: window})
	}
	return gatehouse.NewLimitList(limits...)
}

// allocated is how many bytes a call allocates, on average.
func allocated(runs int, call func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		call()
	}
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) / uint64(runs)
}

// TestOtherLimitsCopyLittle: to ask about other limits, or to put them in force, copies no log that has the
// same window. Eight full logs are 2 MiB.
func TestOtherLimitsCopyLittle(t *testing.T) {
	for _, reservations := range []int{0, maxReservations} {
		s, now, other := fullLogs(t, reservations)
		turn := &Turn{Command: &other}
		most := uint64(8<<10 + 64*reservations) // the list of reservations is copied
		if got := allocated(20, func() { s.Step(now, turn) }); got > most {
			t.Errorf("with %d reservations, a peek with other limits allocates %d bytes, want at most %d",
				reservations, got, most)
		}
		other.Op = gatehouse.OpAcquire
		two, i := [2]gatehouse.LimitList{logLimits(maxExact - 2), logLimits(maxExact - 1)}, 0
		got := allocated(20, func() {
			other.Limits = two[i%2]
			i++
			s.Step(now, turn)
		})
		if got > most {
			t.Errorf("with %d reservations, an acquire with other limits allocates %d bytes, want at most %d",
				reservations, got, most)
		}
	}
}

// TestPeekLeavesLogs: a peek with other limits changes nothing, also where it drops and adds places.
func TestPeekLeavesLogs(t *testing.T) {
	for _, limits := range [][]gatehouse.Limit{
		{{Size: 2, Interval: time.Minute}},
		{{Size: 2, Interval: time.Minute}, {Size: 3, Calendar: gatehouse.Day}},
		{{Size: 3, Interval: time.Second}, {Size: 9, Interval: 2 * time.Hour}},
	} {
		for _, kind := range []gatehouse.Kind{gatehouse.SlidingLog, gatehouse.Pace} {
			s, now := New(kind), epoch()
			cmd := gatehouse.Command{Op: gatehouse.OpReserve, Cost: 1}
			cmd.Limits = gatehouse.NewLimitList(
				gatehouse.Limit{Size: 2, Interval: time.Minute},
				gatehouse.Limit{Size: 5, Interval: time.Hour},
			)
			for i := range 7 {
				now, cmd.Holder = now.Add(time.Second), fmt.Sprint(i)
				s.Step(now, &Turn{Command: &cmd})
			}
			before := string(Encode(nil, s))
			cmd.Op, cmd.Cost, cmd.Limits = gatehouse.OpPeek, 2, gatehouse.NewLimitList(limits...)
			s.Step(now, &Turn{Command: &cmd})
			if after := string(Encode(nil, s)); after != before {
				t.Errorf("%s: a peek with %v makes\n%x of\n%x", kind, limits, after, before)
			}
		}
	}
}

// BenchmarkPeekOtherLimits is a peek with other limits than those in force, at eight full logs.
func BenchmarkPeekOtherLimits(b *testing.B) {
	for _, reservations := range []int{0, maxReservations} {
		b.Run(fmt.Sprintf("reservations=%d", reservations), func(b *testing.B) {
			s, now, other := fullLogs(b, reservations)
			turn := &Turn{Command: &other}
			b.ReportAllocs()
			for b.Loop() {
				s.Step(now, turn)
			}
		})
	}
}
