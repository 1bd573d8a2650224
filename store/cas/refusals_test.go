package cas_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// timedOut is what the statistics say of those who gave up, -1 without statistics.
func timedOut(t *testing.T, s *cas.Store, key gatehouse.Key) int64 {
	t.Helper()
	d, err := applyOne(s, key, gatehouse.Command{Op: gatehouse.OpStats})
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range d.Stats {
		if stat.Name == "timed_out" {
			return stat.Value.(int64)
		}
	}
	return -1
}

// applyOne applies one command.
func applyOne(s *cas.Store, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error) {
	turns := []control.Turn{{Command: &cmd}}
	err := (&control.Change{Key: key, Turns: turns}).ApplyTo(s)
	return turns[0].Decision, err
}

// A refusal is a command that is refused by a controller that nothing was done to.
type refusal struct {
	key gatehouse.Key
	cmd gatehouse.Command
}

func refusedAtFirst() []refusal {
	return []refusal{
		{named(gatehouse.Event, "e"), gatehouse.Command{Op: gatehouse.OpWait}},
		{named(gatehouse.Watchdog, "w"), gatehouse.Command{Op: gatehouse.OpWait}},
		{named(gatehouse.Barrier, "b"), gatehouse.Command{
			Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2},
		}},
		{named(gatehouse.Semaphore, "s"), gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "a", Cost: 1}},
		{
			named(gatehouse.GCRA, "g"),
			gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1, Rule: gatehouse.Rule{Interval: time.Hour, Burst: 4},
			},
		},
		{
			named(gatehouse.SlidingWindow, "g"),
			gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1,
				Rule: gatehouse.Rule{Interval: time.Hour, Mode: gatehouse.ModeStrict},
			},
		},
		{
			named(gatehouse.TokenBucket, "t"),
			gatehouse.Command{
				Op: gatehouse.OpAcquire, Cost: 1,
				Rule: gatehouse.Rule{Limits: gatehouse.NewLimitList(gatehouse.Limit{Interval: time.Hour})},
			},
		},
	}
}

// A name is stored by its first command, refused or not. Further refusals are counted, and stored within 10 s
// or with the next change; statistics at the same server know of them at once.
func TestRefusalsAreStoredLater(t *testing.T) {
	for _, refused := range refusedAtFirst() {
		synctest.Test(t, func(t *testing.T) {
			p := newPair(t, false)
			defer p.close()
			refuse := func(want int64) {
				t.Helper()
				d, err := applyOne(p.near, refused.key, refused.cmd)
				if err != nil || d.Outcome != gatehouse.Refused {
					t.Fatalf("%s: %s = %+v, %v, want refused", refused.key, refused.cmd.Op, d, err)
				}
				if swaps := p.near.Stats().Swaps; swaps != uint64(want) {
					t.Errorf("%s: %d changes were made, want %d", refused.key, swaps, want)
				}
			}
			const more = 20
			for range more {
				refuse(1)
			}
			here, there := timedOut(t, p.near, refused.key), timedOut(t, p.far, refused.key)
			if here != more || there != 1 {
				t.Errorf("%s: %d gave up by the server that refused them, %d by another, want %d and 1",
					refused.key, here, there, more)
			}
			pass(10 * time.Second)
			if there := timedOut(t, p.far, refused.key); there != more {
				t.Errorf("%s: after 10s %d gave up as another server says, want %d", refused.key, there, more)
			}
			pass(8 * time.Minute)
			if there := timedOut(t, p.far, refused.key); there != more {
				t.Errorf("%s: after 8 minutes %d gave up, want %d still", refused.key, there, more)
			}
			pass(24 * time.Hour)
			if there := timedOut(t, p.far, refused.key); there != -1 {
				t.Errorf("%s: after a day %d gave up, want it forgotten", refused.key, there)
			}
		})
	}
}

// A refused command that asks for another size is stored, because it changes that for all servers; and so is
// what was refused before it.
func TestRefusalThatResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, true)
		defer p.close()
		key := named(gatehouse.Semaphore, "s")
		acquire := gatehouse.Command{
			Op: gatehouse.OpAcquire, Holder: "a", Rule: gatehouse.Rule{Size: 3}, Cost: 3, Expires: time.Hour,
		}
		if _, err := applyOne(p.near, key, acquire); err != nil {
			t.Fatal(err)
		}
		acquire.Holder, acquire.Cost = "b", 1
		for _, size := range []int64{3, 3, 2, 2} {
			acquire.Size = size
			if d, err := applyOne(p.near, key, acquire); err != nil || d.Outcome != gatehouse.Refused {
				t.Fatalf("acquire of a semaphore that is held = %+v, %v, want refused", d, err)
			}
		}
		d, err := applyOne(p.far, key, gatehouse.Command{Op: gatehouse.OpStats})
		if err != nil || d.Limit != 2 {
			t.Errorf("the size at another server = %+v, %v, want 2", d, err)
		}
		if there := timedOut(t, p.far, key); there != 3 {
			t.Errorf("%d gave up as another server says, want the 3 until the change", there)
		}
		p.near.Close() // which tells the last
		if there := timedOut(t, p.far, key); there != 4 {
			t.Errorf("%d gave up as another server says when the one has ended, want all 4", there)
		}
	})
}
