package redis_test

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/redistest"
)

// A grant over names that this server knows, against a command for one such name: by one caller, and by many,
// each for other names than those that are under way.
func BenchmarkGrant(b *testing.B) {
	for _, names := range []int{1, 4} {
		for _, many := range []bool{false, true} {
			b.Run(strconv.Itoa(names)+" names, many callers "+strconv.FormatBool(many), func(b *testing.B) {
				server := redistest.Start(b)
				g := gate.New(openStore(b, server.Address), gate.Config{})
				var commands [20 * callers]gatehouse.GrantCommand
				for i := range commands {
					commands[i] = limitersOf(i, names)
				}
				call := func(i int) error { return takeTogether(g, &commands[i%len(commands)]) }
				warm(b, len(commands), call)
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

// Grants over the same four names, which all callers want at once.
func BenchmarkSharedGrant(b *testing.B) {
	server := redistest.Start(b)
	g := gate.New(openStore(b, server.Address), gate.Config{})
	cmd := limitersOf(0, 4)
	call := func(int) error { return takeTogether(g, &cmd) }
	warm(b, 1, call)
	spread(b, server, call)
}

// limitersOf is a grant over some limiters of their own for each number.
func limitersOf(number, names int) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire}
	for i := range names {
		name := "user " + strconv.Itoa(number) + "/" + strconv.Itoa(i)
		cmd.Want = append(cmd.Want, gatehouse.Member{
			Key:  gatehouse.Key{Kind: gatehouse.GCRA, Name: name},
			Rule: gatehouse.Rule{Size: 1_000_000, Interval: time.Second, Burst: 1_000_000}, Cost: 1,
		})
	}
	return cmd
}

// takeTogether asks for a grant, or for what it is over if that is one name.
func takeTogether(g *gate.Gate, cmd *gatehouse.GrantCommand) (err error) {
	if m := &cmd.Want[0]; len(cmd.Want) == 1 {
		one := gatehouse.Command{Op: gatehouse.OpAcquire, Rule: m.Rule, Cost: m.Cost}
		_, err = g.Do(context.Background(), m.Key, one)
	} else {
		_, err = g.DoGrant(context.Background(), *cmd)
	}
	return err
}
