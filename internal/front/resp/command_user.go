package resp

import (
	"cmp"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A commandUser is what a command keeps of its user. A command has none if rights are off.
type commandUser struct {
	pass   access.Pass
	login  *access.Login
	key    gatehouse.Key // as the user calls it
	holder string        // the holder, as the user calls it
	wait   *access.Wait  // nil unless it waits in line

	mu       sync.Mutex
	answered bool
	denied   error // why its wait was ended
}

// enterCall judges a command. It reports false if it was refused and answered.
func (s *session) enterCall(c *nativeCall) bool {
	if s.account() == nil {
		return true
	}
	u := &commandUser{login: s.account().login, key: c.Key, holder: c.Command.Holder}
	// Enter changes name and holder into those of the gate, so both were kept as the client calls them.
	var err error
	u.pass, err = s.user().Enter(&c.Key, &c.Command)
	u.pass.Address, u.pass.Protocol = s.client.Addr(), telemetry.RESP
	if err != nil {
		s.countAnswer(u.key, c.Command.Op, nil, err)
		s.answerRefused(err)
		return false
	}
	c.room.user = u
	return true
}

// enterGrant is enterCall for a command about several names.
func (s *session) enterGrant(j *jointCall) bool {
	if s.account() == nil {
		return true
	}
	u := &commandUser{login: s.account().login, key: j.key()}
	var err error
	u.pass, err = s.user().EnterGrant(&j.Command)
	u.pass.Address, u.pass.Protocol = s.client.Addr(), telemetry.RESP
	if err != nil {
		s.countAnswer(u.key, j.Command.Op, nil, err)
		s.answerRefused(err)
		return false
	}
	j.user = u
	// The names of a grant that is there are known once its record is read.
	j.Judge = u.pass.JudgeGrant(j.Command.Op)
	return true
}

// beginCallWait counts a command that waits in line.
func (s *session) beginCallWait(c *nativeCall) {
	if u := c.user(); u != nil {
		wait := u.pass.User().NewWait(u.login, u.key, c.Command.Op)
		s.beginWait(u, wait, func() { s.server.config.Gate.Cancel(&c.Request) })
	}
}

// beginGrantWait is beginCallWait for a command about several names.
func (s *session) beginGrantWait(j *jointCall) {
	if u := j.user; u != nil {
		s.beginWait(u, u.pass.User().NewGrantWait(u.login, &j.Command), j.cancel)
	}
}

// beginWait counts a command that waits in line. If its user has too many, it is canceled.
func (s *session) beginWait(u *commandUser, wait access.Wait, cancel func()) {
	deny := func(err error) {
		u.mu.Lock()
		defer u.mu.Unlock()
		if u.answered {
			return
		}
		u.denied = err
		s.server.config.Users.CountFailure(telemetry.RESP, err, s.client.Addr(), u.pass.User())
		// Before it is answered: the gate must find what it takes back as it decided it.
		cancel()
	}
	var err error
	u.wait, err = s.server.config.Users.BeginWait(wait, deny)
	if err != nil {
		deny(err)
	}
}

// leaveCall makes what was decided something that the user may see.
func (c *nativeCall) leaveCall() {
	u := c.user()
	if u == nil {
		return
	}
	// What was decided before the wait was ended is taken back.
	c.Err = u.pass.Leave(c.Key, &c.Command, c.Decision, cmp.Or(u.end(), c.Err))
}

// leaveGrant is leaveCall for a command about several names.
func (g *jointCall) leaveGrant() {
	u := g.user
	if u == nil {
		return
	}
	g.Err = u.pass.LeaveGrant(&g.Command, &g.Decision, cmp.Or(u.end(), g.Err))
}

// end ends the wait of a command that is answered now, and returns why it was ended before, if it was.
func (u *commandUser) end() (denied error) {
	u.wait.End()
	u.wait = nil
	u.mu.Lock()
	defer u.mu.Unlock()
	u.answered = true
	return u.denied
}

// endUser ends the wait of a command whose client is gone, or whose grant is taken back.
func (w *waiter) endUser() {
	if w.call != nil && w.call.user() != nil {
		_ = w.call.user().end()
		w.call.user().pass.TakeBack(w.call.Key, &w.call.Command)
	}
	if j := w.jointCall(); j != nil && j.user != nil {
		_ = j.user.end()
		j.user.pass.TakeBackGrant(&j.Command)
	}
}

// A callRoom is room for a decision that is made at once, and for the user.
type callRoom struct {
	gatehouse.Decision
	user *commandUser // nil if rights are off
}

// user is what the call keeps of its user, nil if rights are off.
func (c *nativeCall) user() *commandUser {
	if c.room == nil {
		return nil
	}
	return c.room.user
}

// giveRoom drops the room of a call that waits, which keeps no more than it needs.
func (c *nativeCall) giveRoom() {
	if u := c.user(); u != nil {
		c.room = &callRoom{user: u}
		return
	}
	c.room = nil
}

// shownKey is the name of a call as its client calls it.
func (c *nativeCall) shownKey() gatehouse.Key {
	if c.user() != nil {
		return c.user().key
	}
	return c.Key
}
