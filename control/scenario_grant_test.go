package control

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// A grantActor is a grant in a scenario, of which the controller is one part.
type grantActor struct {
	cmd     gatehouse.GrantCommand
	turn    GrantTurn
	expires gatehouse.Command // with which it was acquired
	fence   uint64
	counted int64
}

// setGrant reads a field of a command that is a part of a grant.
func (a *actor) setGrant(field, value string) (err error) {
	if a.grant == nil {
		a.grant = &grantActor{cmd: gatehouse.GrantCommand{Op: a.cmd.Op, ID: a.name}}
	}
	known := true
	switch field {
	case "clip":
		a.grant.turn.Clip = true
	case "overrun":
		a.grant.turn.Overrun, known = gatehouse.ParseOverrun(value)
	case "onexpiry":
		a.grant.turn.OnExpiry, known = gatehouse.ParseOnExpiry(value)
	case "want":
		a.grant.cmd.Want, err = parseWant(value)
	}
	if !known {
		err = fmt.Errorf("no such %s", field)
	}
	return err
}

// parseWant reads members such as "gcra/a:5+lock/b:1".
func parseWant(text string) (want []gatehouse.Member, err error) {
	for part := range strings.SplitSeq(text, "+") {
		name, cost, _ := strings.Cut(part, ":")
		kindName, name, _ := strings.Cut(name, "/")
		kind, ok := gatehouse.ParseKind(kindName)
		n, err := strconv.ParseInt(cost, 10, 62)
		if !ok || err != nil || n < 1 {
			return nil, fmt.Errorf("%q is no member such as gcra/a:5", part)
		}
		want = append(want, gatehouse.Member{
			Key: gatehouse.Key{Kind: kind, Name: name}, Cost: n,
			Rule: gatehouse.Rule{Size: 10, Interval: gatehouse.DefaultInterval},
		})
	}
	return want, nil
}

// isFollowing reports whether a command is about a grant that the scenario has seen.
func (s *scenario) isFollowing(a *actor) bool {
	if s.grants[a.name] == nil {
		return false
	}
	switch a.cmd.Op {
	case gatehouse.OpTopUp, gatehouse.OpSettle, gatehouse.OpRenew, gatehouse.OpRelease:
		return true
	}
	return s.kind == gatehouse.Grant && a.cmd.Op == gatehouse.OpPeek
}

// serveGrant serves a part of a grant alone, and then those who wait.
func (s *scenario) serveGrant(a *actor) (got []event, fault string) {
	g := a.grant
	if g == nil {
		g = new(*s.grants[a.name])
		g.cmd.Op, a.cmd.Fence = a.cmd.Op, g.fence
		if a.cmd.Expires == gatehouse.AsAcquired {
			a.cmd.Expires = g.expires.Expires
		}
		switch {
		case a.cmd.Op == gatehouse.OpTopUp && s.kind != gatehouse.Grant:
			a.cmd.Op = gatehouse.OpAcquire
		case !a.figure && a.cmd.Op == gatehouse.OpRelease:
			a.cmd.Cost = NoFigure
		}
		g.turn.Clip = false
	}
	g.turn.ID, g.turn.Command, g.turn.Counted = a.name, &g.cmd, g.counted
	if s.kind == gatehouse.Grant {
		g.turn.Member = -1
	}
	a.turn.Command, a.turn.Grant = &a.cmd, &g.turn
	part := Part{Key: gatehouse.Key{Kind: s.kind, Name: "scenario"}, Turn: a.turn}
	parts := []JointPart{{Part: &part, State: s.state}}
	granted := ServeJoint(s.now, parts)
	s.state, a.turn = parts[0].State, part.Turn
	if granted {
		g.counted = a.turn.Decision.Value
		if g.cmd.Op == gatehouse.OpAcquire {
			g.fence, g.expires = a.turn.Decision.Fence, a.cmd
		}
		s.grants[a.name], s.granted[a.name] = g, a
	}
	got = []event{newEvent(a, s.origin)}
	if s.state == nil {
		return got, ""
	}
	return append(got, s.serve(nil)...), ""
}
