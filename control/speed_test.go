package control

import (
	"reflect"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// TestLimiterSizes: what an idle limiter takes, its log apart. Memory is given out in steps of 16 bytes.
func TestLimiterSizes(t *testing.T) {
	for kind, most := range map[gatehouse.Kind]uintptr{
		gatehouse.TokenBucket: 80, gatehouse.GCRA: 80, gatehouse.FixedWindow: 80,
		gatehouse.SlidingWindow: 96, gatehouse.SlidingLog: 112, gatehouse.Pace: 128,
	} {
		if size := reflect.TypeOf(New(kind)).Elem().Size(); size > most {
			t.Errorf("a %s takes %d bytes, want at most %d", kind, size, most)
		}
	}
	if size := reflect.TypeFor[fineParts]().Size(); size > 512 {
		t.Errorf("sixty parts take %d bytes, want at most 512", size)
	}
}

// hot returns a limiter that is asked again and again, granting or refusing all the time.
func hot(v variety, refusing bool) (State, *Turn) {
	cmd := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 1000, Burst: 999, Interval: time.Millisecond, Mode: v.mode}, Cost: 1,
	}
	if refusing {
		cmd.Size, cmd.Burst, cmd.Interval = 1, 0, time.Hour
	}
	s := New(v.kind)
	turn := &Turn{Command: &cmd}
	s.Step(epoch(), turn)
	return s, turn
}

// TestStepAllocates: a decision under one limit allocates nothing, granted or refused. Logs are made
// larger now and then.
func TestStepAllocates(t *testing.T) {
	for _, v := range varieties() {
		for _, refusing := range []bool{false, true} {
			s, turn := hot(v, refusing)
			now := epoch()
			n := testing.AllocsPerRun(5000, func() {
				now = now.Add(2 * time.Microsecond)
				s.Step(now, turn)
			})
			if n > 0 {
				t.Errorf("%s: %v allocations a step, refusing %t, want none", v, n, refusing)
			}
		}
	}
}

// BenchmarkStep is one decision after the other at one limiter.
func BenchmarkStep(b *testing.B) {
	for _, v := range varieties() {
		for name, refusing := range map[string]bool{"granted": false, "refused": true} {
			b.Run(v.String()+"/"+name, func(b *testing.B) {
				s, turn := hot(v, refusing)
				now := epoch()
				b.ReportAllocs()
				for b.Loop() {
					now = now.Add(2 * time.Microsecond)
					s.Step(now, turn)
				}
			})
		}
	}
}
