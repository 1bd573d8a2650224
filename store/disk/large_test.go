package disk

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// acquireAll makes the holds from one number to another in one semaphore, with one change.
func acquireAll(s *Store, key gatehouse.Key, from, to int) error {
	queue := make([]control.Turn, to-from)
	for i := range queue {
		cmd := acquire(fmt.Sprintf("holder-%08d", from+i))
		cmd.Size = 1 << 20
		queue[i].Command = &cmd
	}
	err := (&control.Change{Key: key, Turns: queue}).ApplyTo(s)
	for i := range queue {
		if got := queue[i].Decision.Outcome; got != gatehouse.Granted {
			err = errors.Join(err, fmt.Errorf("hold %d of %s: %s", i, key, got))
		}
	}
	return err
}

// A hundred thousand holds are there soon after a restart, whether in one name or in many, and one more in
// a name that has so many is written by itself.
func TestManyHolds(t *testing.T) {
	const n = 30_000
	for names, each := range map[int]int{1: n - 1, 1000: n / 1000} {
		dir := t.TempDir()
		s := must(t, dir, Config{})
		for i := range names {
			if err := acquireAll(s, slots(fmt.Sprint("name ", i)), 0, each); err != nil {
				t.Fatal(err)
			}
		}
		before := s.db.Stats().TxStats
		began := time.Now()
		if err := acquireAll(s, slots("name 0"), each, each+1); err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		after := s.db.Stats().TxStats
		if written := after.GetWrite() - before.GetWrite(); written > 20 {
			t.Errorf("one hold more took %d writes, want some pages", written)
		}
		end(t, s)
		size := s.fileSize.Load()
		began = time.Now()
		s = must(t, dir, Config{})
		t.Logf("%d holds in %d names: one more took %s; the file has %d MiB; opening took %s",
			n, names, took.Round(time.Microsecond), size>>20, time.Since(began).Round(time.Millisecond))
		wantHolders(t, s, slots("name 0"), each+1)
		began = time.Now()
		do(t, s, slots("name 0"), gatehouse.Command{Op: gatehouse.OpDelete})
		t.Logf("deleting one name took %s", time.Since(began).Round(time.Millisecond))
		end(t, s)
	}
}
