package oracle

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// aLock and someTokens are what grants and single commands want in these histories.
func aLock() gatehouse.Member { return gatehouse.Member{Key: of(gatehouse.Lock), Cost: 1} }

func someTokens() gatehouse.Member {
	return gatehouse.Member{Key: of(gatehouse.SlidingLog), Rule: gatehouse.Rule{Size: 6}, Cost: 4}
}

// grantTold is a call that is made when the one before has ended.
func grantTold(op gatehouse.Op, id string, fence uint64, outcome gatehouse.Outcome) *GrantCall {
	return &GrantCall{
		Answered: true, Command: gatehouse.GrantCommand{Op: op, ID: id},
		Decision: gatehouse.GrantDecision{Outcome: outcome, Fence: fence},
	}
}

// granting is an acquire of members, and what is told that each has.
func granting(id string, fence uint64, outcome gatehouse.Outcome, want ...gatehouse.Member) *GrantCall {
	c := grantTold(gatehouse.OpAcquire, id, fence, outcome)
	c.Command.Want = want
	return c.has(want)
}

// lostGrant is an acquire without an answer.
func lostGrant(id string, want ...gatehouse.Member) *GrantCall {
	c := granting(id, 0, gatehouse.Refused, want...)
	c.Answered = false
	return c
}

// has tells what each member has.
func (c *GrantCall) has(want []gatehouse.Member) *GrantCall {
	c.Decision.Want = nil
	for _, m := range want {
		c.Decision.Want = append(c.Decision.Want, gatehouse.MemberDecision{Key: m.Key, Cost: m.Cost})
	}
	return c
}

// spending tells a settle or a release of tokens, of a grant of these alone.
func spending(op gatehouse.Op, cost, counted int64) *GrantCall {
	c := grantTold(op, "x", 5, gatehouse.Granted)
	c.Command.Costs = []gatehouse.MemberCost{{Key: someTokens().Key, Cost: cost}}
	m := someTokens()
	m.Cost = counted
	return c.has([]gatehouse.Member{m})
}

// alone is an acquire of some tokens without a grant.
func alone(cost int64, outcome gatehouse.Outcome) *GrantCall {
	return &GrantCall{Answered: true, Single: &Call{
		Key: someTokens().Key, Decision: gatehouse.Decision{Outcome: outcome},
		Command: gatehouse.Command{Op: gatehouse.OpAcquire, Rule: someTokens().Rule, Cost: cost},
	}}
}

// capped has an acquire charge no more than what is free.
func capped(c *GrantCall) *GrantCall {
	c.Command.Overrun = gatehouse.OverrunCap
	return c
}

func TestLinearGrants(t *testing.T) {
	const granted, refused = gatehouse.Granted, gatehouse.Refused
	theLock, theTokens := aLock(), someTokens()
	settle, release := gatehouse.OpSettle, gatehouse.OpRelease
	for name, c := range map[string]struct {
		right bool
		calls []*GrantCall
	}{
		"all of it": {true, []*GrantCall{
			granting("x", 5, granted, theLock, theTokens), granting("y", 0, refused, theLock),
			alone(2, granted),
		}},
		"some of what was refused": {false, []*GrantCall{
			granting("x", 5, granted, theLock), granting("y", 0, refused, theLock, theTokens),
			alone(4, refused),
		}},
		"refused without a reason": {false, []*GrantCall{granting("x", 0, refused, theLock, theTokens)}},
		"a token that does not rise": {false, []*GrantCall{
			granting("x", 5, granted, theLock),
			grantTold(release, "x", 5, granted).has([]gatehouse.Member{theLock}),
			granting("y", 5, granted, theLock),
		}},
		"lost, and taken back": {true, []*GrantCall{
			lostGrant("x", theLock, theTokens), granting("y", 0, refused, theLock), alone(6, granted),
		}},
		"lost, and taken back by half": {false, []*GrantCall{
			lostGrant("x", theLock, theTokens), alone(6, refused), granting("y", 6, granted, theLock),
			granting("z", 0, refused, theTokens),
		}},
		"taken back though it was answered": {false, []*GrantCall{
			granting("x", 5, granted, theLock), lostGrant("x", theLock), granting("y", 6, granted, theLock),
		}},
		"settled": {true, []*GrantCall{
			granting("x", 5, granted, theTokens), spending(settle, 1, 1), spending(settle, 1, 1),
			spending(release, 2, 2), alone(4, granted), alone(1, refused),
		}},
		"settled twice": {false, []*GrantCall{
			granting("x", 5, granted, theTokens), spending(settle, 3, 3), spending(settle, 3, 3),
			alone(4, granted),
		}},
		"a debt is not free": {true, []*GrantCall{
			granting("x", 5, granted, theTokens), spending(settle, 9, 9), spending(settle, 6, 6),
			alone(1, refused), spending(settle, 5, 5), alone(1, granted),
		}},
		"more than is free": {false, []*GrantCall{
			capped(granting("x", 5, granted, theTokens)), spending(settle, 9, 9),
		}},
		"as much as is free": {true, []*GrantCall{
			capped(granting("x", 5, granted, theTokens)), spending(settle, 9, 6), alone(1, refused),
		}},
		"whoever came first of two with an id": {true, []*GrantCall{
			endsLate(capped(granting("x", 5, granted, theTokens))), granting("x", 5, granted, theTokens),
			spending(settle, 9, 9),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			for i, call := range c.calls {
				call.Begin, call.End = time.Duration(2*i+1), call.End+time.Duration(2*i+2)
			}
			if err := LinearGrants(c.calls, time.Minute); (err == nil) != c.right {
				t.Errorf("right %t, want %t: %v", err == nil, c.right, err)
			}
		})
	}
}

// endsLate is a call that ends after the next one.
func endsLate(c *GrantCall) *GrantCall {
	c.End = 2
	return c
}
