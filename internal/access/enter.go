package access

import (
	"net/netip"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/glob"
)

// ownerMark stands between the name of a user and the key, or the id of a grant, that the user chose. No name
// of a user has one, so that no key of one user is that of another.
const ownerMark = "~"

// A Pass is a command of a user on its way through the gate. The zero Pass is one without a user, which
// changes and counts nothing.
type Pass struct {
	// Address is where it comes from, for the log of what is managed.
	Address netip.Addr

	user  *User
	fresh bool // it began a hold, if it is granted
}

// User returns who the command is from, nil if rights are off.
func (e *Pass) User() *User { return e.user }

// Enter judges a command of the user, counts it, and turns its key and its holder into those that the gate
// knows: the name lies beneath the user's prefix, and a holder belongs to its user. An error says why the
// command is not put to the gate. What Enter has let in ends with [Pass.Leave]. A nil user changes nothing.
func (u *User) Enter(key *gatehouse.Key, cmd *gatehouse.Command) (Pass, error) {
	if u == nil {
		return Pass{}, nil
	}
	asked := *key
	pass, err := u.enter(key, cmd)
	if err != nil {
		return pass, u.countRefused(asked, err)
	}
	return pass, nil
}

// enter is Enter for a user that is not nil.
func (u *User) enter(key *gatehouse.Key, cmd *gatehouse.Command) (Pass, error) {
	if err := u.takeRate(); err != nil {
		return Pass{}, err
	}
	if err := u.check(*key, cmd); err != nil {
		return Pass{}, err
	}
	if err := u.translate(key, cmd); err != nil {
		return Pass{}, err
	}
	cmd.Origin = u.originOf(cmd.Origin)
	fresh, err := u.begin(*key, cmd)
	return Pass{user: u, fresh: fresh}, err
}

// originOf is the origin of a request of the user.
func (u *User) originOf(request *gatehouse.Origin) *gatehouse.Origin {
	if request == nil {
		return &u.origin
	}
	origin := *request
	origin.User = u.Name
	return &origin
}

// check judges a command.
func (u *User) check(key gatehouse.Key, cmd *gatehouse.Command) error {
	r := u.find(key.Kind, key.Name)
	level := r.levelOf(key.Kind, cmd.Op)
	if r == nil || r.level < level {
		return u.refusal(cmd.Op.String()+" of "+key.String(), level)
	}
	// Only these put a limit in force. A question under another limit changes nothing.
	if level != gatehouse.LevelUse {
		return nil
	}
	cmd.TellResize = r.also[extraResize] || r.level >= gatehouse.LevelManage
	cmd.KeepLimit = !cmd.TellResize
	if r.level >= gatehouse.LevelManage {
		return nil
	}
	switch {
	case cmd.Op == gatehouse.OpCancel || cmd.Op == gatehouse.OpRefund: // which have no limit
		return nil
	case key.Kind.Limiter() && !cmd.HasLimit():
		// Whether the name is new, and begins with the default, the gate alone knows.
		begun := gatehouse.Rule{Size: gatehouse.DefaultSize, Interval: gatehouse.DefaultInterval}
		cmd.NeedLimit = r.checkSize(key, &begun) != nil
		return nil
	}
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
func (u *User) begin(key gatehouse.Key, cmd *gatehouse.Command) (fresh bool, err error) {
	if u.most.Names == 0 && u.most.Holders == 0 || !mayBegin(key.Kind, cmd.Op) {
		return false, nil
	}
	at := u.now()
	if u.most.Names > 0 {
		if err := u.beginName(key, at); err != nil {
			return false, err
		}
	}
	if u.most.Holders > 0 && cmd.Op == gatehouse.OpAcquire && holds(key.Kind) {
		return u.beginHold(key, cmd.Holder, at)
	}
	return false, nil
}

// Leave notes what became of a command that Enter has let in, and makes its decision, or the error in its
// place, one that the user may see. key and cmd are those that the gate knows.
func (e *Pass) Leave(
	key gatehouse.Key, cmd *gatehouse.Command, d *gatehouse.Decision, err error,
) (shown error) {
	u := e.user
	if u == nil {
		return err
	}
	if err != nil {
		d = nil
	}
	if u.most.Names > 0 || u.most.Holders > 0 {
		u.settle(key, cmd, d)
	}
	if d == nil {
		return u.HideError(err)
	}
	switch granted := d.Outcome == gatehouse.Granted; {
	case d.Resized:
		u.Audit("resize", key.String(), e.Address)
	case granted && key.Kind.Level(cmd.Op) == gatehouse.LevelManage && cmd.Op != gatehouse.OpFeedback:
		u.Audit(cmd.Op.String(), key.String(), e.Address)
	}
	if d.Message != "" && cmd.Op != gatehouse.OpWait {
		d.Message = u.Hide(d.Message)
	}
	if d.Report != nil {
		d.Report = u.hideReport(d.Report)
	}
	return nil
}

// TakeBack notes that what a command was granted is taken back, as its client is gone. It may come after
// Leave.
func (e *Pass) TakeBack(key gatehouse.Key, cmd *gatehouse.Command) {
	if e.user != nil && e.fresh {
		e.user.endHold(key, cmd.Holder)
	}
}

// hideReport returns a report in which grants are called as their users call them.
func (u *User) hideReport(report *gatehouse.Report) *gatehouse.Report {
	shown := *report
	shown.Holders = append([]gatehouse.HolderEntry(nil), report.Holders...)
	for i := range shown.Holders {
		shown.Holders[i].Grant = u.ShownGrant(shown.Holders[i].Grant)
	}
	shown.Waiters = append([]gatehouse.WaiterEntry(nil), report.Waiters...)
	for i := range shown.Waiters {
		shown.Waiters[i].Grant = u.ShownGrant(shown.Waiters[i].Grant)
	}
	return &shown
}

// ShownGrant is the id of a grant as the user calls it. Those of others stay as they are, which tells an
// operator whose they are.
func (u *User) ShownGrant(id string) string {
	if u == nil {
		return id
	}
	return strings.TrimPrefix(id, u.Name+ownerMark)
}

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
func (u *User) EnterGrant(cmd *gatehouse.GrantCommand) (Pass, error) {
	if u == nil {
		return Pass{}, nil
	}
	if err := u.takeRate(); err != nil {
		return Pass{}, u.countRefused(gatehouse.Key{Kind: gatehouse.Grant}, err)
	}
	// Every name is judged before any is counted.
	for i := range cmd.Want {
		m := &cmd.Want[i]
		one := memberCommand(cmd, m)
		if err := u.check(m.Key, &one); err != nil {
			return Pass{}, u.countRefused(m.Key, err)
		}
		m.KeepLimit, m.NeedLimit, m.TellResize = one.KeepLimit, one.NeedLimit, one.TellResize
		if err := u.translate(&m.Key, &gatehouse.Command{}); err != nil {
			return Pass{}, err
		}
	}
	for i := range cmd.Costs {
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
	entry := Pass{user: u}
	for i := range cmd.Want {
		one := memberCommand(cmd, &cmd.Want[i])
		fresh, err := u.begin(cmd.Want[i].Key, &one)
		if err != nil {
			// Nothing is taken, so that what was counted before is not either.
			entry.leaveGrant(cmd, nil)
			asked := cmd.Want[i].Key
			asked.Name, _ = u.Outside(asked.Name)
			return Pass{}, u.countRefused(asked, err)
		}
		entry.fresh = entry.fresh || fresh
	}
	return entry, nil
}

// JudgeGrant returns what judges the names of a grant that is there before a command on it takes effect; nil
// if they need not be judged. To give back is always allowed, and costs were judged by EnterGrant.
func (e *Pass) JudgeGrant(op gatehouse.Op) func([]gatehouse.Member) error {
	u := e.user
	if u == nil || op != gatehouse.OpRenew && op != gatehouse.OpPeek {
		return nil
	}
	return func(want []gatehouse.Member) error {
		for i := range want {
			kind, level := want[i].Key.Kind, want[i].Key.Kind.Level(gatehouse.OpAcquire)
			if op == gatehouse.OpPeek {
				level = gatehouse.LevelRead
			}
			// A name outside was taken when the user had another prefix.
			name, mine := u.Outside(want[i].Key.Name)
			if !mine || !u.May(kind, name, level) {
				return u.countRefused(gatehouse.Key{Kind: kind, Name: name},
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
	e.leaveGrant(cmd, d)
	for i := range d.Want {
		if d.Want[i].Resized {
			u.Audit("resize", d.Want[i].Key.String(), e.Address)
		}
	}
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
	if u.most.Names == 0 && u.most.Holders == 0 {
		return
	}
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
		u.settle(m.Key, &one, &gatehouse.Decision{
			Outcome: gatehouse.Granted, ExpiresAfter: d.ExpiresAfter, ResetAfter: m.ResetAfter,
			Fence: d.Fence,
		})
	}
}

// TakeBackGrant is TakeBack for a command about several names.
func (e *Pass) TakeBackGrant(cmd *gatehouse.GrantCommand) {
	if e.user == nil || !e.fresh {
		return
	}
	for i := range cmd.Want {
		e.user.endHold(cmd.Want[i].Key, cmd.ID)
	}
}

// describe says which line of the file a rule is.
func (r *rule) describe(path string) string {
	return path + ":" + strconv.Itoa(r.line) + ": on " + r.on.Text + " do " + r.level.String()
}

// ServerKey names a part of the server, for what is no name of a controller.
func ServerKey(part string) gatehouse.Key { return gatehouse.Key{Kind: glob.Server, Name: part} }
