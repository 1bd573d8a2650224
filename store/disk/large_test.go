package disk

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// acquireAll makes the holds from one number to another in each of some semaphores, with one change for each.
// None of the changes waits for another, so that few syncs of the disk write them all.
func acquireAll(s *Store, names []gatehouse.Key, from, to int) error {
	changes := make([]control.Change, len(names))
	written := make(chan error, len(names))
	for i, key := range names {
		changes[i] = control.Change{
			Key: key, Turns: make([]control.Turn, to-from), Done: func(err error) { written <- err },
		}
		for j := range changes[i].Turns {
			cmd := acquire(fmt.Sprintf("holder-%08d", from+j))
			cmd.Size = 1 << 20
			changes[i].Turns[j].Command = &cmd
		}
		s.Apply(&changes[i])
	}
	var errs []error
	for range names {
		errs = append(errs, <-written)
	}
	for i := range changes {
		for j := range changes[i].Turns {
			if got := changes[i].Turns[j].Decision.Outcome; got != gatehouse.Granted {
				errs = append(errs, fmt.Errorf("hold %d of %s: %s", from+j, names[i], got))
			}
		}
	}
	return errors.Join(errs...)
}

// Many holds are there soon after a restart, whether in one name or in many. Another hold in a name with many
// is written alone.
func TestManyHolds(t *testing.T) {
	const n = 30_000
	for names, each := range map[int]int{1: n - 1, 1000: n / 1000} {
		dir := t.TempDir()
		s := must(t, dir, Config{})
		keys := make([]gatehouse.Key, names)
		for i := range keys {
			keys[i] = slots(fmt.Sprint("name ", i))
		}
		if err := acquireAll(s, keys, 0, each); err != nil {
			t.Fatal(err)
		}
		before := s.db.Stats().TxStats
		began := time.Now()
		if err := acquireAll(s, keys[:1], each, each+1); err != nil {
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
