package gatehouse_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

type grantCommand = gatehouse.GrantCommand

// tokens, slots and lock are what a grant may want.
func tokens(size, cost int64) gatehouse.Member {
	return gatehouse.Member{
		Key:  gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "a"},
		Rule: gatehouse.Rule{Size: size, Interval: time.Second}, Cost: cost,
	}
}

func slots(name string, size, cost int64) gatehouse.Member {
	key := gatehouse.Key{Kind: gatehouse.Semaphore, Name: name}
	return gatehouse.Member{Key: key, Rule: gatehouse.Rule{Size: size}, Cost: cost}
}

func lock(name string) gatehouse.Member {
	return gatehouse.Member{Key: gatehouse.Key{Kind: gatehouse.Lock, Name: name}, Cost: 1}
}

// grantOf is an acquire with a record.
func grantOf(want ...gatehouse.Member) gatehouse.GrantCommand {
	return gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: "x", Expires: time.Minute, Want: want}
}

// about is an operation on a grant that is there.
func about(op gatehouse.Op, costs ...int64) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: op, ID: "x", Expires: time.Minute}
	for i, cost := range costs {
		key := gatehouse.Key{Kind: gatehouse.GCRA, Name: fmt.Sprint("n", i)}
		cmd.Costs = append(cmd.Costs, gatehouse.MemberCost{Key: key, Cost: cost})
	}
	return cmd
}

// changed is a command with a change.
func changed(cmd gatehouse.GrantCommand, change func(c *grantCommand)) gatehouse.GrantCommand {
	change(&cmd)
	return cmd
}

func many(n int) (want []gatehouse.Member) {
	for i := range n {
		want = append(want, lock(fmt.Sprint("n", i)))
	}
	return want
}

// A grantCheck is a command, and what is wrong with it: nothing if that is "".
type grantCheck struct {
	cmd  grantCommand
	want string
}

// acquires are commands that begin a grant.
func acquires() []grantCheck {
	clip := tokens(10, 999)
	clip.Clip = true
	badClip := slots("s", 2, 1)
	badClip.Clip = true
	event := lock("e")
	event.Key.Kind = gatehouse.Event
	twoLocks := lock("l")
	twoLocks.Cost = 2
	one := grantOf(lock("l"))
	return []grantCheck{
		{grantOf(tokens(10, 10), slots("s", 2, 2), lock("l")), ""},
		{grantOf(many(16)...), ""},
		{gatehouse.GrantCommand{Op: gatehouse.OpAcquire, Want: []gatehouse.Member{tokens(10, 1)}}, ""},
		{grantOf(clip), ""},
		{changed(one, func(c *grantCommand) { c.Expires = time.Millisecond }), ""},
		{changed(one, func(c *grantCommand) { c.MaxWait = gatehouse.Forever }), ""},
		{changed(one, func(c *grantCommand) { c.ID = strings.Repeat("aZ9._~-", 18) }), ""},
		{gatehouse.GrantCommand{}, "a grant has no operation none"},
		{about(gatehouse.OpCharge), "a grant has no operation charge"},
		{grantOf(), "grant/x: Want is of 0 names, want 1 to 16"},
		{grantOf(many(17)...), "grant/x: Want is of 17 names, want 1 to 16"},
		{grantOf(lock("l"), lock("m"), lock("l")), "grant/x: Want has lock/l twice, want each name once"},
		{grantOf(event), "event/e: the kind is event, want a limiter, a semaphore or a lock"},
		{grantOf(lock("")), "lock: name has 0 bytes, want 1 to 512"},
		{grantOf(tokens(10, 0)), "tokenbucket/a: Cost is 0, want 1 to 999999999999999"},
		{grantOf(tokens(10, 11)), "tokenbucket/a: cost 11 can never fit a size of 10"},
		{grantOf(tokens(-1, 1)), "tokenbucket/a: Size is -1, want 0 to 999999999999999"},
		{grantOf(slots("s", 2, 3)), "semaphore/s: cost 3 can never fit a size of 2"},
		{grantOf(twoLocks), "lock/l: cost 2 can never fit a size of 1"},
		{grantOf(badClip), "semaphore/s: Clip is true, want it for a limiter only"},
		{changed(one, func(c *grantCommand) { c.ID = "" }),
			"grant: ID has 0 bytes, want 1 to 128"},
		{changed(one, func(c *grantCommand) { c.ID = strings.Repeat("x", 129) }),
			"grant: ID has 129 bytes, want 1 to 128"},
		{changed(one, func(c *grantCommand) { c.ID = "a/b" }),
			`grant: ID "a/b" has the byte '/', want letters of ASCII, digits and . _ ~ - only`},
		{changed(one, func(c *grantCommand) { c.Expires = 0 }),
			"grant/x: Expires is 0s, want 1 ms to 100 years"},
		{changed(one, func(c *grantCommand) { c.Expires = gatehouse.AsAcquired }),
			"grant/x: Expires is -1ns, want 1 ms to 100 years"},
		{changed(one, func(c *grantCommand) { c.Expires = 999_999 }),
			"grant/x: Expires is 999.999µs, want 1 ms to 100 years"},
		{changed(one, func(c *grantCommand) { c.Fence = 7 }),
			"grant/x: Fence is 7, want 0 in an acquire"},
		{changed(one, func(c *grantCommand) { c.Costs = about(0, 1).Costs }),
			"grant/x: Costs is of 1 names, want none in an acquire: each of Want has its own"},
		{changed(one, func(c *grantCommand) { c.MaxWait = -2 }),
			"grant/x: MaxWait is -2ns, want Forever, or 0 to 100 years"},
		{changed(one, func(c *grantCommand) { c.Overrun = 2 }),
			"grant/x: Overrun is 2, want OverrunDebt or OverrunCap"},
		{changed(one, func(c *grantCommand) { c.OnExpiry = 3 }),
			"grant/x: OnExpiry is 3, want ExpiryEstimate, ExpiryZero or ExpiryLast"},
	}
}

// followings are commands about a grant that is there.
func followings() []grantCheck {
	const whole int64 = gatehouse.MaxSize
	return []grantCheck{
		{about(gatehouse.OpPeek), ""}, {about(gatehouse.OpRenew), ""}, {about(gatehouse.OpRelease), ""},
		{about(gatehouse.OpRelease, 0), ""}, {about(gatehouse.OpSettle, 0, whole), ""},
		{about(gatehouse.OpTopUp, 1), ""},
		{changed(about(gatehouse.OpRenew), func(c *grantCommand) { c.Expires = gatehouse.AsAcquired }), ""},
		{changed(about(gatehouse.OpPeek), func(c *grantCommand) { c.ID = "" }),
			"grant: ID has 0 bytes, want 1 to 128"},
		{changed(about(gatehouse.OpRenew), func(c *grantCommand) { c.Want = many(1) }),
			"grant/x: Want is of 1 names, want none in a renew: the grant has its names"},
		{changed(about(gatehouse.OpRenew), func(c *grantCommand) { c.Expires = 0 }),
			"grant/x: Expires is 0s, want AsAcquired, or 1 ms to 100 years"},
		{about(gatehouse.OpRenew, 1), "grant/x: Costs is of 1 names, want 0 to 0 in a renew"},
		{about(gatehouse.OpSettle), "grant/x: Costs is of 0 names, want 1 to 16 in a settle"},
		{about(gatehouse.OpTopUp, 0), "gcra/n0: Cost is 0, want 1 to 999999999999999"},
		{about(gatehouse.OpSettle, -1), "gcra/n0: Cost is -1, want 0 to 999999999999999"},
		{changed(about(gatehouse.OpSettle, 1), func(c *grantCommand) {
			c.Costs = append(c.Costs, c.Costs[0])
		}), "grant/x: Costs has gcra/n0 twice, want each name once"},
		{changed(about(gatehouse.OpSettle, 1), func(c *grantCommand) {
			c.Costs[0].Key.Kind = gatehouse.Lock
		}), "grant/x: Costs has lock/n0, want limiters only"},
	}
}

func TestGrantCheck(t *testing.T) {
	for _, c := range append(acquires(), followings()...) {
		err := c.cmd.Check()
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s %+v: %v", c.cmd.Op, c.cmd, err)
		case c.want == "":
		case err == nil || err.Error() != c.want || gatehouse.CodeOf(err) != gatehouse.CodeInvalid:
			t.Errorf("%s: %v, want %q", c.cmd.Op, err, c.want)
		}
	}
}

// TestHolderOfGrants: no command reaches what a grant holds.
func TestHolderOfGrants(t *testing.T) {
	for _, op := range []gatehouse.Op{gatehouse.OpAcquire, gatehouse.OpRenew, gatehouse.OpRelease} {
		cmd := gatehouse.Command{Op: op, Holder: "\x00grant/x", Cost: 1}
		err := cmd.Check(gatehouse.Key{Kind: gatehouse.Lock, Name: "l"})
		want := `lock/l: Holder "\x00grant/x" begins with a zero byte, want another first byte`
		if err == nil || err.Error() != want || gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("%s: %v, want %q", op, err, want)
		}
	}
}
