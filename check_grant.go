package gatehouse

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// NeedsRecord reports whether an acquire leaves a record: it holds something, or has an ID or a length. Only
// such a grant can be renewed, settled and released.
func (cmd *GrantCommand) NeedsRecord() bool {
	held := func(m Member) bool { return !m.Key.Kind.Limiter() }
	return cmd.ID != "" || cmd.Expires != 0 || slices.ContainsFunc(cmd.Want, held)
}

// Check returns an error of CodeInvalid when cmd makes no sense: an unknown operation, a bad id, a name
// twice, a number out of range, a cost that can never fit.
func (cmd *GrantCommand) Check() error {
	switch cmd.Op {
	case OpAcquire:
		return cmd.checkAcquire()
	case OpRenew, OpTopUp, OpSettle, OpRelease, OpPeek:
		return cmd.checkExisting()
	}
	return Errorf(CodeInvalid, "%s has no operation %s", Grant, cmd.Op)
}

// checkAcquire looks at what begins a grant.
func (cmd *GrantCommand) checkAcquire() error {
	if n := len(cmd.Want); n < 1 || n > MaxMembers {
		return Errorf(CodeInvalid, "grant wants %d names, want 1 to %d", n, MaxMembers)
	}
	for i := range cmd.Want {
		m := &cmd.Want[i]
		same := func(other Member) bool { return other.Key == m.Key }
		if slices.ContainsFunc(cmd.Want[:i], same) {
			return Errorf(CodeInvalid, "%s is wanted twice, want each name once", m.Key)
		}
		if err := m.check(); err != nil {
			return err
		}
	}
	if cmd.NeedsRecord() {
		if err := checkGrantID(cmd.ID); err != nil {
			return err
		}
		// A grant without an end would keep its slots and its record for good if its client died.
		if cmd.Expires < time.Millisecond || cmd.Expires > MaxDuration {
			return cmd.outOfRange("Expires", cmd.Expires, "1 ms to 100 years")
		}
	}
	if cmd.Overrun > OverrunCap {
		return cmd.outOfRange("Overrun", cmd.Overrun, "debt or cap")
	}
	if cmd.OnExpiry > ExpiryLast {
		return cmd.outOfRange("OnExpiry", cmd.OnExpiry, "estimate, zero or last")
	}
	return cmd.checkMaxWait()
}

// checkExisting looks at an operation on a grant that is there.
func (cmd *GrantCommand) checkExisting() error {
	if err := checkGrantID(cmd.ID); err != nil {
		return err
	}
	switch {
	case cmd.Op == OpRenew && cmd.Expires != AsAcquired &&
		(cmd.Expires < time.Millisecond || cmd.Expires > MaxDuration):
		return cmd.outOfRange("Expires", cmd.Expires, "AsAcquired, or 1 ms to 100 years")
	case cmd.Op == OpTopUp || cmd.Op == OpSettle || cmd.Op == OpRelease && len(cmd.Costs) > 0:
		if err := cmd.checkCosts(); err != nil {
			return err
		}
	}
	return cmd.checkMaxWait()
}

// checkCosts looks at what a topup adds, or at what a settle or a release says was spent.
func (cmd *GrantCommand) checkCosts() error {
	if n := len(cmd.Costs); n < 1 || n > MaxMembers {
		return Errorf(CodeInvalid, "grant/%s: %s of %d limiters, want 1 to %d", cmd.ID, cmd.Op, n, MaxMembers)
	}
	least := int64(0)
	if cmd.Op == OpTopUp {
		least = 1
	}
	for i, c := range cmd.Costs {
		same := func(other MemberCost) bool { return other.Key == c.Key }
		switch {
		case !c.Key.Kind.Limiter():
			return Errorf(CodeInvalid, "grant/%s: %s of %s, want a limiter", cmd.ID, cmd.Op, c.Key)
		case slices.ContainsFunc(cmd.Costs[:i], same):
			return Errorf(CodeInvalid, "%s has two costs, want one", c.Key)
		case c.Cost < least || c.Cost > MaxSize:
			return outOfRange(c.Key, "Cost", c.Cost, fmt.Sprintf("%d to %d", least, int64(MaxSize)))
		}
		if bad := NameFault(c.Key.Name); bad != "" {
			return Errorf(CodeInvalid, "%s: name %s", c.Key.Kind, bad)
		}
	}
	return nil
}

func (cmd *GrantCommand) checkMaxWait() error {
	if cmd.MaxWait < Forever || cmd.MaxWait > MaxDuration {
		return cmd.outOfRange("MaxWait", cmd.MaxWait, "Forever, or 0 to 100 years")
	}
	return nil
}

func (cmd *GrantCommand) outOfRange(field string, value any, want string) error {
	return outOfRange(Key{Grant, cmd.ID}, field, value, want)
}

// check returns an error when a member makes no sense, whatever is in force under its name.
func (m *Member) check() error {
	limiter := m.Key.Kind.Limiter()
	if !limiter && m.Key.Kind != Semaphore && m.Key.Kind != Lock {
		return Errorf(CodeInvalid, "%s is wanted, want a limiter, a semaphore or a lock", m.Key)
	}
	if m.Clip && !limiter {
		return Errorf(CodeInvalid, "%s has Clip, want it of a limiter", m.Key)
	}
	// A member is judged as an acquire of its name is. The gate chooses who holds it.
	cmd := Command{Op: OpAcquire, Rule: m.Rule, Cost: m.Cost, Holder: "grant"}
	if m.Clip && m.Cost > 1 && m.Cost <= MaxSize {
		cmd.Cost = 1 // it is cut to what fits
	}
	return cmd.Check(m.Key)
}

// checkGrantID returns an error when a text cannot be the id of a grant. It is a part of paths and commands,
// so that it has no character that either would have to escape.
func checkGrantID(id string) error {
	if len(id) < 1 || len(id) > MaxGrantID {
		return Errorf(CodeInvalid, "id of a grant has %d bytes, want 1 to %d", len(id), MaxGrantID)
	}
	if i := strings.IndexFunc(id, notInGrantID); i >= 0 {
		return Errorf(CodeInvalid, "id of a grant is %+q, want only A to Z, a to z, 0 to 9 and . _ ~ -", id)
	}
	return nil
}

func notInGrantID(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return false
	}
	return !strings.ContainsRune("._~-", r)
}
