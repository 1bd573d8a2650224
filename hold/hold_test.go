package hold_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/hold"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newGate() *gate.Gate { return gate.New(memory.New(memory.Config{}), gate.Config{}) }

// A far is a gate at the end of a bad line: questions and answers take their time, and some are lost.
type far struct {
	*gate.Gate
	random *rand.Rand // nil for a line without delays
	lost   atomic.Bool
	slow   time.Duration // the longest delay of a question or an answer
	loss   int           // how many of a hundred questions, and of answers, are lost

	renewals atomic.Int32
	decided  atomic.Pointer[time.Time] // when the last decision was made

	mu sync.Mutex // for random, which a release in the background uses besides
}

// draw is a random number below n.
func (f *far) draw(n int64) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.Int64N(n)
}

// note notes that a decision is made now.
func (f *far) note() {
	now := time.Now()
	f.decided.Store(&now)
}

// pass carries a question or an answer, or fails when it is lost and its sender has waited long enough.
func (f *far) pass(ctx context.Context) error {
	if f.lost.Load() || f.random != nil && int(f.draw(100)) < f.loss {
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Second):
		}
		return gatehouse.Errorf(gatehouse.CodeUnavailable, "the line is dead")
	}
	if f.random != nil && f.slow > 0 {
		time.Sleep(time.Duration(f.draw(int64(f.slow))))
	}
	return nil
}

// Do implements [gatehouse.Gate].
func (f *far) Do(ctx context.Context, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error) {
	if cmd.Op == gatehouse.OpRenew {
		f.renewals.Add(1)
	}
	if err := f.pass(ctx); err != nil {
		return gatehouse.Decision{}, err
	}
	d, err := f.Gate.Do(ctx, key, cmd)
	f.note()
	if bad := f.pass(ctx); bad != nil {
		return gatehouse.Decision{}, bad
	}
	return d, err
}

// DoGrant is Do for several names.
func (f *far) DoGrant(ctx context.Context, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	if err := f.pass(ctx); err != nil {
		return gatehouse.GrantDecision{}, err
	}
	d, err := f.Gate.DoGrant(ctx, cmd)
	if cmd.Op == gatehouse.OpAcquire {
		f.note()
	}
	if bad := f.pass(ctx); bad != nil {
		return gatehouse.GrantDecision{}, bad
	}
	return d, err
}

// handleOf is a handle on a lock or a slot with a term.
func handleOf(h *hold.Handle, term time.Duration) *hold.Handle {
	h.Term = term
	return h
}

// mustAcquire acquires a hold.
func mustAcquire(t *testing.T, h *hold.Handle) *hold.Hold {
	t.Helper()
	got, err := h.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// A hold lasts for as long as its program runs, and passes on when it is released.
func TestHoldRenewsItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{Gate: newGate()}
		first := mustAcquire(t, handleOf(hold.Lock(f, "deploy"), 3*time.Second))
		next := make(chan *hold.Hold)
		go func() { next <- mustAcquire(t, handleOf(hold.Lock(f, "deploy"), 3*time.Second)) }()
		time.Sleep(time.Hour)
		if err := first.Err(); err != nil || first.Context().Err() != nil {
			t.Errorf("a hold after an hour = %v, %v", err, context.Cause(first.Context()))
		}
		if n := f.renewals.Load(); n < 3590 || n > 3610 {
			t.Errorf("%d renewals in an hour, want one a second", n)
		}
		if err := first.Release(); err != nil {
			t.Errorf("release = %v", err)
		}
		second := <-next
		if first.Context().Err() == nil || second.Fence() <= first.Fence() {
			t.Errorf("the fence is %d after %d, and the context of the first ends with %v", second.Fence(),
				first.Fence(), context.Cause(first.Context()))
		}
		// It has waited for an hour, and is renewed before it is returned.
		time.Sleep(2900 * time.Millisecond)
		if err := second.Err(); err != nil {
			t.Errorf("the second after almost a term = %v", err)
		}
		if err := errors.Join(second.Release(), second.Release()); err != nil {
			t.Errorf("two releases = %v", err)
		}
	})
}

// A renewal that gets no answer does no harm; when none gets one, the holder knows before another is granted
// the lock.
func TestLostHoldIsKnownFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		f := &far{Gate: g}
		held := mustAcquire(t, handleOf(hold.Semaphore(f, "gpu", 1), 6*time.Second))
		time.Sleep(1900 * time.Millisecond)
		f.lost.Store(true)
		time.Sleep(1000 * time.Millisecond) // the beat at 2 s is lost
		f.lost.Store(false)
		time.Sleep(time.Minute)
		if err := held.Err(); err != nil {
			t.Fatalf("a hold that missed one beat = %v", err)
		}
		f.lost.Store(true)
		granted := make(chan time.Time)
		go func() {
			other := mustAcquire(t, handleOf(hold.Semaphore(g, "gpu", 1), 6*time.Second))
			granted <- time.Now()
			_ = other.Release()
		}()
		<-held.Context().Done()
		known := time.Now()
		early := (<-granted).Sub(known)
		t.Logf("known %s before the next one starts", early)
		if early < 500*time.Millisecond || early > 2*time.Second {
			t.Errorf("known %s before the next one starts, want a tenth of the term and more", early)
		}
		began := time.Now()
		err := held.Release()
		if !errors.Is(err, hold.ErrLost) || time.Since(began) > 0 || !errors.Is(held.Err(), hold.ErrLost) ||
			!errors.Is(context.Cause(held.Context()), hold.ErrLost) {
			t.Errorf("release of a lost hold = %v after %s", err, time.Since(began))
		}
	})
}

// Whatever a line loses or delays, no two hold at once, and each learns of its loss before the next one
// starts.
func TestNeverTwoHolders(t *testing.T) {
	rounds, lost, least := 0, 0, time.Hour
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 3)) //nolint:gosec // no secret is made of it
			g := newGate()
			term := time.Duration(100+random.IntN(900)) * time.Millisecond
			var holders atomic.Int32
			var mu sync.Mutex
			var ended time.Time // when the last one knew that it is over
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			work := func(random *rand.Rand) {
				own := rand.New(rand.NewPCG(random.Uint64(), 0)) //nolint:gosec // no secret
				f := &far{Gate: g, random: own, slow: term / 3, loss: random.IntN(40)}
				handle := handleOf(hold.Lock(f, "one"), term)
				for ctx.Err() == nil {
					h, err := handle.Acquire(ctx)
					if err != nil {
						continue
					}
					if holders.Add(1) > 1 {
						t.Errorf("seed %d: two holders at once", seed)
					}
					mu.Lock()
					if !ended.IsZero() {
						least = min(least, time.Since(ended))
					}
					rounds++
					mu.Unlock()
					select {
					case <-h.Context().Done():
					case <-time.After(time.Duration(random.Int64N(int64(2 * term)))):
					}
					mu.Lock()
					if h.Err() != nil {
						lost++
					}
					ended = time.Now()
					mu.Unlock()
					holders.Add(-1)
					_ = h.Release() // it may be lost
				}
			}
			done := make(chan struct{})
			for i := range uint64(3) {
				go func() {
					work(rand.New(rand.NewPCG(seed, i))) //nolint:gosec // no secret is made of it
					done <- struct{}{}
				}()
			}
			for range 3 {
				<-done
			}
			time.Sleep(time.Minute)
		})
	}
	t.Logf("%d holds, %d lost, the next one starts %s after the end and later", rounds, lost, least)
	if rounds < 1000 || lost < 100 {
		t.Errorf("%d holds, %d lost, want more to be tried", rounds, lost)
	}
}

// An evicted holder learns which operator evicted it, and why.
func TestEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		held := mustAcquire(t, handleOf(hold.Lock(g, "deploy"), 3*time.Second))
		if _, err := g.Do(t.Context(), gatehouse.Key{Kind: gatehouse.Lock, Name: "deploy"}, gatehouse.Command{
			Op: gatehouse.OpEvict, Fence: held.Fence(), Message: "drained", Now: false,
			Owner: &gatehouse.Owner{Name: "ops"},
		}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		<-held.Context().Done()
		err := held.Release()
		if !errors.Is(err, hold.ErrLost) || !strings.Contains(err.Error(), "by ops: drained") ||
			time.Since(began) > time.Second {
			t.Errorf("release of an evicted hold = %v after %s", err, time.Since(began))
		}
	})
}

// A release that gets no answer ends within the term, and says so.
func TestReleaseWithoutServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{Gate: newGate()}
		held := mustAcquire(t, handleOf(hold.Lock(f, "deploy"), 3*time.Second))
		f.lost.Store(true)
		began := time.Now()
		err := held.Release()
		if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable || errors.Is(err, hold.ErrLost) ||
			time.Since(began) > 3*time.Second {
			t.Errorf("release = %v after %s, want unavailable within the term", err, time.Since(began))
		}
	})
}

// A caller that gives up while it waits holds nothing, even if it was granted at that very moment.
func TestAcquireGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 1)) //nolint:gosec // no secret is made of it
		f := &far{Gate: newGate(), random: random, slow: time.Second}
		for i := range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Millisecond)
			h, err := handleOf(hold.Lock(f, "deploy"), time.Hour).Acquire(ctx)
			cancel()
			if err == nil {
				_ = h.Release()
			} else if code := gatehouse.CodeOf(err); code != gatehouse.CodeTimeout {
				t.Errorf("acquire = %v of code %s", err, code)
			}
			time.Sleep(10 * time.Second)
			h, ok, err := hold.Lock(f.Gate, "deploy").TryAcquire(t.Context())
			if err != nil || !ok {
				t.Fatalf("%d: the lock is free and cannot be acquired: %v", i, err)
			}
			_ = h.Release()
		}
	})
}

// Do ends the work when the hold is lost, and says so.
func TestDo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &far{Gate: newGate()}
		handle := handleOf(hold.Semaphore(f, "gpu", 2), time.Second)
		handle.Owner = &gatehouse.Owner{Name: "train-a"}
		handle.Cost = 2
		failure := errors.New("out of memory")
		err := handle.Do(t.Context(), func(context.Context) error { return failure })
		if !errors.Is(err, failure) || errors.Is(err, hold.ErrLost) {
			t.Errorf("Do = %v, want what the work failed with", err)
		}
		err = handle.Do(t.Context(), func(ctx context.Context) error {
			f.lost.Store(true)
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, hold.ErrLost) || !errors.Is(err, context.Canceled) {
			t.Errorf("Do = %v, want that the hold was lost", err)
		}
		f.lost.Store(false)
		time.Sleep(time.Minute)
		ctx, cancel := context.WithCancel(t.Context())
		err = handle.Do(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			return nil
		})
		if err != nil {
			t.Errorf("Do that is canceled = %v, want what the work returned", err)
		}
	})
}
