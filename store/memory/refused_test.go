package memory

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

func event(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Event, Name: name} }

func wait() gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}}
}

// timedOut is how many commands a name has refused, -1 when it is not known.
func timedOut(t *testing.T, s *Store, key gatehouse.Key) int64 {
	t.Helper()
	d := do(t, s, key, gatehouse.Command{Op: gatehouse.OpStats})
	for _, stat := range d.Stats {
		if stat.Name == "timed_out" {
			return stat.Value.(int64)
		}
	}
	return -1
}

// A name that was only refused is there with its statistics for ten minutes, and what was refused counts when
// it is used.
func TestRefusedNamesLinger(t *testing.T) {
	stop := take() // a limiter or semaphore of size 0 refuses all
	stop.Size, stop.Cost = 0, 1
	for kind, cmd := range map[gatehouse.Kind]gatehouse.Command{
		gatehouse.Event: wait(), gatehouse.Barrier: wait(), gatehouse.Semaphore: stop,
		gatehouse.TokenBucket: stop, gatehouse.GCRA: stop, gatehouse.SlidingLog: stop,
	} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{})
				key := gatehouse.Key{Kind: kind, Name: "a"}
				do(t, s, key, cmd)
				time.Sleep(RefusedLinger - time.Second)
				if got := timedOut(t, s, key); got != 1 {
					t.Errorf("after nearly 10 minutes timed_out = %d, want 1", got)
				}
				do(t, s, key, cmd)
				if got := timedOut(t, s, key); got != 2 {
					t.Errorf("after another refusal timed_out = %d, want 2", got)
				}
				time.Sleep(2*RefusedLinger + time.Minute) // a limiter is asked once more after the first
				if got := s.Len(); got != 0 {
					t.Errorf("20 minutes after the last refusal there are %d names, want none", got)
				}
			})
		})
	}
}

// A name that lets somebody through after it has refused is one like others.
func TestRefusedNamesComeIntoUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{Names: 1})
		do(t, s, event("a"), wait())
		do(t, s, event("a"), gatehouse.Command{Op: gatehouse.OpSend})
		do(t, s, event("b"), wait())
		cmd := take()
		err := (&control.Change{Key: bucket("c"), Turns: []control.Turn{{Command: &cmd}}}).ApplyTo(s)
		if gatehouse.CodeOf(err) != gatehouse.CodeExhausted {
			t.Errorf("beside an event that was sent another name = %v, want exhausted", err)
		}
		time.Sleep(23 * time.Hour)
		if got := timedOut(t, s, event("a")); got != 1 {
			t.Errorf("23 h after it was sent the event's timed_out = %d, want 1", got)
		}
		time.Sleep(2 * time.Hour)
		if got := s.Len(); got != 0 {
			t.Errorf("after a day and its statistics' time there are %d names, want none", got)
		}
	})
}

// Those who gave up waiting were refused, too.
func TestRefusedWaitersLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Config{})
		stop := s.Watch(event("a"), nil)
		cmd := wait()
		cmd.MaxWait = time.Second
		do(t, s, event("a"), cmd)
		time.Sleep(time.Second)
		cmd.MaxWait = 0
		do(t, s, event("a"), cmd)
		stop()
		time.Sleep(RefusedLinger - time.Minute)
		if got := timedOut(t, s, event("a")); got != 1 {
			t.Errorf("9 minutes after a waiter gave up timed_out = %d, want 1", got)
		}
		time.Sleep(RefusedLinger + 2*time.Minute)
		if got := s.Len(); got != 0 {
			t.Errorf("there are %d names, want none", got)
		}
	})
}

// Room is made by names that were only refused, then by such as are at rest, and never by what holds or
// counts. A flood of refused names pushes out none but its own, and never has more than all names together.
func TestRefusedNamesGiveWayFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const names = 3000
		s := New(Config{Names: names})
		lock := func(i int) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: fmt.Sprint(i)} }
		for i := range names / 3 {
			do(t, s, lock(i), take())
			do(t, s, bucket(fmt.Sprint("at rest ", i)), take())
		}
		time.Sleep(2 * time.Second) // the buckets are full again, and linger
		for i := range 10 * names {
			do(t, s, event(fmt.Sprint("flood ", i)), wait())
		}
		if got := s.Len(); got != names {
			t.Errorf("after a flood of refused names there are %d, want %d", got, names)
		}
		stats := gatehouse.Command{Op: gatehouse.OpStats}
		for i := range names / 3 { // each makes room by a refused name
			do(t, s, event(fmt.Sprint("sent ", i)), gatehouse.Command{Op: gatehouse.OpSend})
		}
		for i := range names / 3 {
			rest, sent := bucket(fmt.Sprint("at rest ", i)), event(fmt.Sprint("sent ", i))
			for _, key := range []gatehouse.Key{lock(i), rest, sent} {
				if got := do(t, s, key, stats).Outcome; got != gatehouse.Granted {
					t.Fatalf("stats of %s = %s, want it there while refused names make room", key, got)
				}
			}
		}
		if got := s.refusedCount.Load(); got != 0 {
			t.Errorf("%d refused names are left, want none", got)
		}
		do(t, s, event("refused by a full store"), wait())
		if got := timedOut(t, s, event("refused by a full store")); got != -1 {
			t.Errorf("in a store full of others a refused name has timed_out = %d, want it unknown", got)
		}
		for i := range names / 3 { // now those at rest give way
			do(t, s, event(fmt.Sprint("more ", i)), gatehouse.Command{Op: gatehouse.OpSend})
		}
		for i := range names / 3 {
			if got := do(t, s, lock(i), stats).Outcome; got != gatehouse.Granted {
				t.Fatalf("stats of lock %d, which is held = %s, want it there", i, got)
			}
		}
	})
}

// A new name of a joint change may take the entry of another one that the change is about.
func TestRefusedNameGivesWayWithinAJointChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refused := func(key gatehouse.Key) control.State {
			s := New(Config{})
			do(t, s, key, wait())
			return s.stateOf(s.shardOf(key), key)
		}
		s := New(Config{Names: 1})
		old, added := event("old"), event("new")
		for i := 0; s.shardOf(added) != s.shardOf(old); i++ {
			added = event(fmt.Sprint(i))
		}
		do(t, s, old, wait())
		do(t, s, old, gatehouse.Command{Op: gatehouse.OpDelete})
		w := &jointWork{places: []jointPlace{{hash: s.hashOf(added)}, {hash: s.hashOf(old)}}}
		for i, key := range []gatehouse.Key{added, old} {
			w.places[i].shard = s.shardOf(key)
			w.places[i].entry = s.shardOf(key).find(key, w.places[i].hash)
			w.parts = append(w.parts, control.JointPart{Part: &control.Part{Key: key}, State: refused(key)})
		}
		s.keepParts(w, s.now())
		if got := s.stateOf(s.shardOf(added), added); got != w.parts[0].State {
			t.Errorf("the new name has the state %p, want %p", got, w.parts[0].State)
		}
	})
}

// What is granted and given back in one change is remembered as after two changes.
func TestGivenBackAtOnceIsRemembered(t *testing.T) {
	for _, kind := range []gatehouse.Kind{gatehouse.TokenBucket, gatehouse.GCRA, gatehouse.Semaphore} {
		t.Run(kind.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				apart, together := New(Config{}), New(Config{})
				key := gatehouse.Key{Kind: kind, Name: "a"}
				first, second := take(), take()
				second.Op = gatehouse.OpRefund
				if kind == gatehouse.Semaphore {
					second.Op = gatehouse.OpRelease
				}
				do(t, apart, key, first)
				do(t, apart, key, second)
				turns := []control.Turn{{Command: &first}, {Command: &second}}
				if err := (&control.Change{Key: key, Turns: turns}).ApplyTo(together); err != nil {
					t.Fatal(err)
				}
				const linger = LimitLinger
				for _, after := range []time.Duration{0, linger - time.Second, linger + time.Minute} {
					time.Sleep(after)
					if got, want := together.Len(), apart.Len(); got != want {
						t.Errorf("%s later %d names are kept, want %d as after two changes", after, got, want)
					}
				}
				if together.Len() != 0 {
					t.Error("the name is never forgotten")
				}
			})
		})
	}
}
