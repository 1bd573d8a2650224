package gatehouse_test

import (
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

func named(kind gatehouse.Kind, name string) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: name}
}

// wanted returns an acquire of some names, valid as it is.
func wanted(change func(*gatehouse.GrantCommand)) gatehouse.GrantCommand {
	rule := gatehouse.Rule{Size: 10, Interval: time.Minute}
	cmd := gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: "job.7_~-", Expires: time.Minute,
		Want: []gatehouse.Member{
			{Key: named(gatehouse.TokenBucket, "tokens"), Rule: rule, Cost: 10},
			{Key: named(gatehouse.Semaphore, "jobs"), Rule: gatehouse.Rule{Size: 2}, Cost: 2},
			{Key: named(gatehouse.Lock, "tokens"), Cost: 1},
		},
	}
	change(&cmd)
	return cmd
}

// on returns an operation on a grant, with a cost of one limiter.
func on(op gatehouse.Op, change func(*gatehouse.GrantCommand)) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: op, ID: "job", Costs: []gatehouse.MemberCost{
		{Key: named(gatehouse.GCRA, "a/b"), Cost: 1},
	}}
	switch op {
	case gatehouse.OpRenew:
		cmd.Expires, cmd.Costs = gatehouse.AsAcquired, nil
	case gatehouse.OpPeek:
		cmd.Costs = nil
	}
	change(&cmd)
	return cmd
}

// A grantCheck is a command, and what is said of it; "" for nothing.
type grantCheck struct {
	name string
	cmd  gatehouse.GrantCommand
	want string
}

// checkGrants checks each command.
func checkGrants(t *testing.T, checks []grantCheck) {
	t.Helper()
	for _, test := range checks {
		err := test.cmd.Check()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v, want no error", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) ||
			gatehouse.CodeOf(err) != gatehouse.CodeInvalid):
			t.Errorf("%s: error is %v, want %q", test.name, err, test.want)
		}
	}
}

func TestGrantCommandCheck(t *testing.T) {
	type command = gatehouse.GrantCommand
	many := make([]gatehouse.Member, gatehouse.MaxMembers+1)
	for i := range many {
		many[i] = gatehouse.Member{Key: named(gatehouse.Lock, strings.Repeat("a", i+1)), Cost: 1}
	}
	limiterOnly := func(c *command) { c.Want, c.ID, c.Expires = c.Want[:1], "", 0 }
	checkGrants(t, []grantCheck{
		{"all kinds", wanted(func(*command) {}), ""},
		{"no record", wanted(limiterOnly), ""},
		{"16 names", wanted(func(c *command) { c.Want = many[:gatehouse.MaxMembers] }), ""},
		{"17 names", wanted(func(c *command) { c.Want = many }), "Want is of 17 names, want 1 to 16"},
		{"no name", wanted(func(c *command) { c.Want = nil }), "Want is of 0 names"},
		{"a name twice", wanted(func(c *command) { c.Want[2] = c.Want[1] }), "semaphore/jobs twice"},
		{"a counter", wanted(func(c *command) { c.Want[2].Key.Kind = gatehouse.Counter }), "want a limiter,"},
		{"a grant", wanted(func(c *command) { c.Want[2].Key.Kind = gatehouse.Grant }), "want a limiter,"},
		{"no kind", wanted(func(c *command) { c.Want[2].Key.Kind = 0 }), "want a limiter,"},
		{"an empty name", wanted(func(c *command) { c.Want[2].Key.Name = "" }), "name has 0 bytes"},
		{"cost 0", wanted(func(c *command) { c.Want[0].Cost = 0 }), "Cost is 0"},
		{"cost too high", wanted(func(c *command) { c.Want[0].Cost = 11 }), "can never fit a size of 10"},
		{"cost clipped", wanted(func(c *command) { c.Want[0].Cost, c.Want[0].Clip = 11, true }), ""},
		{"cost out of range", wanted(func(c *command) {
			c.Want[0].Cost, c.Want[0].Clip = gatehouse.MaxSize+1, true
		}), "Cost is 1000000000000000"},
		{"clip of a lock", wanted(func(c *command) { c.Want[2].Clip = true }), "want it for a limiter"},
		{"size in force", wanted(func(c *command) { c.Want[1].Size = gatehouse.InForce }), ""},
		{"no window", wanted(func(c *command) { c.Want[0].Interval = 0 }), "Interval is 0s"},
		{"no id", wanted(func(c *command) { c.ID = "" }), "has 0 bytes, want 1 to 128"},
		{"long id", wanted(func(c *command) { c.ID = strings.Repeat("i", 129) }), "has 129 bytes"},
		{"longest id", wanted(func(c *command) { c.ID = strings.Repeat("i", 128) }), ""},
		{"a slash in an id", wanted(func(c *command) { c.ID = "a/b" }), `"a/b" has the byte`},
		{"an umlaut in an id", wanted(func(c *command) { c.ID = "ä" }), "has the byte"},
		{"never ends", wanted(func(c *command) { c.Expires = 0 }), "Expires is 0s"},
		{"ends too early", wanted(func(c *command) { c.Expires = time.Microsecond }), "Expires is 1µs"},
		{"ends too late", wanted(func(c *command) { c.Expires = gatehouse.MaxDuration + 1 }), "Expires is"},
		{"waits forever", wanted(func(c *command) { c.MaxWait = gatehouse.Forever }), ""},
		{"waits backwards", wanted(func(c *command) { c.MaxWait = -2 }), "MaxWait is -2ns"},
		{"overrun", wanted(func(c *command) { c.Overrun = gatehouse.OverrunCap + 1 }), "Overrun is 2"},
		{"on expiry", wanted(func(c *command) { c.OnExpiry = gatehouse.ExpiryLast + 1 }), "OnExpiry is 3"},
		{"no operation", wanted(func(c *command) { c.Op = gatehouse.OpCount }), "has no operation count"},
	})
	acquire := wanted(limiterOnly)
	if acquire.HasRecord() {
		t.Error("a grant of limiters without an id and a length needs a record, want none")
	}
}

func TestFollowingGrantCommandCheck(t *testing.T) {
	type command = gatehouse.GrantCommand
	checkGrants(t, []grantCheck{
		{"peek", on(gatehouse.OpPeek, func(*command) {}), ""},
		{"peek of nothing", on(gatehouse.OpPeek, func(c *command) { c.ID = "" }), "has 0 bytes"},
		{"renew", on(gatehouse.OpRenew, func(*command) {}), ""},
		{"renew for 0", on(gatehouse.OpRenew, func(c *command) { c.Expires = 0 }), "Expires is 0s"},
		{"settle", on(gatehouse.OpSettle, func(c *command) { c.Costs[0].Cost = 0 }), ""},
		{"settle nothing", on(gatehouse.OpSettle, func(c *command) { c.Costs = nil }), "Costs is of 0 names"},
		{"settle below 0", on(gatehouse.OpSettle, func(c *command) { c.Costs[0].Cost = -1 }), "Cost is -1"},
		{"settle a lock", on(gatehouse.OpSettle, func(c *command) { c.Costs[0].Key.Kind = gatehouse.Lock }),
			"has lock/a/b, want limiters"},
		{"settle twice", on(gatehouse.OpSettle, func(c *command) { c.Costs = append(c.Costs, c.Costs[0]) }),
			"gcra/a/b twice"},
		{"topup", on(gatehouse.OpTopUp, func(*command) {}), ""},
		{"topup of 0", on(gatehouse.OpTopUp, func(c *command) { c.Costs[0].Cost = 0 }), "Cost is 0"},
		{"release", on(gatehouse.OpRelease, func(c *command) { c.Costs = nil }), ""},
		{"release a counter", on(gatehouse.OpRelease, func(c *command) {
			c.Costs[0].Key.Kind = gatehouse.Counter
		}), "want limiters"},
	})
}
