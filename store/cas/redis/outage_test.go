package redis_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

const (
	// late is how much later than its budget a call may return on the busiest machine; at rest it is 20 ms.
	// What exceeds it hangs. How soon things happen is tested in virtual time.
	late = patience / 2
	// soon is within what time a Redis that is back is used again on such a machine; at rest it is 10 ms.
	soon = patience
)

// timed makes a call with a budget, and says how long it took.
func timed(t *testing.T, b *redis.Backend, budget time.Duration) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), budget)
	defer cancel()
	began := time.Now()
	_, err := b.Swap(ctx, key("a"), &cas.RecordChange{If: 1, Read: true})
	return time.Since(began), err
}

// A slow Redis is waited for within the budget, and no longer.
func TestSlow(t *testing.T) {
	t.Parallel()
	proxy := redistest.StartProxy(t, redistest.Start(t).Address, 1)
	b := open(t, "redis://"+proxy.Address)
	if _, err := timed(t, b, patience); err != nil {
		t.Fatal(err)
	}
	const delay = 150 * time.Millisecond
	proxy.Delay(delay)
	if took, err := timed(t, b, patience); err != nil || took < delay || took > delay+late {
		t.Errorf("a call took %v, %v, want 150ms", took, err)
	}
	took, err := timed(t, b, 50*time.Millisecond)
	if err == nil || errors.Is(err, cas.ErrNotSent) || errors.Is(err, cas.ErrRefused) {
		t.Errorf("a call that was sent and not answered: %v, want its outcome unknown", err)
	}
	if took > 50*time.Millisecond+late {
		t.Errorf("it took %v, want 50ms", took)
	}
}

// A Redis that stands still costs each call its budget, and nothing grows meanwhile.
func TestPaused(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	if _, err := timed(t, b, patience); err != nil {
		t.Fatal(err)
	}
	const budget, askers, rounds = 50 * time.Millisecond, 100, 30
	server.Freeze()
	var mu sync.Mutex
	var over []time.Duration
	unsent, most := 0, 0
	var work sync.WaitGroup
	for range askers {
		work.Go(func() {
			for range rounds {
				took, err := timed(t, b, budget)
				mu.Lock()
				over = append(over, took-budget)
				if errors.Is(err, cas.ErrNotSent) {
					unsent++
				} else if err == nil {
					t.Error("a call was answered, want none")
				}
				most = max(most, runtime.NumGoroutine())
				mu.Unlock()
			}
		})
	}
	work.Wait()
	slices.Sort(over)
	t.Logf("later than the budget: %v for half of them, %v for 90%%, %v at most; "+
		"%d of %d were not sent; %d goroutines",
		over[len(over)/2], over[len(over)*9/10], over[len(over)-1], unsent, len(over), most)
	if half := over[len(over)/2]; half > late { // at rest it is some 2 ms
		t.Errorf("half of the calls took %v and more longer than their budget, want next to nothing", half)
	}
	if unsent < len(over)/2 {
		t.Errorf("of %d calls %d are known not to have been sent, want most of them", len(over), unsent)
	}
	if limit := askers + 300; most > limit { // other tests run beside this one
		t.Errorf("%d goroutines, want at most %d", most, limit)
	}
	server.Thaw()
	began := time.Now()
	redistest.Until(t, func() bool {
		_, err := timed(t, b, 200*time.Millisecond)
		return err == nil
	})
	if took := time.Since(began); took > soon {
		t.Errorf("after the pause the first answer came after %v, want it within 1s", took)
	}
}

// apply puts one command to a store, and fails the test when it cannot be.
func apply(t *testing.T, s *cas.Store, name string, cmd gatehouse.Command) gatehouse.Decision {
	t.Helper()
	d, err := try(s, name, cmd)
	if err != nil {
		t.Fatalf("%v of %q: %v", cmd.Op, cmd.Holder, err)
	}
	return d
}

func try(s *cas.Store, name string, cmd gatehouse.Command) (gatehouse.Decision, error) {
	turn := []control.Turn{{Command: &cmd}}
	key := gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}
	err := (&control.Change{Key: key, Turns: turn}).ApplyTo(s)
	return turn[0].Decision, err
}

func acquire(holder string, size int64) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Rule: gatehouse.Rule{Size: size}, Cost: 1,
	}
}

// eventually repeats an acquire that needs a server until it is granted, and says how long that took.
func eventually(
	t *testing.T, s *cas.Store, name string, cmd gatehouse.Command,
) (gatehouse.Decision, time.Duration) {
	t.Helper()
	began := time.Now()
	for {
		d, err := try(s, name, cmd)
		if err == nil {
			return d, time.Since(began)
		}
		if time.Since(began) > patience {
			t.Fatalf("%q is not granted after %v: %v", cmd.Holder, patience, err)
		}
	}
}

// A Redis that was killed and comes back empty is used again within a second. What it held is forgotten, so
// that once more as many are let in as there is room, and no more; tokens go on rising.
func TestRestartedEmpty(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newStore(t, open(t, "redis://"+server.Address))
	const size = 3
	last := uint64(0)
	for round := range 3 {
		granted := 0
		for i := range 2 * size {
			d, took := eventually(t, s, "a", acquire(fmt.Sprint(round, "/", i), size))
			if took > soon {
				t.Errorf("round %d: the first answer came after %v, want it within 1s", round, took)
			}
			if d.Outcome != gatehouse.Granted {
				continue
			}
			granted++
			if d.Fence <= last {
				t.Errorf("round %d: token %d after %d, want a greater one", round, d.Fence, last)
			}
			last = d.Fence
		}
		if granted != size {
			t.Errorf("round %d: %d were granted, want %d", round, granted, size)
		}
		server.Restart(t)
	}
}

// An address that leads to a replica: while it is one it is only read, and nothing is granted; once it is
// the master it is used. What the old master had and it has not is lost, so that at most one capacity is let
// in beyond; tokens go on rising.
func TestStaleReplica(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	proxy := redistest.StartProxy(t, master.Address, 1)
	s := newStore(t, open(t, "redis://"+proxy.Address))
	first := apply(t, s, "a", acquire("1", 2))
	redistest.Until(t, func() bool { return replica.Int(t, "EXISTS", "gatehouse:semaphore/a") == 1 })
	replica.CLI(t, "REPLICAOF", "127.0.0.1", "1") // it hears no more
	lost := apply(t, s, "a", acquire("2", 2))
	proxy.Switch(replica.Address)
	master.Kill()
	// It is sent again and again until the time is up. The last one may be on its way then: such an acquire
	// says nothing of a replica.
	redistest.Until(t, func() bool {
		d, err := try(s, "a", acquire("3", 2))
		if err == nil {
			t.Errorf("acquire at a replica = %+v, want an error", d)
		} else if !errors.Is(err, cas.ErrNotSent) && !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquire at a replica: %v, want ErrNotSent", err)
		}
		return errors.Is(err, cas.ErrNotSent)
	})
	replica.CLI(t, "REPLICAOF", "NO", "ONE")
	third, took := eventually(t, s, "a", acquire("3", 2))
	if third.Outcome != gatehouse.Granted || third.Fence <= lost.Fence || lost.Fence <= first.Fence {
		t.Errorf("after the failover = %+v, want it granted in place of the lost one, with a token above %d",
			third, lost.Fence)
	}
	if took > soon {
		t.Errorf("it took %v, want at most 1s", took)
	}
	if d := apply(t, s, "a", acquire("4", 2)); d.Outcome != gatehouse.Refused {
		t.Errorf("acquire of one more = %+v, want it refused", d)
	}
}

// A Redis that is full refuses what would grow, says so at once, and works again when there is room.
func TestFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	s := newStore(t, open(t, "redis://"+server.Address))
	apply(t, s, "a", acquire("1", 2))
	server.CLI(t, "CONFIG", "SET", "maxmemory", "1mb")
	for _, cmd := range []gatehouse.Command{acquire("2", 2), {Op: gatehouse.OpRelease, Holder: "1"}} {
		began := time.Now()
		_, err := try(s, "a", cmd)
		if !errors.Is(err, cas.ErrRefused) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%v in a full Redis: %v, want ErrRefused and OOM told", cmd.Op, err)
		}
		if took := time.Since(began); took > late {
			t.Errorf("it took %v, want it at once", took)
		}
	}
	server.CLI(t, "CONFIG", "SET", "maxmemory", "0")
	if d := apply(t, s, "a", acquire("2", 2)); d.Outcome != gatehouse.Granted {
		t.Errorf("acquire with room again = %+v, want it granted", d)
	}
}

// A change whose answer was lost is not sent again by itself, and its outcome is not known.
func TestNotResent(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Address, 1)
	b := open(t, "redis://"+proxy.Address)
	ask(t, b, key("a"), &cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Minute})
	server.CLI(t, "CONFIG", "RESETSTAT")
	proxy.Lose(1)
	change := &cas.RecordChange{If: 1, Next: record(2, ""), Nonce: 2, Keep: time.Minute}
	_, err := b.Swap(soonest(t), key("a"), change)
	if err == nil || errors.Is(err, cas.ErrNotSent) || errors.Is(err, cas.ErrRefused) {
		t.Errorf("Swap without an answer: %v, want its outcome unknown", err)
	}
	proxy.Lose(0)
	if reply := ask(t, b, key("a"), &cas.RecordChange{If: 2, Read: true}); !reply.Swapped {
		t.Errorf("the record = %+v, want the new one", reply)
	}
	if stats := server.CLI(t, "INFO", "commandstats"); !strings.Contains(stats, "cmdstat_evalsha:calls=2,") {
		t.Errorf("commands since: %s, want EVALSHA twice: the change and the read", stats)
	}
}
