package breaker_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// A remoteStore is a store that can become unreachable, and tells apart as cas stores do whether it has
// answered anything.
type remoteStore struct {
	*storetest.FlakyStore
	answers atomic.Bool // it answers, though not what it is asked
}

const budget = breaker.DefaultTimeout

func bucket(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name}
}

func acquire(size int64) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: size, Interval: time.Hour}, Cost: 1,
	}
}

func newRemoteStore() *remoteStore {
	remote := &remoteStore{FlakyStore: storetest.NewFlakyStore()}
	remote.FailTime = budget
	return remote
}

func (r *remoteStore) Now() time.Time    { return time.Now() }
func (r *remoteStore) Latest() time.Time { return time.Now() }

func (r *remoteStore) Answered(time.Duration) bool { return r.answers.Load() }

// Apply shows a state too, as a shared store does.
func (r *remoteStore) Apply(c *control.Change) {
	done := c.Done
	c.Done = func(err error) {
		if err == nil && c.View != nil {
			c.View(time.Now(), nil)
		}
		done(err)
	}
	r.FlakyStore.Apply(c)
}

// open makes a remote store, and a breaker in front of it, in the present bubble.
func open(t *testing.T) (*remoteStore, *breaker.Breaker) {
	t.Helper()
	remote := newRemoteStore()
	b := breaker.New(remote, breaker.Config{})
	t.Cleanup(b.Close)
	return remote, b
}

// ask puts one command to the store, and tells how long it took.
func ask(
	s *breaker.Breaker, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, time.Duration, error) {
	began := time.Now()
	turns := []control.Turn{{Command: &cmd}}
	err := (&control.Change{Key: key, Turns: turns}).ApplyTo(s)
	return turns[0].Decision, time.Since(began), err
}

// The store is given up after one time budget; requests then cost nothing until it is back, which is
// found out without them.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []error
		remote := newRemoteStore()
		b := breaker.New(remote, breaker.Config{
			Changed: func(err error) { changes = append(changes, err) },
		})
		key := bucket("a")
		if _, _, err := ask(b, key, acquire(9)); err != nil {
			t.Fatalf("with the store there: %v, want none", err)
		}
		remote.Down.Store(true)
		_, took, err := ask(b, key, acquire(9))
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || took != budget {
			t.Fatalf("the first command = %v after %s, want unavailable after %s", err, took, budget)
		}
		before := remote.Calls.Load()
		for range 1000 {
			_, took, err := ask(b, key, acquire(9))
			if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || took != 0 {
				t.Fatalf("a command then = %v after %s, want unavailable at once", err, took)
			}
			if !errors.Is(err, storetest.ErrDown) {
				t.Fatalf("it says %v, want why", err)
			}
		}
		if n := remote.Calls.Load() - before; n != 0 {
			t.Errorf("1000 commands at an open breaker ask the store %d times, want 0", n)
		}
		time.Sleep(10 * time.Second)
		if n := remote.Calls.Load() - before; n < 8 || n > 14 {
			t.Errorf("in 10 s the store was probed %d times, want about one a second", n)
		}
		if since, err := b.Away(); time.Since(since) < 10*time.Second || !errors.Is(err, storetest.ErrDown) {
			t.Errorf("Away() = %s, %v, want 10 s ago, and why", since, err)
		}
		remote.Down.Store(false)
		time.Sleep(2*budget + 10*time.Millisecond) // a probe may be under way that has begun before
		if since, err := b.Away(); err != nil || !since.IsZero() {
			t.Errorf("a second after the store is back Away() = %s, %v, want none", since, err)
		}
		if d, _, err := ask(b, key, acquire(9)); err != nil || d.Remaining != 7 {
			t.Errorf("the next command = %+v, %v, want 7 of 9 left", d, err)
		}
		b.Close()
		if len(changes) != 2 || !errors.Is(changes[0], storetest.ErrDown) || changes[1] != nil {
			t.Errorf("the changes were %v, want away and back", changes)
		}
	})
}

// Commands that come together wait for one time budget, not one after the other.
func TestBreakerOpensForAllTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		remote.Down.Store(true)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, took, err := ask(s, bucket("a"), acquire(9)); err == nil || took != budget {
					t.Errorf("a command = %v after %s, want an error after %s", err, took, budget)
				}
			})
		}
		all.Wait()
		if _, took, _ := ask(s, bucket("a"), acquire(9)); took != 0 {
			t.Errorf("the next takes %s, want nothing", took)
		}
	})
}

// One name that cannot be decided on keeps nobody else away from a store that answers.
func TestOneBadNameOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		remote.BadName = "bad"
		stop, others := make(chan struct{}), sync.WaitGroup{}
		others.Go(func() {
			for {
				time.Sleep(budget / 5)
				select {
				case <-stop:
					return
				default:
				}
				if _, _, err := ask(s, bucket("good"), acquire(1000)); err != nil {
					t.Errorf("a good name: %v, want none", err)
				}
			}
		})
		for range 5 {
			if _, took, err := ask(s, bucket("bad"), acquire(9)); err == nil || took != budget {
				t.Errorf("the bad name = %v after %s, want an error, each time after %s", err, took, budget)
			}
		}
		close(stop)
		others.Wait()
	})
}

// Who loses races until time is up has been answered each time.
func TestLostRacesOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		remote.BadName, remote.DownErr = "hot", cas.ErrConflict
		if _, took, err := ask(s, bucket("hot"), acquire(9)); err == nil || took != budget {
			t.Fatalf("a hot name = %v after %s, want an error after %s", err, took, budget)
		}
		if _, _, err := ask(s, bucket("a"), acquire(9)); err != nil {
			t.Errorf("another name after races were lost at one: %v, want none", err)
		}
		remote.DownErr = nil
		remote.answers.Store(true) // but not in time to the one who asks
		if _, took, err := ask(s, bucket("hot"), acquire(9)); err == nil || took != budget {
			t.Fatalf("a hot name = %v after %s, want an error after %s", err, took, budget)
		}
		if _, _, err := ask(s, bucket("a"), acquire(9)); err != nil {
			t.Errorf("another name when the last answer came too late: %v, want none", err)
		}
	})
}

// What fails at once costs nobody any time, and may be about one command alone.
func TestQuickFailuresOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		remote.FailTime = 0
		remote.Down.Store(true)
		for range 100 {
			_, _, _ = ask(s, bucket("a"), acquire(9))
		}
		if n := remote.Calls.Load(); n != 100 {
			t.Errorf("of 100 commands %d came to the store, want all", n)
		}
	})
}

// What looks at the state, as a lazy store does, is kept away from an unreachable store too.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		seen := 0
		look := func() error {
			c := control.Change{Key: bucket("a"), View: func(time.Time, control.State) { seen++ }}
			return c.ApplyTo(s)
		}
		if err := look(); err != nil || seen != 1 {
			t.Errorf("Apply = %v, and shows %d states, want 1", err, seen)
		}
		remote.Down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(9))
		began := time.Now()
		err := look()
		took := time.Since(began)
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || seen != 1 || took > 0 {
			t.Errorf("Apply while the store is away = %v after %s, want unavailable at once", err, took)
		}
	})
}

func TestRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		remote, s := open(t)
		_, _, _ = ask(s, bucket("a"), acquire(9))
		names := func() (n int, err error) {
			err = s.Range(t.Context(), gatehouse.TokenBucket, "", func(gatehouse.Key, control.State) bool {
				n++
				return true
			})
			return n, err
		}
		if n, err := names(); n != 1 || err != nil {
			t.Errorf("Range shows %d names, %v, want 1", n, err)
		}
		remote.Down.Store(true)
		_, err := names()
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || !errors.Is(err, storetest.ErrDown) {
			t.Errorf("Range of a store that has just gone = %v, want unavailable, and why", err)
		}
		_, _, _ = ask(s, bucket("a"), acquire(9))
		if _, err := names(); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("Range while the store is away = %v, want unavailable", err)
		}
	})
}

// Each call of the store is observed, and calls that an open breaker refuses are not.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		remote := newRemoteStore()
		b := breaker.New(remote, breaker.Config{Observe: func(d time.Duration) { took = append(took, d) }})
		t.Cleanup(b.Close)
		remote.Delay.Store(int64(time.Millisecond))
		_, _, _ = ask(b, bucket("a"), acquire(9))
		remote.Delay.Store(0)
		remote.Down.Store(true)
		for range 3 {
			_, _, _ = ask(b, bucket("a"), acquire(9))
		}
		if want := []time.Duration{time.Millisecond, budget}; !slices.Equal(took, want) {
			t.Errorf("observed were %v, want %v", took, want)
		}
	})
}
