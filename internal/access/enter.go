package access

import (
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
)

// ownerMark stands between the name of a user and the key, or the id of a grant, that the user chose. No name
// of a user has one, so that nobody's key is another's.
const ownerMark = "~"

// Enter judges a command of the user, counts it, and turns its key and its holder into those that the gate
// knows: the name lies beneath the user's prefix, and a holder belongs to its user. An error says why the
// command is not put to the gate. What Enter has let in ends with [User.Leave]. A nil user changes nothing.
func (u *User) Enter(key *gatehouse.Key, cmd *gatehouse.Command, now time.Time) error {
	if u == nil {
		return nil
	}
	if err := u.TakeRate(now); err != nil {
		return err
	}
	if err := u.check(*key, cmd); err != nil {
		return err
	}
	if err := u.translate(key, cmd); err != nil {
		return err
	}
	return u.begin(*key, cmd, now)
}

// check judges a command.
func (u *User) check(key gatehouse.Key, cmd *gatehouse.Command) error {
	level := key.Kind.Level(cmd.Op)
	r := u.find(key.Kind, key.Name)
	if r != nil && cmd.Op == gatehouse.OpFeedback && r.also[extraFeedback] {
		level = gatehouse.LevelUse
	}
	if r == nil || r.level < level {
		return u.refusal(cmd.Op.String()+" of "+key.String(), level)
	}
	// Only these put a limit in force. A question under another limit changes nothing.
	if level != gatehouse.LevelUse || r.level >= gatehouse.LevelManage {
		return nil
	}
	cmd.KeepLimit = !r.also[extraResize]
	return r.checkSize(key, &cmd.Rule)
}

// translate makes the key and the holder those that the gate knows.
func (u *User) translate(key *gatehouse.Key, cmd *gatehouse.Command) error {
	if len(u.prefix) > 0 {
		if most := gatehouse.MaxName - len(u.prefix); len(key.Name) > most {
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"%s: name has %d bytes, want 1 to %d for this user",
				key.Kind, len(key.Name), most)
		}
		key.Name = u.prefix + key.Name
	}
	if cmd.Holder == "" {
		return nil
	}
	if most := gatehouse.MaxHolder - len(u.Name) - len(ownerMark); len(cmd.Holder) > most {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "%s: key has %d bytes, want 1 to %d for this user",
			key.Kind, len(cmd.Holder), most)
	}
	cmd.Holder = u.Name + ownerMark + cmd.Holder
	return nil
}

// begin counts the name and the hold that a command may begin.
func (u *User) begin(key gatehouse.Key, cmd *gatehouse.Command, now time.Time) error {
	if u.most.Names == 0 && u.most.Holders == 0 || key.Kind.Level(cmd.Op) != gatehouse.LevelUse &&
		!cmd.Op.Waits() {
		return nil
	}
	// What only gives back begins nothing.
	switch cmd.Op {
	case gatehouse.OpRelease, gatehouse.OpRenew, gatehouse.OpCancel, gatehouse.OpRefund:
		return nil
	}
	at := now.UnixNano()
	if u.most.Names > 0 {
		if err := u.beginName(key, at); err != nil {
			return err
		}
	}
	if u.most.Holders > 0 && cmd.Op == gatehouse.OpAcquire && holds(key.Kind) {
		return u.beginHold(key, cmd.Holder, at)
	}
	return nil
}

// Leave notes what became of a command that Enter has let in, and makes its decision one that the user may
// see. key and cmd are those that the gate knows; d is nil if there is no decision, or if it was taken back.
func (u *User) Leave(key gatehouse.Key, cmd *gatehouse.Command, d *gatehouse.Decision, now time.Time) {
	if u == nil {
		return
	}
	if u.most.Names > 0 || u.most.Holders > 0 {
		u.settle(key, cmd, d, now.UnixNano())
	}
	if d == nil {
		return
	}
	if d.Message != "" && cmd.Op != gatehouse.OpWait {
		d.Message = u.Hide(d.Message)
	}
	if d.Report != nil {
		d.Report = u.hideReport(d.Report)
	}
}

// hideReport returns a report in which grants are called as their users call them.
func (u *User) hideReport(report *gatehouse.Report) *gatehouse.Report {
	shown := *report
	shown.Holders = append([]gatehouse.HolderEntry(nil), report.Holders...)
	for i := range shown.Holders {
		shown.Holders[i].Grant = u.shownGrant(shown.Holders[i].Grant)
	}
	shown.Waiters = append([]gatehouse.WaiterEntry(nil), report.Waiters...)
	for i := range shown.Waiters {
		shown.Waiters[i].Grant = u.shownGrant(shown.Waiters[i].Grant)
	}
	return &shown
}

// shownGrant is the id of a grant as the user calls it. Those of others stay as they are, which tells an
// operator whose they are.
func (u *User) shownGrant(id string) string { return strings.TrimPrefix(id, u.Name+ownerMark) }

// Hide returns a text of the gate's without the user's prefix in names and without its own name in keys.
func (u *User) Hide(text string) string {
	if u == nil {
		return text
	}
	if u.prefix != "" {
		text = strings.ReplaceAll(text, "/"+u.prefix, "/")
		text = strings.ReplaceAll(text, `"`+u.prefix, `"`)
	}
	text = strings.ReplaceAll(text, "grant/"+u.Name+ownerMark, "grant/")
	return strings.ReplaceAll(text, `"`+u.Name+ownerMark, `"`)
}

// HideError returns an error whose text Hide has been through, and whose code is the same.
func (u *User) HideError(err error) error {
	if u == nil || err == nil {
		return err
	}
	text := err.Error()
	shown := u.Hide(text)
	if shown == text {
		return err
	}
	return gatehouse.Errorf(gatehouse.CodeOf(err), "%s", shown)
}

// Prefix is what the names of the user lie beneath, which the user does not see; "" for none.
func (u *User) Prefix() string {
	if u == nil {
		return ""
	}
	return u.prefix
}

// Inside returns the name that the gate knows for a name of the user, or for what names begin with.
func (u *User) Inside(name string) string { return u.Prefix() + name }

// Outside returns the name that the user knows for one of the gate's; ok is false if it is none of the
// user's.
func (u *User) Outside(name string) (shown string, ok bool) {
	return strings.CutPrefix(name, u.Prefix())
}

// EnterGrant is Enter for a command about several names.
func (u *User) EnterGrant(cmd *gatehouse.GrantCommand, now time.Time) error {
	if u == nil {
		return nil
	}
	if err := u.TakeRate(now); err != nil {
		return err
	}
	// Every name is judged before any is counted.
	for i := range cmd.Want {
		m := &cmd.Want[i]
		one := memberCommand(cmd, m)
		if err := u.check(m.Key, &one); err != nil {
			return err
		}
		m.KeepLimit = one.KeepLimit
		if err := u.translate(&m.Key, &gatehouse.Command{}); err != nil {
			return err
		}
	}
	for i := range cmd.Costs {
		key := &cmd.Costs[i].Key
		if err := u.Require(key.Kind, key.Name, gatehouse.LevelUse, cmd.Op.String()); err != nil {
			return err
		}
		if err := u.translate(key, &gatehouse.Command{}); err != nil {
			return err
		}
	}
	if cmd.ID != "" {
		if most := gatehouse.MaxGrantID - len(u.Name) - len(ownerMark); len(cmd.ID) > most {
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"grant: id has %d bytes, want 1 to %d for this user",
				len(cmd.ID), most)
		}
		cmd.ID = u.Name + ownerMark + cmd.ID
	}
	for i := range cmd.Want {
		one := memberCommand(cmd, &cmd.Want[i])
		if err := u.begin(cmd.Want[i].Key, &one, now); err != nil {
			return err
		}
	}
	return nil
}

// memberCommand is the command that one name of a grant is judged as.
func memberCommand(cmd *gatehouse.GrantCommand, m *gatehouse.Member) gatehouse.Command {
	return gatehouse.Command{
		Op: cmd.Op, Rule: m.Rule, Cost: m.Cost, Expires: cmd.Expires, MaxWait: cmd.MaxWait, Holder: cmd.ID,
	}
}

// LeaveGrant is Leave for a command about several names.
func (u *User) LeaveGrant(cmd *gatehouse.GrantCommand, d *gatehouse.GrantDecision, now time.Time) {
	if u == nil {
		return
	}
	if u.most.Names > 0 || u.most.Holders > 0 {
		u.settleGrant(cmd, d, now)
	}
	if d == nil {
		return
	}
	d.ID = u.shownGrant(d.ID)
	d.Message = u.Hide(d.Message)
	for i := range d.Want {
		m := &d.Want[i]
		m.Key.Name, _ = u.Outside(m.Key.Name)
		m.Message = u.Hide(m.Message)
	}
}

// settleGrant notes how long what a grant began counts.
func (u *User) settleGrant(cmd *gatehouse.GrantCommand, d *gatehouse.GrantDecision, now time.Time) {
	if d == nil {
		d = &gatehouse.GrantDecision{Outcome: gatehouse.Refused}
	}
	for i := range d.Want {
		m := &d.Want[i]
		one := gatehouse.Command{Op: cmd.Op, Holder: cmd.ID}
		each := gatehouse.Decision{
			Outcome: d.Outcome, ExpiresAfter: d.ExpiresAfter, ResetAfter: m.ResetAfter,
		}
		u.settle(m.Key, &one, &each, now.UnixNano())
	}
	// Without decisions about its names, an acquire has taken nothing.
	if len(d.Want) == 0 && cmd.Op == gatehouse.OpAcquire {
		for i := range cmd.Want {
			one := gatehouse.Command{Op: cmd.Op, Holder: cmd.ID}
			u.settle(cmd.Want[i].Key, &one, nil, now.UnixNano())
		}
	}
}

// checkSize refuses a limit beyond what a rule lets its user begin.
func (r *rule) checkSize(key gatehouse.Key, stated *gatehouse.Rule) error {
	if r.size == 0 && r.limits.Len() == 0 || stated.Size == gatehouse.InForce && stated.Limits.Len() == 0 {
		return nil
	}
	if !key.Kind.Limiter() && key.Kind != gatehouse.Semaphore && key.Kind != gatehouse.Barrier {
		return nil
	}
	limits := stated.Limits
	if limits.Len() == 0 {
		size := stated.Size
		if key.Kind == gatehouse.GCRA && stated.Calendar == gatehouse.NoCalendar {
			size = max(size, stated.Burst+1)
		}
		if r.size > 0 && size > r.size {
			return tooLarge(key, size, r.size)
		}
		if r.limits.Len() == 0 || !key.Kind.Limiter() {
			return nil
		}
		one := gatehouse.Limit{Size: size, Interval: stated.Interval, Calendar: stated.Calendar}
		return r.checkLimits(key, []gatehouse.Limit{one})
	}
	all := make([]gatehouse.Limit, 0, gatehouse.MaxLimits)
	for i := range limits.Len() {
		// The tightest of several limits is what counts, so one within the size is enough for that.
		all = append(all, limits.At(i))
	}
	for _, limit := range all {
		if r.size > 0 && limit.Size > r.size {
			return tooLarge(key, limit.Size, r.size)
		}
	}
	return r.checkLimits(key, all)
}

func tooLarge(key gatehouse.Key, size, most int64) error {
	return gatehouse.Errorf(gatehouse.CodeForbidden, "%s: size is %d, want at most %d for this user", key,
		size,
		most)
}

// checkLimits refuses limits that do not keep those of the rule: for each of the rule's there must be one
// that lets no more through in no less time.
func (r *rule) checkLimits(key gatehouse.Key, stated []gatehouse.Limit) error {
	for i := range r.limits.Len() {
		most := r.limits.At(i)
		kept := false
		for _, limit := range stated {
			kept = kept || limit.Size <= most.Size && windowAtLeast(limit, most)
		}
		if !kept {
			return gatehouse.Errorf(gatehouse.CodeForbidden, "%s: no limit of it is within %s, want one for "+
				"this user", key, most)
		}
	}
	return nil
}

// windowAtLeast reports whether one limit's window is never shorter than another's.
func windowAtLeast(limit, most gatehouse.Limit) bool {
	if most.Calendar != gatehouse.NoCalendar {
		return limit.Calendar >= most.Calendar
	}
	if limit.Calendar == gatehouse.NoCalendar {
		return limit.Interval >= most.Interval
	}
	return shortest[limit.Calendar] >= most.Interval
}

// shortest are the shortest windows of the calendar: clocks are put forward, and months differ.
var shortest = [...]time.Duration{
	gatehouse.Day: 23 * time.Hour, gatehouse.Week: (7*24 - 1) * time.Hour,
	gatehouse.Month: (28*24 - 1) * time.Hour,
}

// describe says which line of the file a rule is.
func (r *rule) describe(path string) string {
	return path + ":" + strconv.Itoa(r.line) + ": on " + r.on.Text + " do " + r.level.String()
}

// ServerKey names a part of the server, for what is no name of a controller.
func ServerKey(part string) gatehouse.Key { return gatehouse.Key{Kind: glob.Server, Name: part} }
