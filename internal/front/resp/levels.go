package resp

import (
	"bytes"

	"github.com/gatehousehq/gatehouse"
)

// This file has commands for a limiter with PARENTS. Such a one is a grant over these names that leaves no
// record, and its answer is that of one name: of the level that decided.

// submitLevels puts a command with parents to the gate. The call of the loop is given back.
func (s *session) submitLevels(c *nativeCall, parents []gatehouse.Member) {
	g := s.newJointCall()
	g.level = newNativeCall()
	g.level.Key, g.level.Command, g.level.details, g.level.later = c.Key, c.Command, c.details, g.later
	g.Command, g.details = c.Command.WithParents(c.Key, parents...), c.details
	s.loop.recycleCall(c)
	s.submitGrant(g, g.Command.Check())
}

// answerLevels answers a command with parents that is decided.
func (s *session) answerLevels(g *jointCall) {
	c := g.level
	d := g.Decision.AsOne()
	c.Decision, c.Err = &d, g.Err
	s.answerDecision(c)
}

// decisiveKey returns the key of the name that decided about a call, which may be that of a parent.
func (c *nativeCall) decisiveKey() gatehouse.Key {
	if !c.hasLevels() {
		return c.shownKey()
	}
	d := &c.levels().Decision
	return d.Want[d.Decisive()].Key
}

// levels is the decision about the name of a call and its parents; nil without any. Such a call is no waiter
// itself.
func (c *nativeCall) levels() *jointCall {
	if c.later == nil {
		return nil
	}
	return c.later.grant
}

// hasLevels reports whether the answer to a call tells about each level.
func (c *nativeCall) hasLevels() bool {
	return c.levels() != nil && c.levels().Decision.Decisive() >= 0
}

// givesParents reports whether a command has parents, so that it is about several names.
func givesParents(args [][]byte) bool {
	for i := 2; i+1 < len(args); i += 2 {
		if bytes.EqualFold(args[i], []byte("parents")) && len(args[i+1]) > 0 {
			return true
		}
	}
	return false
}
