package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func bucket(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name}
}

func do(t *testing.T, s *Store, key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	t.Helper()
	queue := []control.Turn{{Command: &cmd}}
	if err := (&control.Change{Key: key, Turns: queue}).ApplyTo(s); err != nil {
		t.Fatalf("Apply(%s, %s) = %v", key, cmd.Op, err)
	}
	return queue[0].Decision
}

func take() gatehouse.Command {
	return gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 1, Interval: time.Second}, Cost: 1, Holder: "k", Expires: time.Hour,
	}
}

func TestNamesAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "lock"}
		for i := range 5000 {
			do(t, s, bucket(fmt.Sprint(i)), take())
		}
		do(t, s, lock, take())
		do(t, s, gatehouse.Key{Kind: gatehouse.Event, Name: "e"}, gatehouse.Command{Op: gatehouse.OpSend})
		if got := s.Len(); got != 5002 {
			t.Fatalf("Len() = %d, want 5002", got)
		}
		time.Sleep(LimitLinger) // a bucket is full after a second, and keeps its limit for ten minutes
		stats := gatehouse.Command{Op: gatehouse.OpStats}
		if got := do(t, s, bucket("7"), stats).Outcome; got != gatehouse.Granted {
			t.Errorf("stats of a lingering bucket: %s, want granted", got)
		}
		time.Sleep(3 * time.Minute)
		if got := s.Len(); got != 2 {
			t.Errorf("Len() = %d, want the lock and the event", got)
		}
		if got := do(t, s, bucket("7"), stats).Outcome; got != gatehouse.Missing {
			t.Errorf("stats of a forgotten bucket: %s, want missing", got)
		}
		time.Sleep(2 * time.Hour)
		if got := s.Len(); got != 1 {
			t.Errorf("Len() = %d, want the event", got)
		}
		time.Sleep(25 * time.Hour)
		if got := s.Len(); got != 0 {
			t.Errorf("Len() = %d, want 0", got)
		}
	})
}

// A hold without an end is kept for ever; once it is released its name does not stay.
func TestEndlessHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "lock"}
		cmd := take()
		cmd.Expires = 0
		do(t, s, lock, cmd)
		time.Sleep(1000 * time.Hour)
		cmd.Holder, cmd.MaxWait = "other", 0
		if got := do(t, s, lock, cmd); got.Outcome != gatehouse.Refused {
			t.Fatalf("acquire of a held lock: %s, want refused", got.Outcome)
		}
		do(t, s, lock, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "k"})
		time.Sleep(2 * maxCheckDelay)
		if got := s.Len(); got != 0 {
			t.Errorf("Len() = %d, want 0", got)
		}
	})
}

// Deleting and making the same name again and again does not grow anything.
func TestDeletedNamesLeaveNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		for range 10_000 {
			do(t, s, bucket("same"), take())
			do(t, s, bucket("same"), gatehouse.Command{Op: gatehouse.OpDelete})
		}
		sh := s.shardOf(bucket("same"))
		sh.mu.Lock()
		n := len(sh.tables[gatehouse.TokenBucket].checks)
		sh.mu.Unlock()
		if n != 1 || s.Len() != 1 {
			t.Errorf("%d entries, %d names, want 1 of each", n, s.Len())
		}
		time.Sleep(maxCheckDelay + DefaultLinger + 2*sweepSlack)
		if s.Len() != 0 {
			t.Errorf("%d names, want none", s.Len())
		}
	})
}

// A name that is used now and then keeps its figures.
func TestLingersFromTheLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "lock"}
		for range 100 {
			do(t, s, bucket("a"), take())
			do(t, s, lock, take())
			do(t, s, lock, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "k"})
			time.Sleep(30 * time.Second)
		}
		for _, key := range []gatehouse.Key{bucket("a"), lock} {
			d := do(t, s, key, gatehouse.Command{Op: gatehouse.OpStats})
			if d.Outcome != gatehouse.Granted || d.Stats[0].Value != int64(100) {
				t.Errorf("%s: %s %v, want 100 acquired", key, d.Outcome, d.Stats)
			}
		}
	})
}

func TestTooManyNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Names: 100})
		for i := range 1000 { // what lingers gives way
			do(t, s, bucket(fmt.Sprint(i)), take())
			time.Sleep(20 * time.Millisecond)
		}
		if s.Len() > 100 {
			t.Fatalf("%d names, want at most 100", s.Len())
		}
		time.Sleep(time.Hour)
		for i := range 100 {
			do(t, s, gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprint(i)}, take())
		}
		cmd := take()
		change := control.Change{Key: bucket("one too many"), Turns: []control.Turn{{Command: &cmd}}}
		err := change.ApplyTo(s)
		if gatehouse.CodeOf(err) != gatehouse.CodeExhausted {
			t.Fatalf("with every name in use: %v, want exhausted", err)
		}
		// What is there goes on, what needs no name is answered, and when something goes there is room.
		unknown := gatehouse.Key{Kind: gatehouse.Lock, Name: "unknown"}
		for op, want := range map[gatehouse.Op]gatehouse.Outcome{
			gatehouse.OpStats: gatehouse.Missing, gatehouse.OpDelete: gatehouse.Missing,
			gatehouse.OpRelease: gatehouse.Conflict,
		} {
			if got := do(t, s, unknown, gatehouse.Command{Op: op, Holder: "k"}); got.Outcome != want {
				t.Errorf("%s of an unknown name: %s, want %s", op, got.Outcome, want)
			}
		}
		do(t, s, gatehouse.Key{Kind: gatehouse.Lock, Name: "5"}, take())
		do(t, s, gatehouse.Key{Kind: gatehouse.Lock, Name: "5"}, gatehouse.Command{Op: gatehouse.OpDelete})
		time.Sleep(fullFor)
		do(t, s, bucket("fits"), take())
		lock := gatehouse.Key{Kind: gatehouse.Lock, Name: "6"}
		do(t, s, lock, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "k"})
		do(t, s, bucket("fits too"), take())
	})
}

// Room is found however many names are due at the same instant as the one at rest.
func TestRoomAmongNamesOfOneInstant(t *testing.T) {
	const most = 200 // some shards have several, none more than are looked at together
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Names: most})
		lock := func(i int) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprint(i)} }
		for i := range most {
			do(t, s, lock(i), take())
		}
		for i := range most {
			do(t, s, lock(i), gatehouse.Command{Op: gatehouse.OpRelease, Holder: "k"})
			do(t, s, lock(most+i), take())
			do(t, s, lock(most+i), gatehouse.Command{Op: gatehouse.OpDelete})
			do(t, s, lock(i), take())
		}
	})
}

func TestPinned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		stop := s.Watch(bucket("a"), nil)
		stopToo := s.Watch(bucket("a"), nil)
		do(t, s, bucket("a"), take())
		time.Sleep(time.Hour)
		stop()
		time.Sleep(time.Hour)
		if s.Len() != 1 {
			t.Errorf("a watched name was forgotten")
		}
		stopToo()
		time.Sleep(time.Hour)
		if s.Len() != 0 {
			t.Errorf("a name that nobody watches any more is kept")
		}
	})
}

func TestRange(t *testing.T) {
	s := New(Config{})
	var want []string
	for i := range 3000 {
		name := fmt.Sprintf("name/%04d", i)
		do(t, s, bucket(name), take())
		want = append(want, name)
	}
	do(t, s, gatehouse.Key{Kind: gatehouse.Event, Name: "other"}, gatehouse.Command{Op: gatehouse.OpSend})
	for _, after := range []string{"", "name/1023", "name/2998", "zzz"} {
		var got []string
		visit := func(k gatehouse.Key, _ control.State) bool {
			got = append(got, k.Name)
			return true
		}
		err := s.Range(t.Context(), gatehouse.TokenBucket, after, visit)
		i, found := slices.BinarySearch(want, after)
		if found {
			i++
		}
		if err != nil || !slices.Equal(got, want[i:]) {
			t.Errorf("after %q: %d names, %v, want %d", after, len(got), err, len(want)-i)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Range(ctx, gatehouse.TokenBucket, "", func(gatehouse.Key, control.State) bool { return true })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("with an ended context: %v", err)
	}
}

// A step of the present store changes its state at once and alone: of many at a time, exactly as
// many as there are tokens get one.
func TestAtomic(t *testing.T) {
	s := New(Config{})
	var wg sync.WaitGroup
	granted := make([]int, 8)
	for i := range granted {
		wg.Go(func() {
			for range 1000 {
				cmd := take()
				cmd.Size, cmd.Interval = 500, time.Hour
				queue := []control.Turn{{Command: &cmd}}
				if (&control.Change{Key: bucket("a"), Turns: queue}).ApplyTo(s) == nil &&
					queue[0].Decision.Outcome == gatehouse.Granted {
					granted[i]++
				}
			}
		})
	}
	wg.Wait()
	sum := 0
	for _, n := range granted {
		sum += n
	}
	if sum != 500 {
		t.Errorf("%d tokens given, want 500", sum)
	}
}

// A limit that was given is in force for ten minutes after all of it is back, and a size after the last hold
// is gone. Locks have neither.
func TestLimitsLinger(t *testing.T) {
	inForce := take()
	inForce.Size, inForce.Interval = gatehouse.InForce, 0
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Limiter() && kind != gatehouse.Semaphore {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			s, key := New(Config{}), gatehouse.Key{Kind: kind, Name: "a"}
			cmd := take()
			cmd.Size, cmd.Burst = 7, 6
			for range 3 {
				do(t, s, key, cmd)
				if kind == gatehouse.Semaphore {
					do(t, s, key, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "k"})
				}
				time.Sleep(LimitLinger)
				if d := do(t, s, key, inForce); d.Outcome != gatehouse.Granted || d.Limit != 7 {
					t.Errorf("%s at rest: %s under a limit of %d, want 7", kind, d.Outcome, d.Limit)
				}
				if kind == gatehouse.Semaphore {
					do(t, s, key, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "k"})
				}
				time.Sleep(LimitLinger + 3*time.Minute)
				if d := do(t, s, key, inForce); d.Outcome != gatehouse.Granted || d.Limit != 1 {
					t.Errorf("%s forgotten: %s under a limit of %d, want 1", kind, d.Outcome, d.Limit)
				}
			}
		})
	}
}

// A limiter whose limit is 0 stays stopped for commands that leave the limit as it is, however long they
// come: also one that was in use before, and one that never was.
func TestAStopLasts(t *testing.T) {
	inForce := take()
	inForce.Size, inForce.Interval = gatehouse.InForce, 0
	stop := take()
	stop.Size, stop.Burst = 0, 0
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Limiter() {
			continue
		}
		for _, used := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				s, key := New(Config{}), gatehouse.Key{Kind: kind, Name: "a"}
				if used {
					cmd := take()
					cmd.Size, cmd.Burst = 7, 6
					do(t, s, key, cmd)
					time.Sleep(2 * time.Minute)
				}
				do(t, s, key, stop)
				for minute := range 60 {
					time.Sleep(time.Minute)
					if d := do(t, s, key, inForce); d.Outcome != gatehouse.Refused {
						t.Fatalf("%s, used %t, is %s %d minutes after the stop",
							kind, used, d.Outcome, minute+1)
					}
				}
				time.Sleep(2*LimitLinger + 5*time.Minute)
				if n := s.Len(); n != 0 {
					t.Errorf("%s, used %t: %d names are kept when it was not asked for long, want none",
						kind, used, n)
				}
			})
		}
	}
}

// Visit finds the names that Range does, and ends when it is told to.
func TestVisit(t *testing.T) {
	s := New(Config{})
	want := map[string]bool{}
	for i := range 3000 {
		name := fmt.Sprint("n", i)
		want[name] = true
		c := control.Change{
			Key: gatehouse.Key{Kind: gatehouse.Counter, Name: name}, Done: func(error) {},
			Turns: []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}}},
		}
		s.Apply(&c)
	}
	found := 0
	err := s.Visit(t.Context(), gatehouse.Counter, func(key gatehouse.Key, _ control.State) bool {
		if !want[key.Name] {
			t.Errorf("Visit found %s twice, or where it is not", key)
		}
		delete(want, key.Name)
		found++
		return true
	})
	if err != nil || found != 3000 {
		t.Errorf("Visit found %d names, %v, want 3000", found, err)
	}
	found = 0
	err = s.Visit(t.Context(), gatehouse.Counter, func(gatehouse.Key, control.State) bool {
		found++
		return found < 7
	})
	if err != nil || found != 7 {
		t.Errorf("Visit went on to %d names, %v, want 7", found, err)
	}
}
