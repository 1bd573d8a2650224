package resp

import (
	"bytes"
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// Where the store takes time to answer, commands that follow one another in a pipeline are under way
// together, as long as each is for another key and none may wait in line. They are answered in their order
// all the same: what is decided sooner waits for its turn, and so does what is answered at once.

// maxOverlapping is how many of them there are at most on one connection. A batch for one key counts as one.
const maxOverlapping = 16

// mayOverlap reports whether a command can be looked at while others are under way.
func (s *session) mayOverlap(c *command, args [][]byte) bool {
	if c == nil || !c.keyed || !c.acceptsArity(args) || len(args) < 2 || c.mayWait(args) {
		return false
	}
	key, ok := s.keyOf(c, args[1])
	if !ok {
		return false
	}
	// Two commands for one key could be decided in the wrong order, so the second is read when the first
	// is answered.
	n := 1
	for w := s.waiting; w != nil; w = w.next {
		n++
		if w.alone || w.concerns(key) || n > maxOverlapping {
			return false
		}
	}
	return true
}

// mayWait reports whether a command may have to wait in line, for want of a MAXWAIT of 0.
func (c *command) mayWait(args [][]byte) bool {
	if !slices.Contains(c.flags, blocking) {
		return false
	}
	for i := 2; i+1 < len(args); i += 2 {
		if bytes.EqualFold(args[i], []byte("maxwait")) && string(args[i+1]) == "0" {
			return false
		}
	}
	return true
}

// keyOf is the controller that a command is about.
func (s *session) keyOf(c *command, place []byte) (key gatehouse.Key, ok bool) {
	if c.group == rateGroup {
		return gatehouse.Key{Kind: gatehouse.GCRA, Name: s.loop.names.internName(place)}, true
	}
	kind, name, ok := bytes.Cut(place, []byte{'/'})
	if !ok {
		return key, false
	}
	k, err := parseKind(kind)
	return gatehouse.Key{Kind: k, Name: s.loop.names.internName(name)}, err == nil
}

// queueReply has what was answered at once, from this byte on, said in its turn.
func (s *session) queueReply(from int) {
	out := s.loop.reply.out
	// Nothing was written: the command itself has been put off, or goes into a batch.
	if len(out) == from {
		return
	}
	// The answer exists, but those before it do not. It becomes a waiter that is decided from the start.
	a := &laterReply{text: bytes.Clone(out[from:])}
	a.session, a.later = s, a
	a.state.Store(decided)
	s.enqueueWaiter(&a.waiter)
	s.loop.reply.out = out[:from]
}
