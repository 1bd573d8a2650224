package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A house is some controllers by their names, as a store keeps them.
type house struct {
	states map[gatehouse.Key]State
	now    time.Time
	parts  GrantParts
	room   *Room
	fences map[gatehouse.Key]uint64 // the least of each name, as a store may tell it
}

func newHouse() *house { return &house{states: map[gatehouse.Key]State{}, now: epoch()} }

// serve serves the parts as one change.
func (h *house) serve() (granted bool) {
	parts := make([]JointPart, len(h.parts.Parts))
	for i := range parts {
		p := &h.parts.Parts[i]
		p.Turn.MinFence = h.fences[p.Key]
		parts[i] = JointPart{Part: p, State: h.states[p.Key], Room: h.room}
	}
	granted = ServeJoint(h.now, parts)
	for i := range parts {
		h.states[parts[i].Key] = parts[i].State
		if parts[i].State == nil {
			delete(h.states, parts[i].Key)
		}
	}
	return granted
}

// do carries out a command about a grant as a gate would.
func (h *house) do(tb testing.TB, cmd gatehouse.GrantCommand) (d gatehouse.GrantDecision) {
	tb.Helper()
	d, err := h.try(cmd)
	if err != nil {
		tb.Fatalf("%s %s: %v", cmd.Op, cmd.ID, err)
	}
	return d
}

// try is do, but returns what could not be served.
func (h *house) try(cmd gatehouse.GrantCommand) (d gatehouse.GrantDecision, err error) {
	err = cmd.Check()
	if err != nil {
		return d, err
	}
	if cmd.Op == gatehouse.OpAcquire {
		h.parts.Acquire(&cmd)
		granted := h.serve()
		err = h.parts.Decide(granted, &d)
		return d, err
	}
	h.parts.Peek(&cmd)
	granted := h.serve()
	record := h.parts.Parts[0].Turn.Decision.Grant
	if record != nil {
		err = h.parts.Follow(&cmd, record)
		if err != nil {
			return d, err
		}
		granted = h.serve()
	}
	err = h.parts.Decide(granted, &d)
	return d, err
}

// alone applies a command to one name.
func (h *house) alone(key gatehouse.Key, cmd gatehouse.Command) gatehouse.Decision {
	queue := []Turn{{Command: &cmd}}
	h.states[key] = Serve(h.now, key.Kind, h.states[key], queue)
	return queue[0].Decision
}

// held is how many slots of a semaphore or a lock are held.
func (h *house) held(key gatehouse.Key) int64 {
	s, ok := h.states[key].(*Semaphore)
	if !ok {
		return 0
	}
	Expire(h.now, s)
	return s.heldCost
}

// left is what is left of a limiter.
func (h *house) left(key gatehouse.Key) int64 {
	return h.alone(key, gatehouse.Command{Op: gatehouse.OpPeek}).Remaining
}

// Names of a few controllers, and what a grant wants of them.
func keyOf(kind gatehouse.Kind, name string) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: name}
}

func ofLimit(kind gatehouse.Kind, name string, size, cost int64) gatehouse.Member {
	return gatehouse.Member{Key: keyOf(kind, name), Cost: cost, Rule: gatehouse.Rule{
		Size: size, Burst: size - 1, Interval: time.Minute,
	}}
}

func ofSlots(name string, size, cost int64) gatehouse.Member {
	return gatehouse.Member{
		Key: keyOf(gatehouse.Semaphore, name), Cost: cost, Rule: gatehouse.Rule{Size: size},
	}
}

func ofLock(name string) gatehouse.Member {
	return gatehouse.Member{Key: keyOf(gatehouse.Lock, name), Cost: 1}
}

func acquireOf(id string, want ...gatehouse.Member) gatehouse.GrantCommand {
	cmd := gatehouse.GrantCommand{Op: gatehouse.OpAcquire, ID: id, Want: want}
	if id != "" {
		cmd.Expires = time.Minute
	}
	return cmd
}
