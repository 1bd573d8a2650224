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
	// Address is where it comes from, and Protocol what it came by, for the log and the metrics.
	Address  netip.Addr
	Protocol string

	user  *User
	left  bool   // it asks for nothing any more
	fence uint64 // of the hold, or the grant, that it was granted
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
	// Once enter has put the prefix before the name, the refusal still has to be counted by the user's.
	asked := *key
	pass, err := u.enter(key, cmd)
	if err != nil {
		return pass, u.CountRefused(asked, err)
	}
	return pass, nil
}

// enter is Enter for a user that is not nil.
func (u *User) enter(key *gatehouse.Key, cmd *gatehouse.Command) (Pass, error) {
	// Refused commands count to the rate as well, or a client could ask without end for what it may not have.
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
	// begin is last, as only Leave ends what it counts, and a command that is not let in has none.
	return Pass{user: u}, u.begin(*key, cmd)
}

// originOf is the origin of a request of the user.
func (u *User) originOf(request *gatehouse.Origin) *gatehouse.Origin {
	if request == nil {
		return &u.origin
	}
	// All requests of the user share u.origin, so the id and the trace of this one need a value of their
	// own.
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
	// Which limit is in force, the state alone knows: the controller answers Forbidden for another one.
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
		// The gate's bound is about the whole name. Its own error would show the prefix.
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
	// No name of a user has the mark, so that no user can spell the key of another.
	cmd.Holder = u.Name + ownerMark + cmd.Holder
	return nil
}

// begin counts the name and the hold that a command may begin.
func (u *User) begin(key gatehouse.Key, cmd *gatehouse.Command) error {
	// Nothing is kept of users without these quotas.
	if u.most.Names == 0 && u.most.Holders == 0 || !mayBegin(key.Kind, cmd.Op) {
		return nil
	}
	at := u.now()
	// The name is not taken back if the hold is one too many: it ends by itself after nameAtLeast.
	if u.most.Names > 0 {
		if err := u.beginName(key, at); err != nil {
			return err
		}
	}
	if u.asksHold(key.Kind, cmd.Op) {
		return u.askHold(holdKey{key, cmd.Holder}, at)
	}
	return nil
}

// asksHold reports whether an operation asks for a hold that counts.
func (u *User) asksHold(kind gatehouse.Kind, op gatehouse.Op) bool {
	return u.most.Holders > 0 && op == gatehouse.OpAcquire && holds(kind)
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
		// Nothing was decided then, whatever is in the decision.
		d = nil
	}
	if u.most.Names > 0 || u.most.Holders > 0 {
		e.leave(key, cmd, d)
	}
	if d == nil {
		return u.HideError(err)
	}
	switch granted := d.Outcome == gatehouse.Granted; {
	case d.Outcome == gatehouse.Forbidden:
		e.countForbidden(key)
	case d.Resized:
		u.Audit("resize", key.String(), e.Address)
	// Programs report feedback all the time, which would hide in the log what people have managed.
	case granted && key.Kind.Level(cmd.Op) == gatehouse.LevelManage && cmd.Op != gatehouse.OpFeedback:
		u.Audit(cmd.Op.String(), key.String(), e.Address)
	}
	// What a wait answers is text of the client that sent the event, and is passed on as it is.
	if d.Message != "" && cmd.Op != gatehouse.OpWait {
		d.Message = u.Hide(d.Message)
	}
	if d.Report != nil {
		d.Report = u.hideReport(d.Report)
	}
	return nil
}

// countForbidden counts a command that was refused where only the state tells that the user may not do it: by
// the limit in force at a name, as the gate knows it, or by the names of a grant.
func (e *Pass) countForbidden(key gatehouse.Key) {
	u := e.user
	// A user of no policy, as Unknown is, has nothing to count by.
	if u.users == nil {
		return
	}
	err := gatehouse.Errorf(gatehouse.CodeForbidden, "forbidden")
	u.users.CountFailure(e.Protocol, err, e.Address, u)
	key.Name, _ = u.Outside(key.Name)
	_ = u.CountRefused(key, err)
}

// leave counts what became of a command. d is nil if there is no decision.
func (e *Pass) leave(key gatehouse.Key, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if e.left { // what it was granted is taken back
		return
	}
	e.left = true
	e.user.settle(key, cmd, d)
	if d != nil && d.Outcome == gatehouse.Granted {
		e.fence = d.Fence
	}
	// Only after settle: what is not asked for any more, and not granted yet, is dropped.
	e.endAsking(key, cmd)
}

// endAsking ends the asking for a hold.
func (e *Pass) endAsking(key gatehouse.Key, cmd *gatehouse.Command) {
	if e.user.asksHold(key.Kind, cmd.Op) {
		e.user.usage.mu.Lock()
		defer e.user.usage.mu.Unlock()
		e.user.usage.holds.endAsking(holdKey{key, cmd.Holder})
	}
}

// TakeBack notes that what a command was granted is taken back, as its client is gone. It may come after
// Leave.
func (e *Pass) TakeBack(key gatehouse.Key, cmd *gatehouse.Command) {
	if e.user == nil || !e.user.asksHold(key.Kind, cmd.Op) {
		return
	}
	// Nothing was noted of its grant yet, so it is enough that it asks no more, and Leave is to note
	// nothing.
	if !e.left {
		e.left = true
		e.endAsking(key, cmd)
		return
	}
	e.user.usage.mu.Lock()
	defer e.user.usage.mu.Unlock()
	// By its fence: the hold may be that of a later request by now.
	if e.fence != 0 {
		e.user.usage.holds.takeBack(holdKey{key, cmd.Holder}, e.fence)
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
		// Texts of the gate have a name behind its kind and a slash, or in quotes.
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
	// It stays the same error, with the cause that it wraps.
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

// describe says which line of the file a rule is.
func (r *rule) describe(path string) string {
	return path + ":" + strconv.Itoa(r.line) + ": on " + r.on.Text + " do " + r.level.String()
}

// ServerKey names a part of the server, for what is no name of a controller.
func ServerKey(part string) gatehouse.Key { return gatehouse.Key{Kind: glob.Server, Name: part} }
