package disk

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/memory"
	bolt "go.etcd.io/bbolt"
)

func try(s applier, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error) {
	queue := []control.Turn{{Command: &cmd}}
	err := (&control.Change{Key: key, Turns: queue}).ApplyTo(s)
	if err == nil {
		err = queue[0].Err
	}
	return queue[0].Decision, err
}

// noRoom is what a commit says when the disk is full.
func noRoom(tx *bolt.Tx) error {
	if err := tx.Rollback(); err != nil {
		return err
	}
	return &fs.PathError{Op: "write", Path: "file", Err: syscall.ENOSPC}
}

// failures are how a commit may fail for good.
func failures() map[string]func(*bolt.Tx) error {
	return map[string]func(*bolt.Tx) error{
		"not written": func(tx *bolt.Tx) error { return errors.Join(tx.Rollback(), syscall.EIO) },
		"written":     func(tx *bolt.Tx) error { return errors.Join(tx.Commit(), syscall.EIO) },
		"a panic": func(tx *bolt.Tx) error {
			panic(errors.Join(tx.Rollback(), errors.New("a page is not what it should be")))
		},
		"written, and then no room": func(tx *bolt.Tx) error {
			return errors.Join(tx.Commit(), &fs.PathError{Op: "write", Path: "file", Err: syscall.ENOSPC})
		},
	}
}

// acquireMany acquires locks by several at once until the store fails, and returns what was acknowledged.
// failed is whether the disk has failed.
func acquireMany(t *testing.T, s *Store, failed *atomic.Bool) map[string]uint64 {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	held := map[string]uint64{}
	for w := range 4 {
		wg.Go(func() {
			for i := range 1000 {
				name, before := fmt.Sprint(w, " ", i), failed.Load()
				d, err := try(s, lock(name), acquire("k"))
				if err != nil {
					if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable ||
						!strings.Contains(err.Error(), "the disk failed") {
						t.Errorf("%v, want unavailable, and why", err)
					}
					return
				}
				if before {
					t.Error("a grant was acknowledged after the failure")
				}
				mu.Lock()
				held[name] = d.Fence
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return held
}

// Once the disk has failed nobody is told anything but that, even if the next write would go well; and
// what was acknowledged before is there.
func TestNothingIsAcknowledgedAfterAFailure(t *testing.T) {
	for name, failure := range failures() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := must(t, dir, small())
			var commits atomic.Int64
			var failed atomic.Bool
			s.commitTx = func(tx *bolt.Tx) error {
				if commits.Add(1) != 20 {
					return tx.Commit()
				}
				failed.Store(true)
				return failure(tx)
			}
			held := acquireMany(t, s, &failed)
			select {
			case <-s.Failed():
			case <-time.After(await.Patience):
				t.Fatal("nobody is told that the store has failed")
			}
			if s.Err() == nil || s.Close() == nil {
				t.Error("want an error of Err and of Close")
			}
			if _, err := try(s, lock("x"), gatehouse.Command{Op: gatehouse.OpStats}); err == nil {
				t.Error("a question was answered after the failure")
			}
			s = must(t, copied(t, dir), small())
			for name, fence := range held {
				d, err := try(s, lock(name), acquire("k"))
				if err != nil || d.Fence != fence {
					t.Errorf("%s is held with %d, %v after a restart, want %d", name, d.Fence, err, fence)
				}
			}
			end(t, s)
		})
	}
}

// However often there is no room for a change: what is refused has changed nothing, and what is not is
// decided as if the others had not been tried.
func TestWhatHasNoRoomIsTakenBack(t *testing.T) {
	refused := 0
	for seed := range uint64(6) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 2))
			dir := t.TempDir()
			ours, model := must(t, dir, small()), memory.New(memory.Config{})
			var full atomic.Bool
			ours.commitTx = func(tx *bolt.Tx) error {
				if full.Load() {
					return noRoom(tx)
				}
				return tx.Commit()
			}
			for step := range 400 {
				key, cmd, pause := script(random)
				if key.Kind.Limiter() {
					continue
				}
				time.Sleep(pause)
				synctest.Wait()
				full.Store(random.IntN(8) == 0)
				got, err := try(ours, key, cmd)
				synctest.Wait()
				full.Store(false)
				if err != nil {
					refused++
					continue
				}
				want := do(t, model, key, cmd)
				if cmd.Op != gatehouse.OpDelete && !reflect.DeepEqual(got, want) {
					t.Fatalf("seed %d, step %d: %s %s = %+v, want %+v", seed, step, key, cmd.Op, got, want)
				}
			}
			if ours.Err() != nil {
				t.Errorf("seed %d: %v", seed, ours.Err())
			}
			end(t, ours)
		})
	}
	if refused < 50 {
		t.Errorf("%d commands were refused, want some dozen", refused)
	}
}

// The same with many at once: whoever is told that a hold is theirs has it, and nobody else has one.
func TestTakingBackAmongMany(t *testing.T) {
	dir := t.TempDir()
	s := must(t, dir, small())
	var commits atomic.Int64
	var done atomic.Bool
	s.commitTx = func(tx *bolt.Tx) error {
		if commits.Add(1)%5 == 0 && !done.Load() {
			return noRoom(tx)
		}
		return tx.Commit()
	}
	const workers, names = 16, 10
	held := make([]map[string]bool, workers)
	var wg sync.WaitGroup
	for w := range workers {
		held[w] = map[string]bool{}
		wg.Go(func() {
			holder := fmt.Sprint("holder ", w)
			for i := range 300 {
				name := fmt.Sprint(i % names)
				cmd := acquire(holder)
				cmd.Size = workers
				if held[w][name] {
					cmd = release(holder)
				} else if s.trouble.Load() != nil {
					s.roomWanted.Store(true) // which is tried each second otherwise
					s.wakeWriter()
				}
				if d, err := try(s, slots(name), cmd); err == nil {
					held[w][name] = cmd.Op == gatehouse.OpAcquire
					if d.Outcome != gatehouse.Granted {
						t.Errorf("%s = %s, want granted", cmd.Op, d.Outcome)
					}
				}
			}
		})
	}
	wg.Wait()
	done.Store(true)
	for i := range names {
		want := 0
		for w := range workers {
			if held[w][fmt.Sprint(i)] {
				want++
			}
		}
		wantHolders(t, s, slots(fmt.Sprint(i)), want)
	}
	end(t, s)
	s = must(t, dir, small())
	for w := range workers {
		for name := range held[w] {
			cmd := release(fmt.Sprint("holder ", w))
			if got := do(t, s, slots(name), cmd).Outcome == gatehouse.Granted; got != held[w][name] {
				t.Errorf("%s of %s after a restart is granted: %t, want %t", cmd.Holder, name, got, !got)
			}
		}
	}
	end(t, s)
}

func wantHolders(t *testing.T, s *Store, key gatehouse.Key, want int) {
	t.Helper()
	for _, stat := range do(t, s, key, gatehouse.Command{Op: gatehouse.OpStats}).Stats {
		if stat.Name == "holders" && stat.Value != int64(want) {
			t.Errorf("%s has %d holders, want %d", key, stat.Value, want)
		}
	}
}

// A second store in the same directory is refused, in this process as in another.
func TestOneStoreForADirectory(t *testing.T) {
	dir := t.TempDir()
	s := must(t, dir, small())
	_, err := Open(dir, small())
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable ||
		!strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "pid is") {
		t.Errorf("a second Open = %v, want unavailable, where and who", err)
	}
	end(t, s)
	end(t, must(t, dir, small()))
	if _, err := try(s, lock("l"), acquire("k")); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		t.Errorf("after Close: %v, want unavailable", err)
	}
}

// What the file is asked while changes are taken back may fail in every way that bbolt has.
func TestTakingBackFails(t *testing.T) {
	s := must(t, t.TempDir(), small())
	none := gatehouse.Key{Kind: gatehouse.Kind(gatehouse.Kinds + 1)} // it has no bucket, and bbolt panics
	err := s.restoreStates(map[gatehouse.Key]*nameChange{none: nil})
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable ||
		!strings.Contains(err.Error(), "the disk failed") {
		t.Errorf("restore = %v, want unavailable, and why", err)
	}
}

// Many names that are forgotten at once go to disk in parts, so that nobody waits long behind them.
func TestForgettingManyInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := must(t, t.TempDir(), Config{Linger: time.Second})
		var last, most uint64
		s.commitTx = func(tx *bolt.Tx) error {
			now := s.counters.records.Load()
			last, most = now, max(most, now-last)
			return tx.Commit()
		}
		const locks = 20_000
		var wg sync.WaitGroup
		for w := range 500 {
			wg.Go(func() {
				for i := range locks / 500 {
					do(t, s, lock(fmt.Sprint(w, " ", i)), acquire("k"))
				}
			})
		}
		wg.Wait()
		for w := range 500 {
			for i := range locks / 500 {
				s.memory.MarkDirty(lock(fmt.Sprint(w, " ", i)))
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if most = max(most, s.counters.records.Load()-last); most > 2*flushBatch {
			t.Errorf("%d records were written together, want at most %d", most, 2*flushBatch)
		}
		end(t, s)
	})
}
