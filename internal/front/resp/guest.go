package resp

import (
	"cmp"
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A guest is what a command keeps of its user. A command without one is nobody's: rights are off.
type guest struct {
	entry access.Pass
	login *access.Login
	key   gatehouse.Key // as the user calls it
	hold  string        // the holder, as the user calls it
	wait  *access.Wait  // nil unless it waits in line

	mu       sync.Mutex
	answered bool
	denied   error // why its wait was ended
}

// enterCall judges a command. It reports false if it was refused and answered.
func (s *session) enterCall(c *nativeCall) bool {
	if s.account() == nil {
		return true
	}
	g := &guest{login: s.account().login, key: c.Key, hold: c.Command.Holder}
	var err error
	g.entry, err = s.user().Enter(&c.Key, &c.Command)
	g.entry.Address = s.client.Addr()
	if err != nil {
		s.countAnswer(g.key, c.Command.Op, nil, err)
		s.answerRefused(err)
		return false
	}
	c.room.guest = g
	return true
}

// enterGrant is enterCall for a command about several names.
func (s *session) enterGrant(j *jointCall) bool {
	if s.account() == nil {
		return true
	}
	g := &guest{login: s.account().login, key: j.key()}
	var err error
	g.entry, err = s.user().EnterGrant(&j.Command)
	g.entry.Address = s.client.Addr()
	if err != nil {
		s.countAnswer(g.key, j.Command.Op, nil, err)
		s.answerRefused(err)
		return false
	}
	j.guest = g
	j.Judge = g.entry.JudgeGrant(j.Command.Op)
	return true
}

// beginCallWait counts a command that waits in line.
func (s *session) beginCallWait(c *nativeCall) {
	if g := c.guest(); g != nil {
		wait := g.entry.User().NewWait(g.login, g.key, c.Command.Op)
		s.beginWait(g, wait, func() { s.server.config.Gate.Cancel(&c.Request) })
	}
}

// beginGrantWait is beginCallWait for a command about several names.
func (s *session) beginGrantWait(j *jointCall) {
	if g := j.guest; g != nil {
		s.beginWait(g, g.entry.User().NewGrantWait(g.login, &j.Command), j.cancel)
	}
}

// beginWait counts a command that waits in line. If its user has too many, it is canceled.
func (s *session) beginWait(g *guest, wait access.Wait, cancel func()) {
	deny := func(err error) {
		g.mu.Lock()
		late := g.answered
		if !late {
			g.denied = err
		}
		g.mu.Unlock()
		if !late {
			s.server.config.Users.CountFailure(telemetry.RESP, err, s.client.Addr(), g.entry.User())
			cancel()
		}
	}
	var err error
	g.wait, err = s.server.config.Users.BeginWait(wait, deny)
	if err != nil {
		deny(err)
	}
}

// leaveCall makes what was decided something that the user may see.
func (c *nativeCall) leaveCall() {
	g := c.guest()
	if g == nil {
		return
	}
	// What was decided before the wait was ended is taken back.
	c.Err = g.entry.Leave(c.Key, &c.Command, c.Decision, cmp.Or(g.end(), c.Err))
}

// leaveGrant is leaveCall for a command about several names.
func (g *jointCall) leaveGrant() {
	of := g.guest
	if of == nil {
		return
	}
	g.Err = of.entry.LeaveGrant(&g.Command, &g.Decision, cmp.Or(of.end(), g.Err))
}

// end ends the wait of a command that is answered now, and returns why it was ended before, if it was.
func (g *guest) end() (denied error) {
	g.wait.End()
	g.wait = nil
	g.mu.Lock()
	defer g.mu.Unlock()
	g.answered = true
	return g.denied
}

// endGuest ends the wait of a command whose client is gone, or whose grant is taken back.
func (w *waiter) endGuest() {
	if w.call != nil && w.call.guest() != nil {
		_ = w.call.guest().end()
		w.call.guest().entry.TakeBack(w.call.Key, &w.call.Command)
	}
	if j := w.jointCall(); j != nil && j.guest != nil {
		_ = j.guest.end()
		j.guest.entry.TakeBackGrant(&j.Command)
	}
}

// A callRoom is room for a decision that is made at once, and for the guest.
type callRoom struct {
	gatehouse.Decision
	guest *guest // nil if rights are off
}

// guest is what the call keeps of its user, nil if rights are off.
func (c *nativeCall) guest() *guest {
	if c.room == nil {
		return nil
	}
	return c.room.guest
}

// giveRoom drops the room of a call that waits, which keeps no more than it needs.
func (c *nativeCall) giveRoom() {
	if g := c.guest(); g != nil {
		c.room = &callRoom{guest: g}
		return
	}
	c.room = nil
}

// shownKey is the name of a call as its client calls it.
func (c *nativeCall) shownKey() gatehouse.Key {
	if c.guest() != nil {
		return c.guest().key
	}
	return c.Key
}
