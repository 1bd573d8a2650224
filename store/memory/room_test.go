package memory

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/weight"
)

// try applies one command, and returns its error, if it has one.
func try(s *Store, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error) {
	return tryTurn(s, key, control.Turn{Command: &cmd})
}

// tryTurn is try with what a gate adds.
func tryTurn(s *Store, key gatehouse.Key, turn control.Turn) (gatehouse.Decision, error) {
	turns := []control.Turn{turn}
	if err := (&control.Change{Key: key, Turns: turns}).ApplyTo(s); err != nil {
		return gatehouse.Decision{}, err
	}
	return turns[0].Decision, turns[0].Err
}

// hold is an acquire of a semaphore or a lock without an end.
func hold(holder string) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: 1_000_000}, Cost: 1, Holder: holder,
	}
}

func lockKey(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: name} }

func semaphore(name string) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}
}

// fine is an acquire of a fine window that counts for a day.
func fine() gatehouse.Command {
	return gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: 9, Interval: 24 * time.Hour, Mode: gatehouse.ModeFine}, Cost: 1,
	}
}

// exhausted reports whether an error says that a limit of the server was met.
func exhausted(err error) bool { return err != nil && gatehouse.CodeOf(err) == gatehouse.CodeExhausted }

// sum is what all that a store keeps weighs, and how many holders there are. It waits for a search that still
// makes room.
func (s *Store) sum() (bytes, holders int) {
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	for i := range s.shards {
		sh := &s.shards[i]
		sh.mu.Lock()
		for kind := range sh.tables {
			sh.tables[kind].visitAll(func(e *nameEntry) {
				l := sizeOf(e.state)
				bytes, holders = bytes+l.bytes+len(e.name)+nameWeight, holders+l.holders
			})
		}
		sh.mu.Unlock()
	}
	return bytes, holders
}

// TestMemoryAddsUp: whatever is done, the total is what is kept, and nothing once all is forgotten.
func TestMemoryAddsUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seeds := uint64(4)
		if testing.Short() {
			seeds = 1
		}
		for seed := range seeds {
			total := weight.New(60_000)
			s := New(Config{Names: 200, Holders: 60, Memory: total})
			random := rand.New(rand.NewPCG(seed, 7))
			refused := 0
			for range 20_000 {
				key := anyKey(random, 40)
				turn := anyTurn(random, key.Kind)
				if turn.Check(key) != nil {
					continue
				}
				if _, err := tryTurn(s, key, turn); exhausted(err) {
					refused++
				}
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
			synctest.Wait()
			bytes, holders := s.sum()
			if int64(bytes) != total.Used() || holders != s.Holders() || refused == 0 {
				t.Errorf("there are %d bytes and %d holders, counted %d and %d; %d refused, want some",
					bytes, holders, total.Used(), s.Holders(), refused)
			}
			if used := total.Used(); used > total.Limit() {
				t.Errorf("there are %d bytes, want at most %d", used, total.Limit())
			}
			for i := range 40 {
				for kind := gatehouse.Kind(1); int(kind) < gatehouse.Kinds; kind++ {
					_, _ = try(s, gatehouse.Key{Kind: kind, Name: fmt.Sprint(i)},
						gatehouse.Command{Op: gatehouse.OpDelete})
				}
			}
			time.Sleep(time.Hour)
			if used := total.Used(); used != 0 || s.Len() != 0 || s.Holders() != 0 {
				t.Errorf("when all is forgotten there are %d bytes, %d names, %d holders, want none",
					used, s.Len(), s.Holders())
			}
		}
	})
}

func anyKey(random *rand.Rand, names int) gatehouse.Key {
	kind := gatehouse.Kind(1 + random.IntN(gatehouse.Kinds-1))
	return gatehouse.Key{Kind: kind, Name: fmt.Sprint(random.IntN(names))}
}

func anyTurn(random *rand.Rand, kind gatehouse.Kind) control.Turn {
	cmd := gatehouse.Command{
		Op:   gatehouse.Op(1 + random.IntN(int(gatehouse.OpUndo))),
		Cost: 1,
		Rule: gatehouse.Rule{
			Size: 1 + random.Int64N(20), Interval: time.Duration(1+random.IntN(30)) * time.Second,
		},
		Holder: strings.Repeat("k", 1+random.IntN(30)), Expires: time.Duration(random.IntN(90)) * time.Second,
		Message: strings.Repeat("m", random.IntN(100)),
		Keep:    time.Duration(1+random.IntN(100)) * time.Second, Amount: 1,
	}
	if kind == gatehouse.SlidingWindow {
		cmd.Mode = gatehouse.ModeFine
	}
	if kind.Limiter() && random.IntN(4) == 0 {
		var limits []gatehouse.Limit
		for i := range 1 + random.IntN(8) {
			limits = append(limits, gatehouse.Limit{Size: 9, Interval: time.Duration(i+1) * time.Minute})
		}
		cmd.Limits = gatehouse.NewLimitList(limits...)
	}
	return control.Turn{Command: &cmd, Ticket: control.Ticket(1 + random.IntN(99))}
}

// TestLiveIsNotForgotten: when the memory is full of limiters that count, a new one is refused and none of
// them is forgotten; locks have their tenth. What makes nothing grow goes on.
func TestLiveIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := weight.New(200_000)
		s := New(Config{Memory: total})
		kept := 0
		for {
			if _, err := try(s, bucketOf(kept), fine()); exhausted(err) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			kept++
		}
		for i := range 1000 { // more are asked for again and again
			if _, err := try(s, bucketOf(kept+i), fine()); !exhausted(err) {
				t.Fatalf("in a full store a new limiter = %v, want exhausted", err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if used := total.Used(); used > 180_000 || used < 170_000 {
			t.Errorf("limiters take %d bytes, want nine tenths of 200000", used)
		}
		for i := range 20 {
			if _, err := try(s, lockKey(fmt.Sprint(i)), hold("k")); err != nil {
				t.Fatalf("a lock beside limiters that fill the memory: %v", err)
			}
		}
		live := 0
		for i := range kept {
			d, err := try(s, bucketOf(i), fine())
			if err == nil && d.Outcome == gatehouse.Granted && d.Remaining == 7 {
				live++
			}
		}
		if live != kept || kept < 300 {
			t.Errorf("%d of %d limiters still count, want all", live, kept)
		}
	})
}

func bucketOf(i int) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.SlidingWindow, Name: fmt.Sprint(i)}
}

// TestRestIsForgottenFirst: limiters at rest make room for others, for as many as want.
func TestRestIsForgottenFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		total := weight.New(200_000)
		s := New(Config{Memory: total})
		brief := fine()
		brief.Interval = time.Second
		if _, err := try(s, semaphore("held"), hold("k")); err != nil {
			t.Fatal(err)
		}
		for i := range 5000 {
			if _, err := try(s, bucketOf(i), brief); err != nil {
				t.Fatalf("limiter %d, after others that are at rest: %v", i, err)
			}
			time.Sleep(10 * time.Millisecond)
		}
		if d, err := try(s, semaphore("held"), gatehouse.Command{Op: gatehouse.OpStats}); err != nil ||
			d.Outcome != gatehouse.Granted {
			t.Errorf("the semaphore that is held = %v, %v", d.Outcome, err)
		}
	})
}

// TestGrowingIsRefused: a name that is there gets no more than there is room for, and can be made smaller.
func TestGrowingIsRefused(t *testing.T) {
	total := weight.New(300_000)
	s := New(Config{Memory: total})
	n := 0
	for ; ; n++ {
		_, err := try(s, semaphore("s"), hold(fmt.Sprintf("%0500d", n)))
		if exhausted(err) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if used := total.Used(); used > total.Limit() || n < 300 {
		t.Errorf("%d holders take %d bytes, want at most %d", n, used, total.Limit())
	}
	if d, err := try(s, semaphore("s"), hold(fmt.Sprintf("%0500d", 0))); err != nil ||
		d.Outcome != gatehouse.Granted {
		t.Errorf("who holds it already is told %v, %v, want granted", d.Outcome, err)
	}
	release := hold(fmt.Sprintf("%0500d", 0))
	release.Op = gatehouse.OpRelease
	for range 3 {
		if d, err := try(s, semaphore("s"), release); err != nil || d.Outcome != gatehouse.Granted {
			t.Fatalf("a release in a full store = %v, %v, want granted", d.Outcome, err)
		}
		if _, err := try(s, semaphore("s"), hold(release.Holder)); err != nil {
			t.Fatalf("after a release: %v", err)
		}
	}
}

// TestHandOver: in a full store a slot that is released goes to who waits for it, by one change.
func TestHandOver(t *testing.T) {
	total := weight.New(2000)
	s := New(Config{Memory: total})
	one := hold("a")
	one.Size = 1
	if _, err := try(s, semaphore("s"), one); err != nil {
		t.Fatal(err)
	}
	total.Add(int(total.LeftKept()))
	next, release := one, one
	next.Holder, next.MaxWait, release.Op = "b", gatehouse.Forever, gatehouse.OpRelease
	turns := []control.Turn{{Command: &next}, {Command: &release}}
	if err := (&control.Change{Key: semaphore("s"), Turns: turns}).ApplyTo(s); err != nil {
		t.Fatal(err)
	}
	if turns[0].Err != nil || turns[0].Decision.Outcome != gatehouse.Granted {
		t.Errorf("who waited = %v, %v, want granted", turns[0].Decision.Outcome, turns[0].Err)
	}
}

// TestTooManyHolders: there are as many holders as may be, under all names together.
func TestTooManyHolders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Holders: 100})
		for i := range 100 {
			key := semaphore("s")
			if i%2 == 0 {
				key = lockKey(fmt.Sprint(i))
			}
			cmd := hold(fmt.Sprint(i))
			cmd.Expires = time.Minute
			if _, err := try(s, key, cmd); err != nil {
				t.Fatalf("holder %d: %v", i, err)
			}
		}
		for _, key := range []gatehouse.Key{semaphore("s"), semaphore("other"), lockKey("new")} {
			if _, err := try(s, key, hold("more")); !exhausted(err) {
				t.Errorf("%s: a holder more = %v, want exhausted", key, err)
			}
		}
		time.Sleep(2 * time.Minute) // what has ended makes room, without anybody asking for it
		if _, err := try(s, lockKey("new"), hold("more")); err != nil {
			t.Errorf("when all holds have ended: %v", err)
		}
	})
}

// TestMemoryRaces: with many at once the total adds up as well, and is exceeded by no more than they keep
// together.
func TestMemoryRaces(t *testing.T) {
	total := weight.New(300_000)
	s := New(Config{Memory: total, Holders: 200})
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(g), 3))
			for range 5000 {
				key := anyKey(random, 500)
				if turn := anyTurn(random, key.Kind); turn.Check(key) == nil {
					_, _ = tryTurn(s, key, turn)
				}
			}
		})
	}
	all.Wait()
	bytes, holders := s.sum()
	if int64(bytes) != total.Used() || holders != s.Holders() {
		t.Errorf("there are %d bytes and %d holders, counted %d and %d",
			bytes, holders, total.Used(), s.Holders())
	}
	if used := total.Used(); used > total.Limit()+8*5000 || holders > 208 {
		t.Errorf("there are %d bytes and %d holders, want at most %d and 200, and some by races",
			used, holders, total.Limit())
	}
}

// Holds whose time is up take no room, though one that lasts keeps their semaphore from being forgotten.
func TestEndedHoldsMakeRoom(t *testing.T) {
	for _, next := range []gatehouse.Key{lockKey("new"), lockKey("known"), semaphore("s")} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Config{Holders: 100})
			if _, err := try(s, lockKey("known"), hold("a")); err != nil {
				t.Fatal(err)
			}
			release := gatehouse.Command{Op: gatehouse.OpRelease, Holder: "a"}
			if _, err := try(s, lockKey("known"), release); err != nil {
				t.Fatal(err)
			}
			for i := range 100 {
				cmd := hold(fmt.Sprint(i))
				if i > 0 {
					cmd.Expires = time.Second
				}
				if _, err := try(s, semaphore("s"), cmd); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := try(s, next, hold("b")); !exhausted(err) {
				t.Errorf("%v: a holder too much = %v, want that it is refused", next, err)
			}
			time.Sleep(2 * time.Second)
			d, err := try(s, next, hold("b"))
			if err != nil || d.Outcome != gatehouse.Granted || s.Holders() != 2 {
				t.Errorf("%v: once they have ended = %v, %v with %d holders, want it granted, with 2", next,
					d.Outcome, err, s.Holders())
			}
		})
	}
}

// The same at a name that is known and held: it is not refused for holds whose time is up.
func TestEndedHoldsMakeRoomAtAHeldName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Holders: 100})
		if _, err := try(s, semaphore("known"), hold("a")); err != nil {
			t.Fatal(err)
		}
		for i := range 99 {
			cmd := hold(fmt.Sprint(i))
			cmd.Expires = time.Second
			if _, err := try(s, semaphore("s"), cmd); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		d, err := try(s, semaphore("known"), hold("b"))
		if err != nil || d.Outcome != gatehouse.Granted || s.Holders() != 2 {
			t.Errorf("once they have ended = %v, %v with %d holders, want it granted, with 2",
				d.Outcome, err, s.Holders())
		}
	})
}

// A command that needs no room does not wait for a search for some, however little there is. Searches that
// follow each other through the shards once had all commands wait for tens of milliseconds.
func TestCommandsDoNotWaitForASearch(t *testing.T) {
	total := weight.New(1 << 20)
	s := New(Config{Memory: total})
	key := gatehouse.Key{Kind: gatehouse.Counter, Name: "c"}
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	do(t, s, key, count)
	total.Add(1 << 20)
	s.reclaiming.Lock()
	defer s.reclaiming.Unlock()
	if d := do(t, s, key, count); d.Outcome != gatehouse.Granted || d.Value != 2 {
		t.Errorf("a count during a search = %s, %d, want granted, 2", d.Outcome, d.Value)
	}
}
