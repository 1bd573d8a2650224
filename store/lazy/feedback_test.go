package lazy_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// reportOf is a report that leaves the limit as it is.
func reportOf(f gatehouse.Feedback) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpFeedback, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Feedback: &f,
	}
}

// grantsUntil counts what a server lets through until an instant, asked each millisecond.
func (f *fleet) grantsUntil(s *server, key gatehouse.Key, cmd gatehouse.Command, end time.Time) (n int64) {
	f.t.Helper()
	for f.shared.Now().Before(end) {
		if f.must(s, key, cmd).Outcome == gatehouse.Granted {
			n += cmd.Cost
		}
		<-time.After(time.Millisecond)
	}
	return n
}

// Once a report is answered, its server lets nothing through until the pause is over, and another one no more
// than what it had in its chunk. On the ramp no chunk is lent, and all servers together keep it.
func TestFeedbackInChunks(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.TokenBucket, gatehouse.FixedWindow} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 10}, 2)
			key := gatehouse.Key{Kind: kind, Name: "a"}
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 600, Interval: time.Minute},
			}
			for range 5 {
				f.must(f.servers[0], key, cmd)
				f.must(f.servers[1], key, cmd)
			}
			d := f.must(f.servers[0], key, reportOf(gatehouse.Feedback{
				Status: 429, RetryAfter: 4 * time.Second, MaxPause: 4 * time.Second,
			}))
			over := d.At.Add(d.Reported.PausedFor)
			if n := f.grantsUntil(f.servers[0], key, cmd, d.At.Add(time.Second)); n != 0 {
				t.Errorf("%s: %d passed where it was reported, want none", key, n)
			}
			if n := f.grantsUntil(f.servers[1], key, cmd, over); n > 5 {
				t.Errorf("%s: %d passed at the other server, want at most the 5 of its chunk", key, n)
			}
			// The ramp lets through 4 s · 10/s · 0.55, and nothing at its beginning.
			ramp := f.grantsUntil(f.servers[0], key, cmd, over.Add(2*time.Second)) +
				f.grantsUntil(f.servers[1], key, cmd, over.Add(4*time.Second))
			if ramp > 22 || ramp < 18 {
				t.Errorf("%s: %d passed on the ramp, want about 22 and no more", key, ramp)
			}
			if n := f.grantsUntil(f.servers[0], key, cmd, over.Add(5*time.Second)); n < 500 {
				t.Errorf("%s: %d passed after the ramp, want what is left of 600", key, n)
			}
			f.close()
		})
	}
}

// Where what is let through is counted later, the others learn of a pause by their next exchange, and keep
// the ramp together.
func TestFeedbackBetweenExchanges(t *testing.T) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Limiter() {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 2)
			key := gatehouse.Key{Kind: kind, Name: "a"}
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1,
				Rule: gatehouse.Rule{Size: 600, Burst: 599, Interval: time.Minute},
			}
			f.must(f.servers[0], key, cmd)
			f.must(f.servers[1], key, cmd)
			d := f.must(f.servers[0], key, reportOf(gatehouse.Feedback{
				Status: 429, RetryAfter: 4 * time.Second, MaxPause: 4 * time.Second,
			}))
			over := d.At.Add(d.Reported.PausedFor)
			if n := f.grantsUntil(f.servers[0], key, cmd, d.At.Add(time.Second)); n != 0 {
				t.Errorf("%s: %d passed where it was reported, want none", key, n)
			}
			if n := f.grantsUntil(f.servers[1], key, cmd, over); n != 0 {
				t.Errorf("%s: %d passed at the other server a second later, want none", key, n)
			}
			ramp := f.grantsUntil(f.servers[0], key, cmd, over.Add(2*time.Second)) +
				f.grantsUntil(f.servers[1], key, cmd, over.Add(4*time.Second))
			if ramp > 22 || ramp < 18 {
				t.Errorf("%s: %d passed on the ramp, want about 22 and no more", key, ramp)
			}
			f.close()
		})
	}
}

// Once a pause is ended, by an open or a delete at whichever server, chunks are lent again.
func TestChunksAfterAPauseWasEnded(t *testing.T) {
	for _, op := range []gatehouse.Op{gatehouse.OpOpen, gatehouse.OpDelete} {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, 1, lazy.SyncRule{Interval: interval, Chunk: 10}, 2)
			key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "a"}
			cmd := gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 600, Interval: time.Minute},
			}
			f.must(f.servers[0], key, cmd)
			report := reportOf(gatehouse.Feedback{
				Status: 429, RetryAfter: time.Minute, MaxPause: time.Minute,
			})
			f.must(f.servers[0], key, report)
			for _, s := range f.servers {
				if d := f.must(s, key, cmd); d.Outcome != gatehouse.Refused {
					t.Fatalf("%s: %+v in the pause", op, d)
				}
			}
			f.must(f.servers[0], key, gatehouse.Command{Op: op})
			for i, s := range f.servers {
				f.must(s, key, cmd) // by which this server learns of it
				f.must(s, key, cmd)
				before := s.swap.Stats()
				for range 5 {
					f.must(s, key, cmd)
				}
				if after := s.swap.Stats(); after != before {
					t.Errorf("%s: server %d asked for 5 more: %+v, before %+v", op, i, after, before)
				}
			}
			f.close()
		})
	}
}
