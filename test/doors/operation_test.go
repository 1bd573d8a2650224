package doors

import (
	"fmt"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// An operation is one command, and how it is put in words on a wire.
type operation struct {
	key gatehouse.Key
	cmd gatehouse.Command
	// terse leaves out of the words what is the default anyway.
	terse bool
	// brief chooses the shorter of two forms, where a wire has two.
	brief bool
}

// String is the operation as a person would write it.
func (op *operation) String() string {
	text := fmt.Sprintf("%s %s", op.key, op.cmd.Op)
	for _, p := range op.words() {
		text += fmt.Sprintf(" %s=%s", p.name, p.value)
	}
	return text
}

// A parameter is one of the words of a command.
type parameter struct{ name, value string }

// A wording collects parameters.
type wording struct {
	terse bool
	words []parameter
}

// say adds a parameter, unless it is the default and those are left out.
func (w *wording) say(name string, value, absent any) {
	text := fmt.Sprint(value)
	if !w.terse || text != fmt.Sprint(absent) {
		w.words = append(w.words, parameter{name, text})
	}
}

// always adds a parameter that has no default, or another one than it is to have.
func (w *wording) always(name string, value any) {
	w.words = append(w.words, parameter{name, fmt.Sprint(value)})
}

// words are the parameters of the command: what a person would have to type.
func (op *operation) words() []parameter {
	w := wording{terse: op.terse}
	cmd, kind := &op.cmd, op.key.Kind
	if cmd.Op.Waits() {
		w.always("maxwait", 0)
	}
	if cmd.Holder != "" {
		w.always("key", cmd.Holder)
	}
	switch {
	case kind.Limiter():
		w.limiter(op)
	case cmd.Op == gatehouse.OpAcquire:
		w.holder(cmd)
	case cmd.Op == gatehouse.OpRenew && cmd.Expires != gatehouse.AsAcquired:
		w.always("expires", cmd.Expires.Milliseconds())
	case cmd.Op == gatehouse.OpKick:
		w.say("expires", cmd.Expires.Milliseconds(), gatehouse.DefaultExpires.Milliseconds())
	case cmd.Op == gatehouse.OpSend:
		w.say("message", cmd.Message, "")
	case cmd.Op == gatehouse.OpCount:
		w.say("amount", cmd.Amount, 1)
	case cmd.Op == gatehouse.OpReset:
		w.say("value", cmd.Amount, 0)
	case kind == gatehouse.Barrier && cmd.Op == gatehouse.OpWait:
		w.say("size", cmd.Size, gatehouse.DefaultBarrierSize)
	}
	return w.words
}

// holder adds what an acquire of a semaphore or a lock has.
func (w *wording) holder(cmd *gatehouse.Command) {
	w.say("cost", cmd.Cost, gatehouse.DefaultSize)
	if cmd.Size != gatehouse.InForce {
		w.always("size", cmd.Size)
	}
	switch {
	case !cmd.Extend:
		w.say("expires", cmd.Expires.Milliseconds(), gatehouse.DefaultExpires.Milliseconds())
	case cmd.Expires != gatehouse.AsAcquired:
		w.always("expires", cmd.Expires.Milliseconds())
	}
	if cmd.Extend {
		w.always("extend", true)
	}
}

// limiter adds what only limiters have.
func (w *wording) limiter(op *operation) {
	cmd := &op.cmd
	if cmd.Op.Yields() || cmd.Op == gatehouse.OpRefund || cmd.Op == gatehouse.OpCharge {
		w.say("cost", cmd.Cost, gatehouse.DefaultSize)
	}
	if !cmd.HasLimit() {
		return
	}
	switch {
	case cmd.Limits.Len() > 0:
		w.always("limits", cmd.Limits.String())
	case cmd.Calendar != gatehouse.NoCalendar:
		w.say("size", cmd.Size, gatehouse.DefaultSize)
		w.always("interval", cmd.Calendar)
	default: // without any of these it would be about the limit in force
		w.always("size", cmd.Size)
		w.say("interval", cmd.Interval.Milliseconds(), gatehouse.DefaultInterval.Milliseconds())
	}
	if op.key.Kind == gatehouse.GCRA && cmd.Limits.Len() == 0 {
		w.say("burst", cmd.Burst, max(0, cmd.Size-1))
	}
	if modes := op.key.Kind.Modes(); modes != nil {
		mode := cmd.Mode.String()
		if cmd.Mode == gatehouse.ModeDefault {
			mode = modes[0]
		}
		w.say("mode", mode, modes[0])
	}
	if op.key.Kind == gatehouse.Pace {
		w.say("guard", cmd.Guard.Milliseconds(), 0)
	}
	w.say("zone", cmd.Zone, "")
}

// holds reports whether the operation is answered with the key of a hold.
func (op *operation) holds() bool {
	return op.cmd.Op == gatehouse.OpAcquire && params.HasHolders(op.key.Kind)
}
