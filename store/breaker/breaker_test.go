package breaker_test

import (
	"cmp"
	"context"
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
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A keeper is a memory store far away, which can become unreachable.
type keeper struct {
	*memory.Store
	down  atomic.Bool
	bad   string       // a name whose commands fail even so
	quick bool         // it fails at once
	why   error        // errGone if it is nil
	takes atomic.Int64 // how long it takes while it is there
	calls atomic.Int64

	answers atomic.Bool // it answers, though not what it is asked

	breaker *breaker.Breaker // in front of it
}

var errGone = errors.New("connection refused")

const budget = breaker.DefaultTimeout

func (k *keeper) Apply(ctx context.Context, key gatehouse.Key, queue []control.Turn) error {
	k.calls.Add(1)
	if takes := time.Duration(k.takes.Load()); takes > 0 {
		elapse(takes)
	}
	if !k.down.Load() && key.Name != k.bad {
		return k.Store.Apply(ctx, key, queue)
	}
	if !k.quick {
		elapse(budget)
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: %w", key, cmp.Or(k.why, errGone))
}

func (k *keeper) ApplyAsync(key gatehouse.Key, queue []control.Turn, done func(error)) {
	go func() { done(k.Apply(context.Background(), key, queue)) }()
}

// Range fails as backends do.
func (k *keeper) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(gatehouse.Key, control.State) bool,
) error {
	if k.down.Load() {
		return errGone
	}
	return k.Store.Range(ctx, kind, after, visit)
}

func (k *keeper) Slow(gatehouse.Key) bool { return true }
func (k *keeper) Now() time.Time          { return time.Now() }
func (k *keeper) Latest() time.Time       { return time.Now() }

func (k *keeper) Answered(time.Duration) bool { return k.answers.Load() }

func (k *keeper) View(
	ctx context.Context, key gatehouse.Key, queue []control.Turn, view func(time.Time, control.State),
) error {
	err := k.Apply(ctx, key, queue)
	if err == nil {
		view(time.Now(), nil)
	}
	return err
}

// Watch wakes each second, as a shared store does.
func (k *keeper) Watch(key gatehouse.Key, wake func()) (stop func()) {
	unpin := k.Store.Watch(key, wake)
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				wake()
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		cancel()
		done.Wait()
		unpin()
	}
}

// elapse waits for virtual time to pass.
func elapse(d time.Duration) { <-time.After(d) }

// open makes a keeper, and a breaker in front of it, in the present bubble.
func open(t *testing.T) (*keeper, *breaker.Breaker) {
	t.Helper()
	k := &keeper{Store: memory.New(memory.Config{})}
	k.breaker = breaker.New(k, breaker.Config{})
	t.Cleanup(k.breaker.Close)
	return k, k.breaker
}

func bucket(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name}
}

func acquire(size, cost int64) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpAcquire, Size: size, Cost: cost, Interval: time.Hour}
}

// ask puts one command to the store, and tells how long it took.
func ask(
	s *breaker.Breaker, key gatehouse.Key, cmd gatehouse.Command,
) (gatehouse.Decision, time.Duration, error) {
	began := time.Now()
	turns := []control.Turn{{Command: &cmd}}
	err := s.Apply(context.Background(), key, turns)
	return turns[0].Decision, time.Since(began), err
}

// The store is given up after one time budget; requests then cost nothing until it is back, which is
// found out without them.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var changes []error
		k := &keeper{Store: memory.New(memory.Config{})}
		b := breaker.New(k, breaker.Config{
			Changed: func(err error) { changes = append(changes, err) },
		})
		key := bucket("a")
		if _, _, err := ask(b, key, acquire(9, 1)); err != nil {
			t.Fatalf("with the store there: %v, want none", err)
		}
		k.down.Store(true)
		_, took, err := ask(b, key, acquire(9, 1))
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || took != budget {
			t.Fatalf("the first command = %v after %s, want unavailable after %s", err, took, budget)
		}
		before := k.calls.Load()
		for range 1000 {
			_, took, err := ask(b, key, acquire(9, 1))
			if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || took != 0 {
				t.Fatalf("a command then = %v after %s, want unavailable at once", err, took)
			}
			if !errors.Is(err, errGone) {
				t.Fatalf("it says %v, want why", err)
			}
		}
		if n := k.calls.Load() - before; n != 0 {
			t.Errorf("1000 commands at an open breaker ask the store %d times, want 0", n)
		}
		time.Sleep(10 * time.Second)
		if n := k.calls.Load() - before; n < 8 || n > 14 {
			t.Errorf("in 10 s the store was probed %d times, want about one a second", n)
		}
		if since, err := b.Away(); time.Since(since) < 10*time.Second || !errors.Is(err, errGone) {
			t.Errorf("Away() = %s, %v, want 10 s ago, and why", since, err)
		}
		k.down.Store(false)
		time.Sleep(2*budget + 10*time.Millisecond) // a probe may be under way that has begun before
		if since, err := b.Away(); err != nil || !since.IsZero() {
			t.Errorf("a second after the store is back Away() = %s, %v, want none", since, err)
		}
		if d, _, err := ask(b, key, acquire(9, 1)); err != nil || d.Remaining != 7 {
			t.Errorf("the next command = %+v, %v, want 7 of 9 left", d, err)
		}
		b.Close()
		if len(changes) != 2 || !errors.Is(changes[0], errGone) || changes[1] != nil {
			t.Errorf("the changes were %v, want away and back", changes)
		}
	})
}

// Commands that come together wait for one time budget, not one after the other.
func TestBreakerOpensForAllTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t)
		k.down.Store(true)
		var all sync.WaitGroup
		for range 100 {
			all.Go(func() {
				if _, took, err := ask(s, bucket("a"), acquire(9, 1)); err == nil || took != budget {
					t.Errorf("a command = %v after %s, want an error after %s", err, took, budget)
				}
			})
		}
		all.Wait()
		if _, took, _ := ask(s, bucket("a"), acquire(9, 1)); took != 0 {
			t.Errorf("the next takes %s, want nothing", took)
		}
	})
}

// One name that cannot be decided on keeps nobody else away from a store that answers.
func TestOneBadNameOpensNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t)
		k.bad = "bad"
		stop, others := make(chan struct{}), sync.WaitGroup{}
		others.Go(func() {
			for {
				select {
				case <-stop:
					return
				case <-time.After(budget / 5):
				}
				if _, _, err := ask(s, bucket("good"), acquire(1000, 1)); err != nil {
					t.Errorf("a good name: %v, want none", err)
				}
			}
		})
		for range 5 {
			if _, took, err := ask(s, bucket("bad"), acquire(9, 1)); err == nil || took != budget {
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
		k, s := open(t)
		k.bad, k.why = "hot", cas.ErrConflict
		if _, took, err := ask(s, bucket("hot"), acquire(9, 1)); err == nil || took != budget {
			t.Fatalf("a hot name = %v after %s, want an error after %s", err, took, budget)
		}
		if _, _, err := ask(s, bucket("a"), acquire(9, 1)); err != nil {
			t.Errorf("another name after races were lost at one: %v, want none", err)
		}
		k.why = nil
		k.answers.Store(true) // but not in time to the one who asks
		if _, took, err := ask(s, bucket("hot"), acquire(9, 1)); err == nil || took != budget {
			t.Fatalf("a hot name = %v after %s, want an error after %s", err, took, budget)
		}
		if _, _, err := ask(s, bucket("a"), acquire(9, 1)); err != nil {
			t.Errorf("another name when the last answer came too late: %v, want none", err)
		}
	})
}

// What fails at once costs nobody any time, and may be about one command alone.
func TestQuickFailuresOpenNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t)
		k.quick = true
		k.down.Store(true)
		for range 100 {
			_, _, _ = ask(s, bucket("a"), acquire(9, 1))
		}
		if n := k.calls.Load(); n != 100 {
			t.Errorf("of 100 commands %d came to the store, want all", n)
		}
	})
}

// What looks at the state, as a lazy store does, is kept away from an unreachable store too.
func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t)
		seen := 0
		view := func(time.Time, control.State) { seen++ }
		if err := k.breaker.View(t.Context(), bucket("a"), nil, view); err != nil || seen != 1 {
			t.Errorf("View = %v, and shows %d states, want 1", err, seen)
		}
		k.down.Store(true)
		_, _, _ = ask(s, bucket("a"), acquire(9, 1))
		began := time.Now()
		err := k.breaker.View(t.Context(), bucket("a"), nil, view)
		took := time.Since(began)
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || seen != 1 || took > 0 {
			t.Errorf("View while the store is away = %v after %s, want unavailable at once", err, took)
		}
	})
}

func TestRange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, s := open(t)
		_, _, _ = ask(s, bucket("a"), acquire(9, 1))
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
		k.down.Store(true)
		if _, err := names(); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || !errors.Is(err, errGone) {
			t.Errorf("Range of a store that has just gone = %v, want unavailable, and why", err)
		}
		_, _, _ = ask(s, bucket("a"), acquire(9, 1))
		if _, err := names(); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
			t.Errorf("Range while the store is away = %v, want unavailable", err)
		}
	})
}

// Each call of the store is observed, and calls that an open breaker refuses are not.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took []time.Duration
		k := &keeper{Store: memory.New(memory.Config{})}
		b := breaker.New(k, breaker.Config{Observe: func(d time.Duration) { took = append(took, d) }})
		t.Cleanup(b.Close)
		k.takes.Store(int64(time.Millisecond))
		_, _, _ = ask(b, bucket("a"), acquire(9, 1))
		k.takes.Store(0)
		k.down.Store(true)
		for range 3 {
			_, _, _ = ask(b, bucket("a"), acquire(9, 1))
		}
		if want := []time.Duration{time.Millisecond, budget}; !slices.Equal(took, want) {
			t.Errorf("observed were %v, want %v", took, want)
		}
	})
}
