package gatehouse

import (
	"fmt"
	"strings"
	"time"
)

// MinExpires is the shortest length of a grant. It is never 0, because a grant without an end could not be
// taken back.
const MinExpires = time.Millisecond

// HasRecord reports whether an acquire leaves a record, which is named by its ID: all do but those of
// limiters alone, without an ID and without Expires.
func (cmd *GrantCommand) HasRecord() bool {
	if cmd.ID != "" || cmd.Expires != 0 {
		return true
	}
	for i := range cmd.Want {
		if !cmd.Want[i].Key.Kind.Limiter() {
			return true
		}
	}
	return false
}

// Check returns an error of CodeInvalid when the command makes no sense: an unknown operation, a bad ID, a
// name twice, a number out of range, a cost that can never fit.
func (cmd *GrantCommand) Check() error {
	switch cmd.Op {
	case OpAcquire, OpRenew, OpTopUp, OpSettle, OpRelease, OpPeek, OpDelay:
	default:
		return Errorf(CodeInvalid, "a grant has no operation %s", cmd.Op)
	}
	if cmd.MaxWait != 0 && (cmd.MaxWait < Forever || cmd.MaxWait > MaxDuration) {
		return cmd.outOfRange("MaxWait", cmd.MaxWait, "Forever, or 0 to 100 years")
	}
	// Each value has a name, without which no protocol could say it.
	if int(cmd.Overrun) >= len(overrunNames) {
		return cmd.outOfRange("Overrun", uint8(cmd.Overrun), "OverrunDebt or OverrunCap")
	}
	if int(cmd.OnExpiry) >= len(onExpiryNames) {
		return cmd.outOfRange("OnExpiry", uint8(cmd.OnExpiry), "ExpiryEstimate, ExpiryZero or ExpiryLast")
	}
	// The owner is that of all names of the grant, so that an error is about the grant.
	if cmd.Owner != nil {
		if err := cmd.Owner.check(Key{Kind: Grant, Name: cmd.ID}); err != nil {
			return err
		}
	}
	// A look asks what an acquire would be answered, and so has what an acquire has.
	if cmd.Op == OpAcquire || cmd.IsLook() {
		return cmd.checkAcquire()
	}
	return cmd.checkFollowing()
}

// IsLook reports whether the command asks about limiters, and not about a grant that is there.
func (cmd *GrantCommand) IsLook() bool {
	return cmd.Op == OpDelay || cmd.Op == OpPeek && cmd.ID == "" && len(cmd.Want) > 0
}

// checkAcquire looks at what only an acquire has, and what asks about one.
func (cmd *GrantCommand) checkAcquire() error {
	switch {
	case len(cmd.Want) == 0 || len(cmd.Want) > MaxMembers:
		return cmd.outOfRange("Want", fmt.Sprintf("of %d names", len(cmd.Want)),
			fmt.Sprintf("1 to %d", MaxMembers))
	case len(cmd.Costs) > 0:
		return cmd.outOfRange("Costs", fmt.Sprintf("of %d names", len(cmd.Costs)),
			"none in an acquire: each of Want has its own")
	case cmd.Fence != 0:
		return cmd.outOfRange("Fence", cmd.Fence, "0 in an acquire")
	}
	switch look := cmd.IsLook(); {
	case look && cmd.HasRecord():
		return Errorf(CodeInvalid, "%s: a %s of several names has an ID, Expires, or a name that is no "+
			"limiter, want none of them", cmd, cmd.Op)
	case !look && cmd.HasRecord():
		if fault := idFault(cmd.ID); fault != "" {
			return Errorf(CodeInvalid, "grant: ID %s", fault)
		}
		if cmd.Expires < MinExpires || cmd.Expires > MaxDuration {
			return cmd.outOfRange("Expires", cmd.Expires, "1 ms to 100 years")
		}
	}
	// What a member says of its limit is judged as a command about the name alone is. There is one for all of
	// them, as making one costs as much as looking at it.
	alone := Command{Op: cmd.Op, Holder: "grant"}
	for i := range cmd.Want {
		for j := range cmd.Want[:i] {
			if cmd.Want[j].Key == cmd.Want[i].Key {
				return Errorf(CodeInvalid, "%s: Want has %s twice, want each name once", cmd, cmd.Want[i].Key)
			}
		}
		if err := cmd.Want[i].check(&alone); err != nil {
			return err
		}
	}
	return nil
}

// check looks at one name that an acquire wants, or that another operation asks about. alone is the command
// about one name, which is given the member's limit and cost.
func (m *Member) check(alone *Command) error {
	limiter, least := m.Key.Kind.Limiter(), int64(1)
	// A peek may ask how a name stands, and for nothing of it.
	if alone.Op == OpPeek {
		least = 0
	}
	switch {
	case !limiter && m.Key.Kind != Semaphore && m.Key.Kind != Lock:
		return Errorf(CodeInvalid, "%s: the kind is %s, want a limiter, a semaphore or a lock", m.Key,
			m.Key.Kind)
	case m.Clip && !limiter:
		return Errorf(CodeInvalid, "%s: Clip is true, want it for a limiter only", m.Key)
	case m.Cost < least || m.Cost > MaxSize:
		return outOfRange(m.Key, "Cost", m.Cost, fmt.Sprintf("%d to %d", least, int64(MaxSize)))
	}
	alone.Rule, alone.Cost = m.Rule, m.Cost
	if m.Clip { // a cost that is clipped fits
		alone.Cost = 1
	}
	// The rest of alone is the same for all members, and valid.
	rule := &grammar[m.Key.Kind][alone.Op]
	if !rule.known || !hasPlainName(m.Key) {
		return alone.Check(m.Key)
	}
	return alone.checkAmounts(m.Key, rule.fields)
}

// checkFollowing looks at what an operation on a grant that is there has.
func (cmd *GrantCommand) checkFollowing() error {
	if fault := idFault(cmd.ID); fault != "" {
		return Errorf(CodeInvalid, "grant: ID %s", fault)
	}
	least, most := 0, 0 // how many costs there may be
	switch cmd.Op {
	case OpTopUp, OpSettle:
		least, most = 1, MaxMembers
	// It may say what was spent in the end, and need not.
	case OpRelease:
		most = MaxMembers
	}
	switch {
	case len(cmd.Want) > 0:
		return cmd.outOfRange("Want", fmt.Sprintf("of %d names", len(cmd.Want)),
			fmt.Sprintf("none in a %s: the grant has its names", cmd.Op))
	case len(cmd.Costs) < least || len(cmd.Costs) > most:
		return cmd.outOfRange("Costs", fmt.Sprintf("of %d names", len(cmd.Costs)),
			fmt.Sprintf("%d to %d in a %s", least, most, cmd.Op))
	case cmd.Op == OpRenew && cmd.Expires != AsAcquired &&
		(cmd.Expires < MinExpires || cmd.Expires > MaxDuration):
		return cmd.outOfRange("Expires", cmd.Expires, "AsAcquired, or 1 ms to 100 years")
	}
	return cmd.checkCosts()
}

// checkCosts looks at the costs that an operation tells.
func (cmd *GrantCommand) checkCosts() error {
	least := int64(0) // a settle may say that nothing was spent
	if cmd.Op == OpTopUp {
		least = 1
	}
	for i, c := range cmd.Costs {
		switch {
		// What is held is given back as it was acquired.
		case !c.Key.Kind.Limiter():
			return Errorf(CodeInvalid, "%s: Costs has %s, want limiters only", cmd, c.Key)
		case c.Cost < least || c.Cost > MaxSize:
			return outOfRange(c.Key, "Cost", c.Cost, fmt.Sprintf("%d to %d", least, int64(MaxSize)))
		}
		for j := range cmd.Costs[:i] {
			if cmd.Costs[j].Key == c.Key {
				return Errorf(CodeInvalid, "%s: Costs has %s twice, want each name once", cmd, c.Key)
			}
		}
	}
	return nil
}

// String returns the grant that is meant, as messages name it.
func (cmd *GrantCommand) String() string {
	if cmd.ID == "" {
		return Grant.String()
	}
	return Key{Kind: Grant, Name: cmd.ID}.String()
}

func (cmd *GrantCommand) outOfRange(field string, value any, want string) error {
	return Errorf(CodeInvalid, "%s: %s is %v, want %s", cmd, field, value, want)
}

// idFault says what is wrong with the id of a grant, "" when nothing is.
func idFault(id string) string {
	if len(id) == 0 || len(id) > MaxGrantID {
		return fmt.Sprintf("has %d bytes, want 1 to %d", len(id), MaxGrantID)
	}
	// The id is part of paths and of other systems' logs, where these need no encoding.
	for i := range len(id) {
		c := id[i]
		plain := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !plain && strings.IndexByte("._~-", c) < 0 {
			return fmt.Sprintf("%q has the byte %q, want letters of ASCII, digits and . _ ~ - only", id, c)
		}
	}
	return ""
}
