package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Turn is a command in a queue, and its decision once the queue was served.
type Turn struct {
	Command  *gatehouse.Command
	Decision gatehouse.Decision

	// Err is set by a store that could not serve this turn, though it served others of the queue. Then
	// there is no decision, and the command did nothing.
	Err error
}

// stays reports whether the command was refused but goes on waiting.
func (t *Turn) stays() bool {
	return t.Decision.Outcome == gatehouse.Refused && t.Command.Op.Waits() && t.Command.MaxWait != 0
}

// Serve applies a queue of commands, in order of arrival, to one controller at one instant, as one
// change, and writes every decision into its turn. s is nil when there is no such controller yet;
// what Serve returns is nil when there is none any more.
//
// This is the fairness rule. Nobody who may wait overtakes one who must: behind a refusal, commands
// that take something see in their Ahead that they must not. A command that needs no room, such as
// a release, is applied where it stands; if it changed anything, those refused before it are looked
// at again, in order. Parameters are applied once, at a command's first look.
//
// A queue that holds a delete must hold everybody who waits: they are told that the controller was
// deleted, and whoever comes after the delete starts anew.
func Serve(now time.Time, kind gatehouse.Kind, s State, queue []Turn) State {
	v := service{now: now, kind: kind}
	return v.serve(s, queue)
}

// A service is one queue being served.
type service struct {
	now     time.Time
	kind    gatehouse.Kind
	deleted State // what the queue has deleted, until another takes its place; nil when there is none

	room    *Room // nil when there is as much as may be wanted
	weight  int   // of the state before
	holders int   // that it had
}

func (v *service) serve(s State, queue []Turn) State {
	standing, ahead, changed := 0, int64(0), false
	for i := range queue {
		turn := &queue[i]
		if turn.Command.Op == gatehouse.OpDelete && changed {
			v.lookAgain(s, queue[:i]) // what came before the delete counts
		}
		s = v.take(turn, s, ahead)
		switch {
		case turn.Command.Op == gatehouse.OpDelete:
			tellDeleted(v.now, queue[:i])
			standing, ahead, changed = 0, 0, false
		case turn.stays():
			// Its parameters may have changed things for those in front.
			changed = changed || standing > 0 && !turn.Command.Again
			standing++
			ahead = min(ahead+turn.Command.Cost, gatehouse.MaxSize) // it never overflows
		default:
			changed = changed || standing > 0
		}
	}
	if changed {
		v.lookAgain(s, queue)
	}
	return s
}

// take applies a turn's command, which sees ahead more that it must not overtake.
func (v *service) take(t *Turn, s State, ahead int64) State {
	now, cmd := v.now, t.Command
	switch cmd.Op {
	case gatehouse.OpDelete, gatehouse.OpStats:
		if Absent(s) {
			t.Decision = unable(now, gatehouse.Missing, "")
			return s
		}
		if cmd.Op == gatehouse.OpDelete {
			t.Decision, v.deleted = grant(now), s
			return remains(now, v.kind, s)
		}
	case gatehouse.OpUndo:
		if s != nil {
			s.Undo(now, cmd)
		}
		t.Decision = grant(now)
		return s
	}
	if s == nil {
		s = New(v.kind)
	}
	v.follow(s)
	if ahead > 0 && cmd.Op.Yields() {
		behind := *cmd
		behind.Ahead += ahead
		cmd = &behind
	}
	v.step(t, s, cmd)
	return s
}

// step applies a turn's command, or one like it, if there is room for what it keeps.
func (v *service) step(t *Turn, s State, cmd *gatehouse.Command) {
	if err := v.fits(s, cmd); err != nil {
		t.Decision, t.Err = unable(v.now, gatehouse.Exhausted, ""), err
		return
	}
	t.Decision = s.Step(v.now, cmd)
}

// follow tells a new state what it must not repeat of one that was deleted at the same instant, as fencing
// tokens and numbers of reservations are made of the time.
func (v *service) follow(s State) {
	switch before := v.deleted.(type) {
	case *Semaphore:
		s.(*Semaphore).fence = before.fence
	case interface{ base() *limiter }:
		s.(interface{ base() *limiter }).base().follow(before.base())
	}
	v.deleted = nil
}

func tellDeleted(now time.Time, queue []Turn) {
	for i := range queue {
		if queue[i].stays() {
			queue[i].Decision = unable(now, gatehouse.Deleted, "was deleted while this request waited")
		}
	}
}

// lookAgain offers the state to all who stay, until none of them goes any more.
func (v *service) lookAgain(s State, queue []Turn) {
	for v.lookOnce(s, queue) {
	}
}

// lookOnce offers the state to all who stay, in order, and reports whether one of them has gone.
func (v *service) lookOnce(s State, queue []Turn) (changed bool) {
	ahead := int64(0)
	for i := range queue {
		turn := &queue[i]
		if !turn.stays() {
			continue
		}
		cmd := *turn.Command
		cmd.Again = true
		cmd.Ahead += ahead
		v.step(turn, s, &cmd)
		if turn.stays() {
			ahead = min(ahead+turn.Command.Cost, gatehouse.MaxSize)
		} else {
			changed = true
		}
	}
	return changed
}
