package disk

import (
	"context"
	"fmt"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// grant does a command about a grant, as a gate does.
func grant(t *testing.T, s *Store, cmd gatehouse.GrantCommand) gatehouse.GrantDecision {
	t.Helper()
	d, err := tryGrant(s, cmd)
	if err != nil {
		t.Fatalf("%s %s: %v", &cmd, cmd.Op, err)
	}
	return d
}

func tryGrant(s *Store, cmd gatehouse.GrantCommand) (gatehouse.GrantDecision, error) {
	return gate.New(s, gate.Config{}).DoGrant(context.Background(), cmd)
}

// of is the acquire of a grant with so many names of each sort.
func of(id string, n int) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: time.Hour}
	for i := range n {
		cmd.Want = append(cmd.Want,
			gatehouse.Member{Key: slots(fmt.Sprint("s", i)), Rule: gatehouse.Rule{Size: 1000}, Cost: 1},
			gatehouse.Member{Key: bucket(i), Rule: gatehouse.Rule{Size: 1000, Interval: time.Hour}, Cost: 2})
	}
	return cmd
}

func bucket(i int) gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.FixedWindow, Name: fmt.Sprint("b", i)}
}

// wantWhole sees that a store has all of its grants, or nothing: as many live records as holders of each
// semaphore, and twice as many tokens taken of each limiter.
func wantWhole(t *testing.T, s *Store, names int) (live int) {
	t.Helper()
	_ = s.Range(context.Background(), gatehouse.Grant, "", func(_ gatehouse.Key, state control.State) bool {
		if record := state.(*control.GrantRecord).Record(); record != nil && !record.Ended {
			live++
		}
		return true
	})
	stats := gatehouse.Command{Op: gatehouse.OpStats}
	for i := range names {
		held, taken := int64(0), int64(0)
		for _, stat := range do(t, s, slots(fmt.Sprint("s", i)), stats).Stats {
			if stat.Name == "held" {
				held = stat.Value.(int64)
			}
		}
		peek := gatehouse.Command{Op: gatehouse.OpPeek, Rule: gatehouse.Rule{Size: gatehouse.InForce}}
		if d := do(t, s, bucket(i), peek); d.Outcome != gatehouse.Missing {
			taken = d.Limit - d.Remaining
		}
		if held != int64(live) || taken != 2*held {
			t.Errorf("%d grants live, %d slots are held of s%d and %d tokens taken", live, held, i, taken)
		}
	}
	return live
}

// Whenever the process is killed, all of a grant is in the file or nothing, limiters too.
func TestKilledBetweenGrants(t *testing.T) {
	dir := t.TempDir()
	s := must(t, dir, Config{Reserve: 16 << 12, Flush: time.Millisecond})
	g := gate.New(s, gate.Config{})
	stop := make(chan struct{})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				cmd := of(fmt.Sprint(w, ".", i), 3)
				d, err := g.DoGrant(context.Background(), cmd)
				if err != nil || d.Outcome != gatehouse.Granted {
					t.Error(d, err)
					return
				}
				if i%3 > 0 { // all is given back
					cmd = gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: cmd.ID}
					for i := range 3 {
						cmd.Costs = append(cmd.Costs, gatehouse.MemberCost{Key: bucket(i)})
					}
					if _, err := g.DoGrant(context.Background(), cmd); err != nil {
						t.Error(err)
						return
					}
				}
			}
		})
	}
	most := 0
	for range 10 {
		// Between two transactions: a copy is not made at one instant, as a process is killed.
		var file string
		commits := s.Statistics().Commits
		await.True(t, "something is written", func() bool { return s.Statistics().Commits > commits+3 })
		pauseWriter(s, func() { file = copied(t, dir) })
		killed := must(t, file, small())
		most = max(most, wantWhole(t, killed, 3))
		end(t, killed)
	}
	close(stop)
	all.Wait()
	if most == 0 {
		t.Error("no grant was live: the test did not test what it should")
	}
	end(t, s)
}

// pauseWriter does something while nothing is written.
func pauseWriter(s *Store, do func()) {
	tx, err := s.db.Begin(true)
	if err != nil {
		panic(err)
	}
	do()
	_ = tx.Rollback()
}

// On a full disk no grant with a record begins, and of one that could not be written nothing is held. What is
// held is renewed, settled and released, and grants of limiters go on.
func TestGrantsOnAFullDisk(t *testing.T) {
	signal.Ignore(syscall.SIGXFSZ)
	defer limitFiles(t, 0)
	dir := t.TempDir()
	// The limit is for all files, and that in which go test notes what is read from the environment grows
	// too.
	s := must(t, dir, Config{Reserve: 4 << 20})
	for i := range 20 {
		if d := grant(t, s, of(fmt.Sprint(i), 2)); d.Outcome != gatehouse.Granted {
			t.Fatal(d)
		}
	}
	limitFiles(t, s.fileSize.Load())
	var all sync.WaitGroup
	for w := range 16 {
		all.Go(func() {
			for i := range 10_000 {
				cmd := of(fmt.Sprint(w, ".", i), 2)
				for i := range cmd.Want {
					cmd.Want[i].Size = gatehouse.MaxSize
				}
				if _, err := tryGrant(s, cmd); err != nil {
					if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
						t.Error(err)
					}
					return
				}
			}
			t.Error("the disk is never full")
		})
	}
	all.Wait()
	cmd := of("limiters only", 2)
	cmd.Want, cmd.ID, cmd.Expires = cmd.Want[1:2], "", 0
	cmd.Want[0].Key = bucket(9)
	if d := grant(t, s, cmd); d.Outcome != gatehouse.Granted {
		t.Errorf("limiters only: %s, want granted", d.Outcome)
	}
	for i := range 20 {
		id := fmt.Sprint(i)
		renew := gatehouse.GrantCommand{Op: gatehouse.OpRenew, ID: id, Expires: 2 * time.Hour}
		if d := grant(t, s, renew); d.Outcome != gatehouse.Granted {
			t.Errorf("renew of %s: %s, want granted", id, d.Outcome)
		}
		release := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: id}
		if d := grant(t, s, release); d.Outcome != gatehouse.Granted {
			t.Errorf("release of %s: %s, want granted", id, d.Outcome)
		}
	}
	limitFiles(t, 0)
	await.True(t, "there is room again", func() bool {
		_, err := tryGrant(s, of("last", 2))
		return err == nil
	})
	killed := must(t, copied(t, dir), small())
	d := grant(t, killed, gatehouse.GrantCommand{Op: gatehouse.OpPeek, ID: "0"})
	if !d.Ended {
		t.Error("a grant that was released on a full disk lives")
	}
	end(t, killed)
	end(t, s)
}

// What is written together while the disk is full is one transaction, however it is divided.
func TestPartsStayTogether(t *testing.T) {
	changes, want := map[gatehouse.Key]*nameChange{}, map[gatehouse.Key]int{}
	for g := range 100 {
		var keys []gatehouse.Key
		for m := range 4 {
			key := slots(fmt.Sprint(g, " ", m))
			keys, want[key] = append(keys, key), g
			changes[key] = &nameChange{}
		}
		for _, key := range keys {
			changes[key].with = [][]gatehouse.Key{keys}
		}
	}
	for key := range want {
		part := map[gatehouse.Key]*nameChange{}
		moveTogether(part, changes, key)
		if len(part) != 0 && len(part) != 4 {
			t.Fatalf("%d names are written with %s, want 4", len(part), key)
		}
		for other := range part {
			if want[other] != want[key] {
				t.Errorf("%s is written with %s", other, key)
			}
		}
	}
	if len(changes) > 0 {
		t.Errorf("%d are left", len(changes))
	}
}
