package lazy_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// Answers are lost, requests are late, one server is cut off for a while, the store stands still, its clock
// is set. No server lets more through than the limit all the same, so that together they let through no more
// than as many times the limit as there are servers; and in the end the store knows of everything.
func TestNothingIsForgottenWhateverGoesWrong(t *testing.T) {
	limit := gatehouse.Command{Rule: gatehouse.Rule{Size: 200, Calendar: gatehouse.Month}}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, seed, lazy.SyncRule{Interval: interval}, 3)
			f.shared.Set(castest.Faults{
				Latency: latency, Unsent: 0.1, LostRequest: 0.1, LostAnswer: 0.1, Late: 0.1, Twice: 0.1,
			})
			key := gatehouse.Key{Kind: gatehouse.SlidingLog, Name: "a"}
			time.AfterFunc(time.Second, func() { f.servers[seed%3].backend.Cut(true) })
			time.AfterFunc(3*time.Second, func() { f.servers[seed%3].backend.Cut(false) })
			time.AfterFunc(4*time.Second, f.shared.Pause)
			time.AfterFunc(5*time.Second, f.shared.Resume)
			jump := time.Duration(int64(seed)-4) * 100 * time.Millisecond //nolint:gosec // a small seed
			time.AfterFunc(2*time.Second, func() { f.shared.Jump(jump) })
			f.load(seed, key, limit, 8*time.Second)
			f.shared.Set(castest.Faults{})
			f.close()
			passed := int64(0)
			for n := range 3 {
				own := int64(0)
				for _, g := range f.grants {
					if g.server == n+1 {
						own, passed = own+g.cost, passed+1
					}
				}
				if own > limit.Size {
					t.Errorf("seed %d: server %d let %d through, want at most %d", seed, n+1, own, limit.Size)
				}
			}
			if got, _ := f.figure(key, "acquired").(int64); got < passed {
				t.Errorf("seed %d: the store was told of %d, want at least %d", seed, got, passed)
			}
			if f.total() < limit.Size/2 {
				t.Errorf("seed %d: %d were let through, want more", seed, f.total())
			}
		})
	}
}

// What could not be told while the server was cut off is told when it is connected again.
func TestWhatCouldNotBeToldIsToldLater(t *testing.T) {
	limit := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 1000, Calendar: gatehouse.Month},
	}
	key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 1)
		passed := int64(0)
		ask := func(many int) {
			for range many { // one each millisecond
				if _, err := f.do(f.servers[0], key, limit); err == nil {
					passed++
				}
				<-time.After(time.Millisecond)
			}
		}
		ask(525)
		known := passed
		f.servers[0].backend.Cut(true)
		ask(50) // before the first exchange that fails
		<-time.After(2 * timeout)
		f.servers[0].backend.Cut(false)
		<-time.After(5 * interval)
		left, _ := f.figure(key, "available").(int64)
		if told := limit.Size - left; told != passed || passed == known {
			t.Errorf("the store was told of %d, want %d, and more than %d", told, passed, known)
		}
		f.close()
	})
}

// What a server had let through since its last exchange is lost with it, and no more.
func TestAServerThatDiesTakesOneIntervalWithIt(t *testing.T) {
	limit := gatehouse.Command{
		Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 10_000, Calendar: gatehouse.Month},
	}
	key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
	for seed := range uint64(seeds) {
		synctest.Test(t, func(t *testing.T) {
			f := newFleet(t, seed, lazy.SyncRule{Interval: interval}, 1)
			f.shared.Set(castest.Faults{Latency: latency})
			for range 500 + 7*seed { // one each millisecond
				f.must(f.servers[0], key, limit)
				<-time.After(time.Millisecond)
			}
			f.servers[0].backend.Cut(true)
			told, _ := f.figure(key, "acquired").(int64)
			most := int64((interval + 6*latency) / time.Millisecond)
			if lost := f.total() - told; lost < 0 || lost > most {
				t.Errorf("seed %d: %d of %d are lost, want at most %d", seed, lost, f.total(), most)
			}
			f.close()
		})
	}
}

// For three intervals, and a second at least, a server decides by what it knew. Then it says that the store
// is away, so that the rule for that applies, and goes on when the store is back; what it had let through is
// told then.
func TestAStoreThatIsAwayIsSaidToBe(t *testing.T) {
	for _, every := range []time.Duration{interval, time.Second} {
		t.Run(every.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(t, 1, lazy.SyncRule{Interval: every}, 1)
				s, key := f.servers[0], gatehouse.Key{Kind: gatehouse.GCRA, Name: "a"}
				cmd := gatehouse.Command{
					Op: gatehouse.OpAcquire, Cost: 1,
					Rule: gatehouse.Rule{Size: 1, Burst: 100_000, Interval: time.Hour},
				}
				f.must(s, key, cmd)
				f.must(s, key, cmd)
				f.shared.Pause()
				began := time.Now()
				for {
					_, err := f.do(s, key, cmd)
					if err == nil {
						<-time.After(10 * time.Millisecond)
						continue
					}
					if code := gatehouse.CodeOf(err); code != gatehouse.CodeUnavailable {
						t.Errorf("while the store is away = %v, want unavailable", err)
					}
					break
				}
				patience := max(time.Second, 3*every)
				if lasted := time.Since(began); lasted < patience || lasted > patience+every+2*timeout {
					t.Errorf("it decided for %s without the store, want about %s", lasted, patience)
				}
				f.shared.Resume()
				<-time.After(every + timeout)
				f.must(s, key, cmd)
				f.close()
				if told, _ := f.figure(key, "acquired").(int64); told < int64(len(f.grants)) {
					t.Errorf("the store was told of %d, want at least %d", told, len(f.grants))
				}
			})
		})
	}
}

// Limits that a client changes, also by a request that is refused, soon hold everywhere.
func TestLimitsThatChangeReachTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 2)
		key := gatehouse.Key{Kind: gatehouse.FixedWindow, Name: "a"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Size: 10, Calendar: gatehouse.Day},
		}
		f.must(f.servers[0], key, cmd)
		f.must(f.servers[0], key, cmd)
		stopped := cmd
		stopped.Size = 0
		if d := f.must(f.servers[0], key, stopped); d.Outcome != gatehouse.Refused {
			t.Errorf("of size 0 = %s, want refused", d.Outcome)
		}
		<-time.After(2 * interval)
		peek := gatehouse.Command{Op: gatehouse.OpPeek, Cost: 1}
		if d := f.must(f.servers[1], key, peek); d.Limit != 0 || d.Outcome != gatehouse.Refused {
			t.Errorf("at the other server = %s of %d, want refused of 0", d.Outcome, d.Limit)
		}
		f.close()
		if got := f.figure(key, "acquired"); got != int64(2) {
			t.Errorf("acquired = %v, want 2", got)
		}
	})
}

// A reset or a delete at one server holds at the other within an interval.
func TestResetsAndDeletesReachTheOthers(t *testing.T) {
	for _, op := range []gatehouse.Op{gatehouse.OpReset, gatehouse.OpDelete} {
		for _, limit := range limits {
			t.Run(fmt.Sprintf("%s %s", op, limit.kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(t, 1, lazy.SyncRule{Interval: interval}, 2)
					key := gatehouse.Key{Kind: limit.kind, Name: "a"}
					cmd := limit.cmd
					cmd.Op, cmd.Cost = gatehouse.OpAcquire, 1
					f.exhaust(f.servers[0], key, cmd)
					full := f.total()
					<-time.After(interval * 3 / 2) // so that the store knows of all of them
					f.must(f.servers[1], key, gatehouse.Command{Op: op})
					for range 3 {
						f.must(f.servers[0], key, cmd) // so that it goes on exchanging
						<-time.After(interval / 2)
					}
					f.exhaust(f.servers[0], key, cmd)
					if again := f.total() - full; again < full*9/10 {
						t.Errorf("after it %d were let through, want about %d", again, full)
					}
					f.close()
				})
			})
		}
	}
}
