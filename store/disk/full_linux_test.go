package disk

import (
	"fmt"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// limitFiles makes files not grow beyond so many bytes, as on a full disk; 0 is as before.
func limitFiles(t *testing.T, size int64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur = limit.Max; size > 0 {
		limit.Cur = uint64(size)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
}

// hold acquires a slot of a large semaphore.
func hold(s *Store, i int) error {
	cmd := acquire(fmt.Sprint("holder ", i))
	cmd.Size = 1 << 20
	_, err := try(s, slots("s"), cmd)
	return err
}

// On a full disk nothing new is held, and that is said at once; what is held is released, renewed and
// counted on; and when there is room again it goes on by itself.
func TestFullDisk(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer limitFiles(t, 0)
	dir := t.TempDir()
	// The limit is for all files, and that in which go test notes what is read from the environment grows
	// too.
	s := must(t, dir, Config{Reserve: 4 << 20})
	const holders = 200
	for i := range holders {
		if err := hold(s, i); err != nil {
			t.Fatal(err)
		}
	}
	counter := gatehouse.Key{Kind: gatehouse.Counter, Name: "c"}
	count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
	do(t, s, counter, count)
	limitFiles(t, s.fileSize.Load())
	fill(t, s)
	err := hold(s, holders)
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable ||
		!strings.Contains(err.Error(), dir+": the disk is full") {
		t.Errorf("acquire on a full disk: %v, want unavailable, and which disk", err)
	}
	if got := do(t, s, counter, count).Value; got != 2 {
		t.Errorf("count on a full disk = %d, want 2", got)
	}
	goesOn(t, s, holders)
	limitFiles(t, 0)
	await.True(t, "there is room again", func() bool { return hold(s, 0) == nil })
	killed := must(t, copied(t, dir), small())
	wantHolders(t, killed, slots("s"), 1)
	end(t, killed)
	end(t, s)
}

// goesOn renews and releases on a full disk.
func goesOn(t *testing.T, s *Store, holders int) {
	t.Helper()
	renew := gatehouse.Command{Op: gatehouse.OpRenew, Holder: "holder 0", Expires: time.Hour}
	if got := do(t, s, slots("s"), renew).Outcome; got != gatehouse.Granted {
		t.Errorf("renew on a full disk: %s, want granted", got)
	}
	// Of a queue those are served that need no room.
	in, out := acquire("new"), release("holder 0")
	queue := []control.Turn{{Command: &in}, {Command: &out}}
	change := control.Change{Key: slots("s"), Turns: queue}
	if err := change.ApplyTo(s); err != nil || queue[0].Err == nil ||
		queue[1].Err != nil || queue[1].Decision.Outcome != gatehouse.Granted {
		t.Errorf("acquire and release together = %v, %+v, want only the release granted", err, queue)
	}
	for i := 1; i < holders; i++ {
		if got := do(t, s, slots("s"), release(fmt.Sprint("holder ", i))).Outcome; got != gatehouse.Granted {
			t.Fatalf("release on a full disk: %s, want granted", got)
		}
	}
}

// fill takes holds by many until the disk is full. Those who are told so have none.
func fill(t *testing.T, s *Store) {
	t.Helper()
	var wg sync.WaitGroup
	for w := range 32 {
		wg.Go(func() {
			for i := range 10_000 {
				name := lock(fmt.Sprint(w, " ", i))
				if _, err := try(s, name, acquire("k")); err != nil {
					stats, asked := try(s, name, gatehouse.Command{Op: gatehouse.OpStats})
					if asked != nil || stats.Outcome != gatehouse.Missing {
						t.Errorf("after %v there is %s, %v, want nothing", err, stats.Outcome, asked)
					}
					return
				}
			}
			t.Error("the disk is never full")
		})
	}
	wg.Wait()
}
