package redis_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// A grant over names that this server knows, against a command for one such name: by one caller, and by many
// with names of their own.
func BenchmarkGrant(b *testing.B) {
	for _, names := range []int{1, 4} {
		for _, many := range []bool{false, true} {
			b.Run(strconv.Itoa(names)+" names, many callers "+strconv.FormatBool(many), func(b *testing.B) {
				server := redistest.Start(b)
				store := openStore(b, server.Address)
				call := func(i int) error {
					if many {
						i %= callers
					} else {
						i = 0
					}
					return takeTogether(store, i, names)
				}
				for i := range callers {
					if err := call(i); err != nil {
						b.Fatal(err)
					}
				}
				if many {
					spread(b, server, call)
					return
				}
				for b.Loop() {
					if err := call(0); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// takeTogether takes one token of some limiters, or of one of them by a command of its own.
func takeTogether(store interface {
	Apply(c *control.Change)
	ApplyJoint(c *control.JointChange)
}, caller, names int,
) error {
	rule := gatehouse.Rule{Size: 1_000_000, Interval: time.Second, Burst: 1_000_000}
	key := gatehouse.Key{Kind: gatehouse.GCRA, Name: "user " + strconv.Itoa(caller)}
	if names == 1 {
		cmd := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: rule, Cost: 1}
		return (&control.Change{Key: key, Turns: []control.Turn{{Command: &cmd}}}).ApplyTo(store)
	}
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
	for i := range names {
		key.Name = "user " + strconv.Itoa(caller) + "/" + strconv.Itoa(i)
		cmd.Want = append(cmd.Want, gatehouse.Member{Key: key, Cost: 1, Rule: rule})
	}
	var p control.GrantParts
	p.Acquire(&cmd)
	done := make(chan error, 1)
	store.ApplyJoint(&control.JointChange{Parts: p.Parts, Done: func(err error) { done <- err }})
	return <-done
}
