package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"pgregory.net/rapid"
)

// TestLargeLog: a size above what is told apart start by start never lets one too many through, refuses
// nothing that would fit a step earlier, and takes bounded memory.
func TestLargeLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := []gatehouse.Kind{gatehouse.SlidingLog, gatehouse.Pace}
		v := variety{kind: rapid.SampledFrom(kinds).Draw(t, "kind")}
		cmd, now := gatehouse.Command{Op: gatehouse.OpAcquire}, origin(t)
		cmd.Size = rapid.Int64Range(maxExact+1, 10*maxExact).Draw(t, "size")
		cmd.Interval = time.Duration(rapid.Int64Range(1, 10*maxExact).Draw(t, "interval"))
		grain := max(1, int64(cmd.Interval)/maxExact)
		s, log := subject{kind: v.kind}, record{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			now = now.Add(later(t, cmd.Interval/10+1))
			at := now.UnixNano()
			cmd.Cost = rapid.Int64Range(1, cmd.Size/4).Draw(t, "cost")
			d := s.step(now, cmd)
			if d.Outcome == gatehouse.Granted {
				log = append(log, startRun{at, cmd.Cost})
				if n := logged(log, at, &cmd); n > cmd.Size {
					t.Fatalf("acquire %d = granted with %d of %d taken", cmd.Cost, n, cmd.Size)
				}
			} else if n := log.within(at-int64(cmd.Interval)-grain, at); n+cmd.Cost <= cmd.Size {
				t.Fatalf("acquire %d = refused with %d of %d taken", cmd.Cost, n, cmd.Size)
			}
		}
	})
}

// TestLogMemory: a log keeps no more runs than it tells apart, however many starts there are, and lets go
// of the memory when they are over.
func TestLogMemory(t *testing.T) {
	s := subject{kind: gatehouse.SlidingLog}
	cmd := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: gatehouse.MaxSize, Interval: time.Second}, Cost: 1,
	}
	now := epoch()
	for range 200_000 {
		now = now.Add(10_007)
		s.step(now, cmd)
	}
	log := &s.state.(*limiterState[slidingLogMeter, *slidingLogMeter]).meter
	if len(log.runs) > maxExact+2 || cap(log.runs) > maxExact*13/10 {
		t.Errorf("%d runs in room for %d are kept, want at most %d", len(log.runs), cap(log.runs), maxExact+2)
	}
	if want := int64(time.Second)/10_007 + 6; log.count > want {
		t.Errorf("%d are counted, want at most %d", log.count, want)
	}
	s.step(now.Add(time.Minute), cmd)
	if cap(log.runs) > 1000 {
		t.Errorf("room for %d runs is kept for one", cap(log.runs))
	}
}

// TestLogRefundAll: giving back much at once takes no longer than taking it did.
func TestLogRefundAll(t *testing.T) {
	s := subject{kind: gatehouse.SlidingLog}
	cmd := gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: maxExact, Interval: time.Second}, Cost: 1,
	}
	now := epoch()
	for range maxExact {
		now = now.Add(1)
		s.step(now, cmd)
	}
	if d := s.with(now, gatehouse.OpRefund, maxExact-1); d.Remaining != maxExact-1 {
		t.Errorf("after a refund %d remain, want %d", d.Remaining, maxExact-1)
	}
	if d := s.with(now, gatehouse.OpRefund, 5); d.Remaining != maxExact || d.ResetAfter != 0 {
		t.Errorf("after one more %d remain, reset after %s", d.Remaining, d.ResetAfter)
	}
}

// TestManyLimits: a name whose limit is changed all the time still takes bounded memory and never lets
// more through than the limit that is in force allows.
func TestManyLimits(t *testing.T) {
	s, log, now := subject{kind: gatehouse.Pace}, record{}, epoch()
	cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Cost: 1}
	for i := range 300_000 {
		now = now.Add(50 * time.Microsecond)
		cmd.Size, cmd.Interval = maxExact, time.Second
		if i/20_000%2 == 1 {
			cmd.Size, cmd.Interval = 1_000_000, 2*time.Second
		}
		if s.step(now, cmd).Outcome == gatehouse.Granted {
			log = append(log, startRun{now.UnixNano(), 1})
			if n := len(log) - int(cmd.Size); n > 0 && log[n-1].at > now.UnixNano()-int64(cmd.Interval) {
				t.Fatalf("start %d is one too many", i)
			}
		}
	}
	if runs := s.state.(*limiterState[paceMeter, *paceMeter]).meter.runs; len(runs) > maxRuns {
		t.Errorf("%d runs are kept, want at most %d", len(runs), maxRuns)
	}
}
