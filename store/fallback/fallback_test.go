package fallback_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

func bucket(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name}
}

func acquire(size, cost int64) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: size, Interval: time.Hour}, Cost: cost,
	}
}

// open makes a remote store, and a store in front of it that answers by one rule, in the present bubble.
func open(answer fallback.Answer, servers int) (*storetest.FlakyStore, *fallback.Store) {
	r := storetest.NewFlakyStore()
	return r, fallback.New(r, fallback.Config{
		Servers: servers, Rule: func(gatehouse.Key) fallback.Answer { return answer },
	})
}

// ask puts one command to the store, and tells how long it took.
func ask(
	s *fallback.Store, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, time.Duration, error) {
	return askTurn(s, key, control.Turn{Command: &cmd})
}

// askTurn is ask with what a gate adds.
func askTurn(
	s *fallback.Store, key gatehouse.Key, turn control.Turn,
) (gatehouse.Decision, time.Duration, error) {
	began := time.Now()
	turns := []control.Turn{turn}
	err := (&control.Change{Key: key, Turns: turns}).ApplyTo(s)
	return turns[0].Decision, time.Since(began), err
}

// A store that answers is not unreachable, so that no rule answers in its place.
func TestLostRacesAreNotAnsweredByRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(fallback.Allow, 1)
		k.DownErr = cas.ErrConflict
		k.Down.Store(true)
		if _, _, err := ask(s, bucket("hot"), acquire(9, 1)); !errors.Is(err, cas.ErrConflict) {
			t.Errorf("a hot name under the rule allow = %v, want that races were lost", err)
		}
	})
}

// Who stands in line when the store goes away is answered by the rule, too.
func TestWhoWaits(t *testing.T) {
	for _, c := range []struct {
		answer                   fallback.Answer
		granted, failed, waiting int64 // of 4 that wait, 3 s after the store has gone
	}{{fallback.Refuse, 0, 4, 0}, {fallback.Allow, 4, 0, 0}, {fallback.LocalShare, 2, 0, 2}} {
		synctest.Test(t, func(t *testing.T) {
			k, s := open(c.answer, 3)
			g := gate.New(s, gate.Config{})
			w := fill(t, g)
			time.Sleep(10 * time.Second)
			if n := g.Waiting(); n != 4 {
				t.Fatalf("%d wait, want 4", n)
			}
			k.Down.Store(true)
			time.Sleep(3 * time.Second)
			got := [3]int64{w.granted.Load(), w.failed.Load(), int64(g.Waiting())}
			if want := [3]int64{c.granted, c.failed, c.waiting}; got != want {
				t.Errorf("by the rule %s %d were granted, failed, wait, want %d", c.answer, got, want)
			}
			w.all.Wait()
			if n := w.granted.Load() + w.failed.Load() + w.refused.Load(); n != 4 {
				t.Errorf("by the rule %s %d of 4 were answered, want all", c.answer, n)
			}
			g.Close()
		})
	}
}

// The limit of a request that began to wait while the store was away comes into force when it is back.
func TestLimitOfAWaiterAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(fallback.LocalShare, 3)
		g := gate.New(s, gate.Config{})
		defer g.Close()
		// All that there is in the store, and then this server's share of another limit.
		for _, take := range []gatehouse.Command{acquire(6, 6), acquire(9, 3)} {
			if d, err := g.Do(t.Context(), bucket("a"), take); err != nil || d.Outcome != gatehouse.Granted {
				t.Fatalf("%+v = %+v, %v, want it granted", take, d, err)
			}
			k.Down.Store(true)
		}
		cmd := acquire(9, 1)
		cmd.MaxWait = time.Minute // in which less than one comes back
		time.AfterFunc(time.Second, func() { k.Down.Store(false) })
		d, err := g.Do(t.Context(), bucket("a"), cmd)
		if err != nil || d.Outcome != gatehouse.Granted || d.Limit != 9 {
			t.Errorf("one of 3 that the limit of 9 adds = %+v, %v, want it granted", d, err)
		}
	})
}

// waiters are four who wait for one token each, and what became of them.
type waiters struct {
	all                      sync.WaitGroup
	granted, failed, refused atomic.Int64
}

// fill takes all there is of bucket a, 6, and has four wait for more.
func fill(t *testing.T, g *gate.Gate) *waiters {
	t.Helper()
	cmd := acquire(6, 6)
	if _, err := g.Do(t.Context(), bucket("a"), cmd); err != nil {
		t.Fatal(err)
	}
	cmd.Cost, cmd.MaxWait = 1, 10*time.Minute
	w := new(waiters)
	for range 4 {
		w.all.Go(func() {
			switch d, err := g.Do(t.Context(), bucket("a"), cmd); {
			case gatehouse.CodeOf(err) == gatehouse.CodeUnavailable:
				w.failed.Add(1)
			case err == nil && d.Outcome == gatehouse.Granted:
				w.granted.Add(1)
			default:
				w.refused.Add(1)
			}
		})
	}
	return w
}
