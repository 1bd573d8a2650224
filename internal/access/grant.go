package access

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
)

// This file is how commands about several names are judged.

// EnterGrant is Enter for a command about several names.
func (u *User) EnterGrant(cmd *gatehouse.GrantCommand) (Pass, error) {
	if u == nil {
		return Pass{}, nil
	}
	// A grant is one request, however many names it has.
	if err := u.takeRate(); err != nil {
		return Pass{}, u.CountRefused(gatehouse.Key{Kind: gatehouse.Grant}, err)
	}
	// Every name is judged before any is counted.
	for i := range cmd.Want {
		m := &cmd.Want[i]
		one := memberCommand(cmd, m)
		if err := u.check(m.Key, &one); err != nil {
			return Pass{}, u.CountRefused(m.Key, err)
		}
		// check writes into the command what only the state can judge; the gate reads it from the member.
		m.KeepLimit, m.NeedLimit, m.TellResize = one.KeepLimit, one.NeedLimit, one.TellResize
		// Without a holder: all members are held by the id of the grant, which gets its user once, below.
		if err := u.translate(&m.Key, &gatehouse.Command{}); err != nil {
			return Pass{}, err
		}
	}
	for i := range cmd.Costs {
		// These take from limiters of a grant that is there, or give back to them, and begin nothing.
		key := &cmd.Costs[i].Key
		if err := u.Require(key.Kind, key.Name, gatehouse.LevelUse, cmd.Op.String()+" of"); err != nil {
			return Pass{}, err
		}
		if err := u.translate(key, &gatehouse.Command{}); err != nil {
			return Pass{}, err
		}
	}
	if cmd.ID != "" {
		if most := gatehouse.MaxGrantID - len(u.Name) - len(ownerMark); len(cmd.ID) > most {
			return Pass{}, gatehouse.Errorf(gatehouse.CodeInvalid,
				"grant: id has %d bytes, want 1 to %d for this user",
				len(cmd.ID), most)
		}
		cmd.ID = u.Name + ownerMark + cmd.ID
	}
	cmd.Origin = u.originOf(cmd.Origin)
	return Pass{user: u}, u.beginGrant(cmd)
}

// beginGrant counts the names, the holds and the record that a grant may begin. If one is too many, no hold
// and no record is counted, and the names before it count for nameAtLeast.
func (u *User) beginGrant(cmd *gatehouse.GrantCommand) error {
	for i := range cmd.Want {
		one := memberCommand(cmd, &cmd.Want[i])
		if err := u.begin(cmd.Want[i].Key, &one); err != nil {
			// The error keeps the grant from the gate, so that no LeaveGrant would end those before it.
			u.endAskingHolds(cmd, i)
			asked := cmd.Want[i].Key
			asked.Name, _ = u.Outside(asked.Name)
			return u.CountRefused(asked, err)
		}
	}
	// A grant without an id has no record, and nothing to forget.
	if !u.asksRecord(cmd) {
		return nil
	}
	err := u.askRecord(cmd.ID, u.now())
	if err != nil {
		u.endAskingHolds(cmd, len(cmd.Want))
	}
	return u.CountRefused(gatehouse.Key{Kind: gatehouse.Grant}, err)
}

// asksRecord reports whether a command asks for a grant whose record counts.
func (u *User) asksRecord(cmd *gatehouse.GrantCommand) bool {
	return u.most.Names > 0 && cmd.Op == gatehouse.OpAcquire && cmd.ID != ""
}

// endAskingHolds ends the asking for the holds of the first n names.
func (u *User) endAskingHolds(cmd *gatehouse.GrantCommand, n int) {
	u.usage.mu.Lock()
	defer u.usage.mu.Unlock()
	for i := range cmd.Want[:n] {
		if key := cmd.Want[i].Key; u.asksHold(key.Kind, cmd.Op) {
			u.usage.holds.endAsking(holdKey{key, cmd.ID})
		}
	}
}

// JudgeGrant returns what judges the names of a grant that is there before a command on it takes effect; nil
// if they need not be judged. To give back is always allowed, and costs were judged by EnterGrant.
func (e *Pass) JudgeGrant(op gatehouse.Op) func([]gatehouse.Member) error {
	u := e.user
	if u == nil || op != gatehouse.OpRenew && op != gatehouse.OpPeek {
		return nil
	}
	// Only the record knows the names, so the gate calls this once it has read it.
	return func(want []gatehouse.Member) error {
		for i := range want {
			kind, level := want[i].Key.Kind, want[i].Key.Kind.Level(gatehouse.OpAcquire)
			if op == gatehouse.OpPeek {
				level = gatehouse.LevelRead
			}
			// A name outside was taken when the user had another prefix.
			name, mine := u.Outside(want[i].Key.Name)
			if !mine || !u.May(kind, name, level) {
				e.countForbidden(want[i].Key)
				return u.CountRefused(gatehouse.Key{Kind: kind, Name: name},
					u.refusal(op.String()+" of a grant over "+glob.KindName(kind)+"/"+name, level))
			}
		}
		return nil
	}
}

// memberCommand is the command that one name of a grant is judged as.
func memberCommand(cmd *gatehouse.GrantCommand, m *gatehouse.Member) gatehouse.Command {
	return gatehouse.Command{
		Op: cmd.Op, Rule: m.Rule, Cost: m.Cost, Expires: cmd.Expires, MaxWait: cmd.MaxWait, Holder: cmd.ID,
	}
}

// LeaveGrant is Leave for a command about several names.
func (e *Pass) LeaveGrant(
	cmd *gatehouse.GrantCommand, d *gatehouse.GrantDecision, err error,
) (shown error) {
	u := e.user
	if u == nil {
		return err
	}
	if err != nil {
		e.leaveGrant(cmd, nil)
		return u.HideError(err)
	}
	// It needs the names as the gate knows them, so that they are translated last.
	e.leaveGrant(cmd, d)
	for i := range d.Want {
		switch m := &d.Want[i]; {
		case m.Outcome == gatehouse.Forbidden:
			e.countForbidden(m.Key)
		case m.Resized:
			u.Audit("resize", m.Key.String(), e.Address)
		}
	}
	// What follows is what the client reads: as the user calls it.
	d.ID = u.ShownGrant(d.ID)
	d.Message = u.Hide(d.Message)
	for i := range d.Want {
		m := &d.Want[i]
		m.Key.Name, _ = u.Outside(m.Key.Name)
		m.Message = u.Hide(m.Message)
	}
	return nil
}

// leaveGrant notes how long what a grant began counts. d is nil if there is no decision.
func (e *Pass) leaveGrant(cmd *gatehouse.GrantCommand, d *gatehouse.GrantDecision) {
	u := e.user
	if u.most.Names == 0 && u.most.Holders == 0 || e.left {
		return
	}
	e.left = true
	// Last, as in leave: what was granted is noted by then, and stays.
	defer e.endAskingGrant(cmd)
	one := gatehouse.Command{Op: cmd.Op, Holder: cmd.ID}
	// What is told of one that was not given may be about another grant with its id.
	if d == nil || d.Outcome != gatehouse.Granted {
		for i := range cmd.Want {
			u.settle(cmd.Want[i].Key, &one, nil)
		}
		return
	}
	for i := range d.Want {
		m := &d.Want[i]
		// nameLasts takes the end of the grant if it has one, and else that of the limiter.
		u.settle(m.Key, &one, &gatehouse.Decision{
			Outcome: gatehouse.Granted, ExpiresAfter: d.ExpiresAfter, ResetAfter: m.ResetAfter,
			Fence: d.Fence,
		})
	}
	u.settleRecord(cmd, d)
	e.fence = d.Fence
}

// endAskingGrant is endAsking for a command about several names.
func (e *Pass) endAskingGrant(cmd *gatehouse.GrantCommand) {
	e.user.endAskingHolds(cmd, len(cmd.Want))
	// The record counts among the names, though no key of it is a name of a controller.
	if e.user.asksRecord(cmd) {
		e.user.usage.mu.Lock()
		defer e.user.usage.mu.Unlock()
		e.user.usage.names.endAsking(recordKey(cmd.ID))
	}
}

// TakeBackGrant is TakeBack for a command about several names.
func (e *Pass) TakeBackGrant(cmd *gatehouse.GrantCommand) {
	if e.user == nil || cmd.Op != gatehouse.OpAcquire {
		return
	}
	// Its client left before the decision was noted, so that there is nothing but asking to end.
	if !e.left {
		e.left = true
		e.endAskingGrant(cmd)
		return
	}
	// It was not granted: what there is under the id is of another request.
	if e.fence == 0 {
		return
	}
	v := e.user.usage
	v.mu.Lock()
	defer v.mu.Unlock()
	// All members of a grant have its fencing token, so a later grant with the same id stays.
	for i := range cmd.Want {
		v.holds.takeBack(holdKey{cmd.Want[i].Key, cmd.ID}, e.fence)
	}
	v.names.takeBack(recordKey(cmd.ID), e.fence)
}
