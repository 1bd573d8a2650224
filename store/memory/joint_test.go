package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// slotsOf wants a slot of each semaphore.
func slotsOf(id string, names ...string) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Expires: time.Minute}
	for _, name := range names {
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key:  gatehouse.Key{Kind: gatehouse.Semaphore, Name: name},
			Rule: gatehouse.Rule{Size: 1000}, Cost: 1,
		})
	}
	return cmd
}

// fillUp grants until there is no room, and returns how many were.
func fillUp(t *testing.T, g *gate.Gate, cmd func(i int) gatehouse.GrantCommand) (granted int) {
	t.Helper()
	for i := range 100_000 {
		d, err := g.DoGrant(context.Background(), cmd(i))
		switch {
		case gatehouse.CodeOf(err) == gatehouse.CodeExhausted:
			return i
		case err != nil || d.Outcome != gatehouse.Granted:
			t.Fatalf("%d: %s, %v", i, d.Outcome, err)
		}
	}
	t.Fatal("there is no bound")
	return 0
}

// The bounds hold for grants, which take all of their room or none. A grant that has ended makes room.
func TestGrantsInAFullStore(t *testing.T) {
	for name, c := range map[string]struct {
		config memory.Config
		cmd    func(i int) gatehouse.GrantCommand
		most   int // granted
	}{
		"names": {
			memory.Config{Names: 100},
			func(i int) gatehouse.GrantCommand {
				return slotsOf(fmt.Sprint(i), fmt.Sprint(i), fmt.Sprint("b", i))
			},
			33,
		},
		"holders": {
			memory.Config{Holders: 50},
			func(i int) gatehouse.GrantCommand { return slotsOf(fmt.Sprint(i), "a", "b") }, 25,
		},
		"memory": {
			memory.Config{Memory: weight.New(200_000)},
			func(i int) gatehouse.GrantCommand { return slotsOf(fmt.Sprint(i), fmt.Sprint(i), "b") }, 1000,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := memory.New(c.config)
				g := gate.New(s, gate.Config{})
				n := fillUp(t, g, c.cmd)
				if n == 0 || n > c.most {
					t.Errorf("%d were granted, want at most %d", n, c.most)
				}
				if got := s.Holders(); got != 2*n {
					t.Errorf("%d hold, want 2 for each of %d", got, n)
				}
				// What is there is followed however little room there is.
				for i := range n {
					cmd := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: fmt.Sprint(i)}
					if d, err := g.DoGrant(t.Context(), cmd); err != nil || d.Outcome != gatehouse.Granted {
						t.Fatalf("release of %d: %s, %v", i, d.Outcome, err)
					}
				}
				if got := s.Holders(); got != 0 {
					t.Errorf("%d hold, want none", got)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				if got := fillUp(t, g, c.cmd); got != n {
					t.Errorf("%d were granted when all had ended, want %d again", got, n)
				}
				time.Sleep(3 * time.Hour)
				synctest.Wait()
				if got := s.Len(); got != 0 {
					t.Errorf("%d names are left", got)
				}
			})
		})
	}
}

// Joint changes whose names cross do not wait for each other for ever, and count what single ones count.
func TestJointChangesCross(t *testing.T) {
	s := memory.New(memory.Config{})
	g := gate.New(s, gate.Config{})
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := range 500 {
				names := []string{fmt.Sprint(i % 7), fmt.Sprint(i%5 + 7), fmt.Sprint((i+w)%3 + 12)}
				if w%2 == 0 {
					names[0], names[2] = names[2], names[0]
				}
				id := fmt.Sprint(w, ".", i)
				d, err := g.DoGrant(context.Background(), slotsOf(id, names...))
				if err != nil || d.Outcome != gatehouse.Granted {
					t.Errorf("%s: %s, %v", id, d.Outcome, err)
					return
				}
				release := gatehouse.GrantCommand{Op: gatehouse.OpRelease, ID: id}
				_, err = g.DoGrant(context.Background(), release)
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if n := s.Holders(); n != 0 {
		t.Errorf("%d hold, want none", n)
	}
}
