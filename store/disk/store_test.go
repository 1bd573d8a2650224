package disk

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/memory"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small makes files small, so that a test can look at all of them.
func small() Config { return Config{Reserve: 16 << 12} }

func must(t *testing.T, dir string, config Config) *Store {
	t.Helper()
	s, err := Open(dir, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func end(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatalf("Close() = %v", err)
	}
}

// An applier is a store, as far as these tests use one.
type applier interface {
	Apply(c *control.Change)
}

func do(t *testing.T, s applier, key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	t.Helper()
	return doTurn(t, s, key, control.Turn{Command: &cmd})
}

func doTurn(t *testing.T, s applier, key gatehouse.Key, turn control.Turn) gatehouse.Decision {
	t.Helper()
	queue := []control.Turn{turn}
	if err := (&control.Change{Key: key, Turns: queue}).ApplyTo(s); err != nil {
		t.Fatalf("Apply(%s, %s) = %v", key, turn.Op, err)
	}
	return queue[0].Decision
}

func lock(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: name} }

func slots(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Semaphore, Name: name} }

func acquire(holder string) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder,
		Rule: gatehouse.Rule{Size: 3, Interval: time.Hour}, Cost: 1, Expires: time.Hour,
	}
}

func release(holder string) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpRelease, Holder: holder}
}

// copied is the directory as a process that is killed now would leave it.
func copied(t *testing.T, dir string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, fileName))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := os.WriteFile(filepath.Join(to, fileName), data, 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// script is a random series of commands, with pauses between them.
func script(random *rand.Rand) (key gatehouse.Key, cmd gatehouse.Command, pause time.Duration) {
	kinds := []gatehouse.Kind{
		gatehouse.Semaphore, gatehouse.Semaphore, gatehouse.Lock, gatehouse.Event, gatehouse.Watchdog,
		gatehouse.Counter, gatehouse.Barrier, gatehouse.GCRA, gatehouse.SlidingLog,
	}
	key = gatehouse.Key{Kind: kinds[random.IntN(len(kinds))], Name: fmt.Sprint("name ", random.IntN(3))}
	ops := map[gatehouse.Kind][]gatehouse.Op{
		gatehouse.Semaphore: {gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew},
		gatehouse.Lock:      {gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew},
		gatehouse.Event:     {gatehouse.OpSend, gatehouse.OpWait},
		gatehouse.Watchdog:  {gatehouse.OpKick, gatehouse.OpWait},
		gatehouse.Counter:   {gatehouse.OpCount, gatehouse.OpReset, gatehouse.OpValue},
		gatehouse.Barrier:   {gatehouse.OpWait},
	}[key.Kind]
	if ops == nil {
		ops = []gatehouse.Op{gatehouse.OpAcquire}
	}
	cmd = gatehouse.Command{
		Op: ops[random.IntN(len(ops))], Holder: fmt.Sprint("holder ", random.IntN(5)),
		Rule: gatehouse.Rule{
			Size:     int64(1 + random.IntN(4)),
			Interval: 4 * time.Second,
		}, Cost: 1, Amount: int64(random.IntN(9) - 4),
		Expires: time.Duration(random.IntN(4)) * 10 * time.Second,
		Message: "message", Keep: 1000 * time.Hour,
	}
	if key.Kind.Limiter() {
		cmd.Size = 3
	}
	if random.IntN(20) == 0 {
		cmd.Op = gatehouse.OpDelete
	}
	if random.IntN(3) == 0 {
		pause = time.Duration(random.IntN(8000)) * time.Millisecond
	}
	return key, cmd, pause
}

// Whatever is done, and however often the store is opened anew, or killed and opened: the decisions are
// those of a store that never stopped.
func TestDecidesAsIfItHadNeverStopped(t *testing.T) {
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 1))
			dir := t.TempDir()
			ours, model := must(t, dir, small()), memory.New(memory.Config{})
			for step := range 400 {
				key, cmd, pause := script(random)
				time.Sleep(pause)
				got, want := do(t, ours, key, cmd), do(t, model, key, cmd)
				// Only one of them deletes what lingers.
				if cmd.Op != gatehouse.OpDelete && !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d: %s %s = %+v, want %+v", seed, step, key, cmd.Op, got, want)
				}
				switch random.IntN(30) {
				case 0:
					end(t, ours)
					time.Sleep(5 * time.Millisecond) // the clock goes on after the last instant in the file
					ours = must(t, dir, small())
				case 1:
					time.Sleep(2*DefaultFlush + 4*time.Second) // what limiters count is on disk, or over
					dir = copied(t, dir)
					end(t, ours)
					time.Sleep(5 * time.Millisecond)
					ours = must(t, dir, small())
				}
			}
			end(t, ours)
		})
	}
}

// What is forgotten or deleted leaves nothing in the file.
func TestForgottenNamesLeaveTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := must(t, dir, small())
		for i := range 500 {
			name := fmt.Sprint(i)
			do(t, s, slots(name), acquire("a"))
			do(t, s, slots(name), acquire("b"))
			bucket := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: name}
			do(t, s, bucket, acquire(""))
			if i%2 == 0 {
				do(t, s, slots(name), gatehouse.Command{Op: gatehouse.OpDelete})
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.head.count; got != 250*3+500 {
			t.Errorf("%d records, want those of 250 semaphores with two holds and of 500 buckets", got)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if got := s.head.count; got != 0 || s.Len() != 0 {
			t.Errorf("%d records and %d names when all is over, want none", got, s.Len())
		}
		end(t, s)
		s = must(t, dir, small())
		end(t, s)
	})
}

// What ends while the store is closed has ended, and what does not has not.
func TestTimePassesWhileClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := must(t, dir, small())
		dog := gatehouse.Key{Kind: gatehouse.Watchdog, Name: "dog"}
		do(t, s, dog, gatehouse.Command{Op: gatehouse.OpKick, Expires: 90 * time.Second})
		do(t, s, slots("s"), acquire("long"))
		short := acquire("short")
		short.Expires = time.Minute
		before := do(t, s, slots("s"), short).Fence
		do(t, s, lock("l"), short)
		end(t, s)
		time.Sleep(100 * time.Second)
		s = must(t, dir, small())
		wait := gatehouse.Command{Op: gatehouse.OpWait}
		if got := do(t, s, dog, wait).Outcome; got != gatehouse.Granted {
			t.Errorf("a watchdog whose time passed meanwhile: %s, want granted", got)
		}
		if got := do(t, s, slots("s"), release("short")).Outcome; got != gatehouse.Conflict {
			t.Errorf("release of a hold that ended meanwhile: %s, want conflict", got)
		}
		if got := do(t, s, slots("s"), acquire("new")).Fence; got <= before {
			t.Errorf("fencing token %d after %d", got, before)
		}
		if got := do(t, s, slots("s"), release("long")).Outcome; got != gatehouse.Granted {
			t.Errorf("release of a hold that has not ended: %s, want granted", got)
		}
		got := do(t, s, lock("l"), acquire("other"))
		if got.Outcome != gatehouse.Granted || got.Fence <= before {
			t.Errorf("a lock whose hold ended meanwhile: %s with %d after %d, want granted and more",
				got.Outcome, got.Fence, before)
		}
		end(t, s)
	})
}

// A clock that was set back while the store was closed neither lengthens holds nor lowers fencing tokens.
func TestClockSetBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, back := range []time.Duration{time.Second, time.Hour, 365 * 24 * time.Hour} {
			dir := t.TempDir()
			s := must(t, dir, small())
			hold := acquire("k")
			hold.Expires = time.Minute
			before := do(t, s, lock("l"), hold).Fence
			end(t, s)
			config := small()
			config.Now = func() time.Time { return time.Now().Add(-back) }
			s = must(t, dir, config)
			if got := do(t, s, lock("other"), acquire("k")).Fence; got <= before {
				t.Errorf("set back by %s: fencing token %d after %d", back, got, before)
			}
			time.Sleep(time.Minute)
			if got := do(t, s, lock("l"), acquire("other")).Outcome; got != gatehouse.Granted {
				t.Errorf("set back by %s: a hold of a minute after a minute: %s, want its end", back, got)
			}
			end(t, s)
		}
	})
}

// One start with a clock far ahead ends what had an end, and the time does not go back afterwards.
func TestClockFarAheadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ahead = 60 * 365 * 24 * time.Hour
		dir := t.TempDir()
		config := small()
		var fence uint64
		for _, step := range []time.Duration{0, ahead, 0} {
			config.Now = func() time.Time { return time.Now().Add(step) }
			s := must(t, dir, config)
			hold := acquire("k")
			hold.Expires = time.Hour
			endless := acquire("k")
			endless.Expires = 0
			d := do(t, s, lock("l"), hold)
			do(t, s, lock("endless"), endless)
			if got := do(t, s, lock("endless"), acquire("other")).Outcome; got != gatehouse.Refused {
				t.Errorf("with a step of %s a hold without end: %s, want it kept", step, got)
			}
			if d.Fence < fence || step == ahead && d.Fence == fence {
				t.Errorf("with a step of %s the fencing token is %d after %d", step, d.Fence, fence)
			}
			fence = d.Fence
			end(t, s)
		}
		if at := time.UnixMicro(int64(fence)); time.Until(at) < ahead-time.Hour { //nolint:gosec // a time
			t.Errorf("after a start far ahead the fencing token is of %s, want it not to fall", at)
		}
	})
}

// Who waited at a barrier when the process ended does not count any more.
func TestArrivalsEndWithTheProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := must(t, dir, small())
		key := gatehouse.Key{Kind: gatehouse.Barrier, Name: "b"}
		cmd := gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}, MaxWait: gatehouse.Forever,
		}
		wait := control.Turn{Command: &cmd, Ticket: 7}
		s.Watch(key, nil)
		doTurn(t, s, key, wait)
		time.Sleep(2 * DefaultFlush)
		end(t, s)
		s = must(t, dir, small())
		s.Watch(key, nil)
		wait.Ticket = 8
		if got := doTurn(t, s, key, wait).Outcome; got != gatehouse.Refused {
			t.Errorf("the first after a restart: %s, want refused", got)
		}
		wait.Ticket = 9
		if got := doTurn(t, s, key, wait).Outcome; got != gatehouse.Granted {
			t.Errorf("the second: %s, want granted", got)
		}
		end(t, s)
	})
}

// Only those limits are forgotten by a crash that were used since the last flush.
func TestFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		s := must(t, dir, small())
		bucket := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "b"}
		do(t, s, bucket, acquire(""))
		time.Sleep(DefaultFlush + time.Millisecond)
		synctest.Wait()
		do(t, s, bucket, acquire(""))
		killed := must(t, copied(t, dir), small())
		if got := do(t, killed, bucket, acquire("")).Remaining; got != 1 {
			t.Errorf("%d tokens left after a crash, want 1: one of two that were taken before is lost", got)
		}
		end(t, killed)
		end(t, s)
		s = must(t, dir, small())
		if got := do(t, s, bucket, acquire("")).Remaining; got != 0 {
			t.Errorf("%d tokens left after a stop, want 0", got)
		}
		end(t, s)
	})
}

// Names are listed as those of any store.
func TestRange(t *testing.T) {
	s := must(t, t.TempDir(), small())
	defer end(t, s)
	for _, name := range []string{"c", "a", "b"} {
		do(t, s, lock(name), acquire("k"))
	}
	var got []string
	err := s.Range(t.Context(), gatehouse.Lock, "a", func(key gatehouse.Key, _ control.State) bool {
		got = append(got, key.Name)
		return true
	})
	if err != nil || !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("after a: %q, %v, want b and c", got, err)
	}
	stop := s.Watch(lock("d"), nil)
	stop()
}
