package control

import (
	"cmp"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// GrantParts makes the parts of a joint change of the commands about a grant, and its decision of what they
// were answered. It can be used again for another command once the store has called Done: then it allocates
// nothing. The zero value is ready.
//
// What a gate adds to the turns, their tickets, Again, Since and Ahead, it fills in after
// [GrantParts.Acquire] or [GrantParts.Follow]; a look with another MaxWait begins there again.
type GrantParts struct {
	// Parts are what a [JointChange] takes.
	Parts []Part

	command  *gatehouse.GrantCommand
	order    [gatehouse.MaxMembers]uint8 // the members, in the order of their keys
	commands []gatehouse.Command
	turns    []GrantTurn
	granted  []gatehouse.Decision // of an undo
	refused  bool                 // nothing was taken
}

// begin makes room for the parts of a command about some members, and puts these in the order of their keys.
func (p *GrantParts) begin(cmd *gatehouse.GrantCommand, want []gatehouse.Member) {
	p.command, p.refused = cmd, false
	p.Parts, p.commands, p.turns = p.Parts[:0], p.commands[:0], p.turns[:0]
	// Turns point into these, so that they must not move any more.
	if n := len(want) + 1; cap(p.Parts) < n {
		p.Parts, p.turns = make([]Part, 0, n), make([]GrantTurn, 0, n)
		p.commands = make([]gatehouse.Command, 0, n)
	}
	for i := range want {
		at := i
		for at > 0 && ComparePartKeys(want[i].Key, want[p.order[at-1]].Key) < 0 {
			p.order[at] = p.order[at-1]
			at--
		}
		p.order[at] = uint8(i) // below MaxMembers
	}
}

// add adds a part. Its command is still to be filled in.
func (p *GrantParts) add(key gatehouse.Key, member int) (part *Part, cmd *gatehouse.Command) {
	i := len(p.Parts)
	p.Parts, p.commands, p.turns = p.Parts[:i+1], p.commands[:i+1], p.turns[:i+1]
	part, cmd = &p.Parts[i], &p.commands[i]
	// They are written where they lie: as values they would be copied several times.
	grant := &p.turns[i]
	*cmd, *grant = gatehouse.Command{}, GrantTurn{}
	part.Key, part.Optional, part.NonBlocking = key, false, false
	part.Turn.reuseFor(cmd, grant)
	grant.ID, grant.Command, grant.Member = p.command.ID, p.command, member
	grant.Overrun, grant.OnExpiry = p.command.Overrun, p.command.OnExpiry
	return part, cmd
}

// Acquire makes the parts of an acquire: one for each name, and if it leaves a record the part of that; or of
// a question about one. The command must pass [gatehouse.GrantCommand.Check], and have an ID if it leaves a
// record. It must stay as it is until the change is done.
func (p *GrantParts) Acquire(cmd *gatehouse.GrantCommand) {
	p.begin(cmd, cmd.Want)
	holder := ""
	if cmd.ID != "" {
		holder = GrantHolder(cmd.ID)
	}
	// In the order of the names, whatever that of Want is: all joint changes have the same.
	for _, i := range p.order[:len(cmd.Want)] {
		m := &cmd.Want[i]
		part, one := p.add(m.Key, int(i))
		part.Turn.Grant.Clip = m.Clip
		one.Op, one.Rule, one.Cost = cmd.Op, m.Rule, m.Cost
		one.KeepLimit, one.NeedLimit, one.TellResize = m.KeepLimit, m.NeedLimit, m.TellResize
		one.Expires, one.MaxWait, one.Owner, one.Explain = cmd.Expires, cmd.MaxWait, cmd.Owner, cmd.Explain
		one.Origin = cmd.Origin
		if !m.Key.Kind.Limiter() {
			one.Holder = holder
		}
	}
	if cmd.HasRecord() {
		p.addRecord(cmd.Op, cmd.Expires, 0)
	}
}

// addRecord adds the part of the record, which is the last of the order.
func (p *GrantParts) addRecord(op gatehouse.Op, expires time.Duration, fence uint64) *Part {
	part, one := p.add(gatehouse.Key{Kind: gatehouse.Grant, Name: p.command.ID}, -1)
	one.Op, one.Cost, one.Expires, one.Fence, one.MaxWait = op, 1, expires, fence, p.command.MaxWait
	return part
}

// Peek makes the part that looks at the record of a grant.
func (p *GrantParts) Peek(cmd *gatehouse.GrantCommand) {
	p.begin(cmd, nil)
	p.addRecord(gatehouse.OpPeek, 0, 0)
}

// Follow makes the parts of a renew, a topup, a settle or a release, of a grant as a peek has shown its
// record; and of a peek that shows which of its slots and locks it still holds. An error of CodeInvalid names
// what is no limiter of the grant. If the record has changed since the peek, its turn is a conflict when that
// matters, and nothing takes effect.
func (p *GrantParts) Follow(cmd *gatehouse.GrantCommand, record *gatehouse.GrantRecord) error {
	for _, c := range cmd.Costs {
		if !slices.ContainsFunc(record.Want, func(m gatehouse.Member) bool { return m.Key == c.Key }) {
			return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: Costs has %s, want names of this grant",
				cmd, c.Key)
		}
	}
	p.begin(cmd, record.Want)
	// All parts are told the same length, so that they end at one instant.
	expires := cmd.Expires
	if expires == gatehouse.AsAcquired {
		expires = record.Expires
	}
	for _, i := range p.order[:len(record.Want)] {
		p.addFollowing(record, int(i), expires)
	}
	// The fence that was asked for decides, or the one that the peek has shown: another grant of this id is
	// another grant.
	part := p.addRecord(cmd.Op, expires, cmp.Or(cmd.Fence, record.Fence))
	part.Turn.Grant.Overrun, part.Turn.Grant.OnExpiry = record.Overrun, record.OnExpiry
	return nil
}

// addFollowing adds the part of one member to an operation on a grant that is there, if it has one.
func (p *GrantParts) addFollowing(record *gatehouse.GrantRecord, i int, expires time.Duration) {
	m, op := &record.Want[i], p.command.Op
	limiter := m.Key.Kind.Limiter()
	figure, told := costOf(p.command.Costs, m.Key)
	// A topup and a settle are about some of the limiters, and a peek about what is held.
	if (op == gatehouse.OpTopUp || op == gatehouse.OpSettle) && !told || op == gatehouse.OpPeek && limiter {
		return
	}
	part, one := p.add(m.Key, i)
	one.Op, one.Rule, one.Cost, one.Fence = op, m.Rule, m.Cost, record.Fence
	one.Expires, one.MaxWait = expires, p.command.MaxWait
	g := part.Turn.Grant
	g.Taken, g.Counted = record.Taken[i], record.Counted[i]
	g.Overrun, g.OnExpiry = record.Overrun, record.OnExpiry
	switch {
	case !limiter:
		one.Holder = GrantHolder(p.command.ID)
		part.Optional = op == gatehouse.OpRelease || op == gatehouse.OpPeek
	case op == gatehouse.OpRenew:
		part.Optional = true // one that was reset has nothing to renew
	default:
		one.Cost = figure
		part.Optional = op == gatehouse.OpRelease && !told
	}
	if op == gatehouse.OpTopUp {
		one.Op = gatehouse.OpAcquire
	}
}

// costOf is what some costs say of a limiter; NoFigure when they say nothing.
func costOf(costs []gatehouse.MemberCost, key gatehouse.Key) (cost int64, told bool) {
	for i := range costs {
		if costs[i].Key == key {
			return costs[i].Cost, true
		}
	}
	return NoFigure, false
}

// Undo turns the parts of an acquire or a topup into parts that take back what they were granted. If it took
// no effect, as Decide was told, they take back only what it left behind while it waited: some of its parts
// may have been answered that they would be granted.
func (p *GrantParts) Undo() {
	p.granted = slices.Grow(p.granted[:0], len(p.Parts))[:len(p.Parts)]
	for i := range p.Parts {
		part := &p.Parts[i]
		// A copy, since the turn is replaced below, with its decision.
		p.granted[i] = part.Turn.Decision
		p.commands[i].Op, p.commands[i].MaxWait = gatehouse.OpUndo, 0
		part.Turn = Turn{
			Command: part.Turn.Command, Ticket: part.Turn.Ticket, Again: part.Turn.Again,
			Since: part.Turn.Since, Grant: part.Turn.Grant, Granted: &p.granted[i],
		}
		if p.refused {
			part.Turn.Granted = nil
		}
	}
}

// Decide makes the decision of the command of what its parts were answered; granted is that of the joint
// change. d.Want is used again if it is large enough. The error is that of a part that could not be served;
// an optional one that could not makes no error of what took effect without it.
//
// An acquire of an ID that is there is granted what that grant has, if it wants the same and that has not
// ended. So the gate need not look for retries: only what is Refused may wait.
func (p *GrantParts) Decide(granted bool, d *gatehouse.GrantDecision) error {
	p.refused = !granted
	*d = gatehouse.GrantDecision{ID: p.command.ID, Outcome: gatehouse.Granted, Binding: -1, Want: d.Want[:0]}
	var record *gatehouse.Decision
	for i := range p.Parts {
		turn := &p.Parts[i].Turn
		if turn.Err != nil && (!granted || !p.Parts[i].Optional) {
			return turn.Err
		}
		d.At = turn.Decision.At
		if turn.Grant.Member < 0 {
			record = &turn.Decision
		}
	}
	// A client that lost its answer asks again, and is not told of a contradiction.
	retried := !granted && p.isRetry(record)
	// One that was refused has none of what its trial was answered.
	if record != nil && (granted || record.Grant != nil) {
		d.Fence, d.ExpiresAfter = record.Fence, record.ExpiresAfter
		d.Ended = record.Grant != nil && record.Grant.Ended && record.Outcome == gatehouse.Granted
	}
	p.fillMembers(d, record, retried)
	if !granted && !retried {
		p.findBinding(d, record)
	}
	return nil
}

// isRetry reports whether an acquire found the grant that it wants there already.
func (p *GrantParts) isRetry(record *gatehouse.Decision) bool {
	return p.command.Op == gatehouse.OpAcquire && record != nil && record.Grant != nil &&
		!record.Grant.Ended && slices.Equal(record.Grant.Want, p.command.Want)
}

// fillMembers fills in what each member was answered.
func (p *GrantParts) fillMembers(d *gatehouse.GrantDecision, record *gatehouse.Decision, retried bool) {
	want, counted := p.command.Want, []int64(nil)
	if record != nil && record.Grant != nil {
		want, counted = record.Grant.Want, record.Grant.Counted
	}
	// Members that the command does not name are unchanged. All are written where they lie: as values of 264
	// bytes they would be copied several times.
	d.Want = slices.Grow(d.Want, len(want))[:len(want)]
	for i := range want {
		m := &d.Want[i]
		m.Key, m.Cost, m.Capped = want[i].Key, 0, 0
		if counted == nil {
			continue // each has a part, whose decision it gets
		}
		m.Cost, m.Decision = counted[i], gatehouse.Decision{Outcome: gatehouse.Granted, At: d.At}
	}
	for i := range p.Parts {
		turn := &p.Parts[i].Turn
		g := turn.Grant
		if g.Member < 0 || g.Member >= len(d.Want) || d.Want[g.Member].Key != p.Parts[i].Key {
			continue // the record is of another grant
		}
		m := &d.Want[g.Member]
		m.Decision = turn.Decision
		limiter := m.Key.Kind.Limiter()
		switch {
		case retried:
			// What it would be answered if it were new is of no interest.
			m.Outcome, m.RetryAfter, m.Message, m.Fence = gatehouse.Granted, 0, "", record.Fence
		case counted == nil && m.Outcome == gatehouse.Granted && limiter && !p.command.IsLook():
			m.Cost = m.Value
		case counted == nil:
			m.Cost = turn.Cost
		case p.command.Op == gatehouse.OpPeek && !d.Ended && turn.Err == nil && m.Fence != d.Fence:
			m.Cost = 0 // it was evicted, or its name deleted: what is held there is another's
		case p.command.Op == gatehouse.OpRelease && !limiter && m.Outcome != gatehouse.Granted:
			m.Cost = 0 // the same: there was nothing to release
		}
		if told := turn.Op == gatehouse.OpSettle || turn.Op == gatehouse.OpRelease; told && limiter {
			m.Capped = max(0, turn.Cost-m.Value)
		}
	}
}

// findBinding finds which part decided against the command: one that no wait would help, or the one that is
// refused for longest; the first of equals.
func (p *GrantParts) findBinding(d *gatehouse.GrantDecision, record *gatehouse.Decision) {
	if record != nil && record.Outcome != gatehouse.Granted {
		key := gatehouse.Key{Kind: gatehouse.Grant, Name: p.command.ID}
		d.Outcome, d.Message = record.Outcome, key.String()+" "+record.Message
		return
	}
	// Those of the same rank are compared by their members, as the parts are in another order.
	var binding *Part
	for i := range p.Parts {
		part := &p.Parts[i]
		if part.Optional || part.Turn.Decision.Outcome == gatehouse.Granted {
			continue
		}
		if binding == nil || part.bindsMore(binding) {
			binding = part
		}
	}
	if binding == nil {
		return
	}
	one := &binding.Turn.Decision
	d.Outcome, d.RetryAfter, d.Binding = one.Outcome, one.RetryAfter, binding.Turn.Grant.Member
	if one.Outcome != gatehouse.Refused {
		d.Message = binding.Key.String() + " " + one.Message
	}
}

// bindsMore reports whether a part that was not granted decides rather than another.
func (p *Part) bindsMore(other *Part) bool {
	one, two := &p.Turn.Decision, &other.Turn.Decision
	first := p.Turn.Grant.Member < other.Turn.Grant.Member
	never, otherNever := one.Outcome != gatehouse.Refused, two.Outcome != gatehouse.Refused
	switch {
	// What no wait helps decides: the whole can never be granted as it is.
	case never || otherNever:
		return never && (!otherNever || first)
	case one.RetryAfter == two.RetryAfter:
		return first
	// Forever is a number below 0, and longer than all others.
	case one.RetryAfter == gatehouse.Forever || two.RetryAfter == gatehouse.Forever:
		return one.RetryAfter == gatehouse.Forever
	}
	return one.RetryAfter > two.RetryAfter
}
