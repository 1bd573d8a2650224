package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An Event is sent once. Every waiting command and every later one gets it, until it is
// deleted or has been kept long enough. A store may still have it after that, with its statistics: then it is
// like one that was not sent, except for those who have waited since before.
type Event struct {
	commandCounts
	sent    bool
	message string
	until   time.Time // how long a sent event is kept, or when one that was not sent was used last
}

// Step implements [State].
func (e *Event) Step(now time.Time, turn *Turn) { turn.Decision = e.applyCommand(now, turn) }

func (e *Event) applyCommand(now time.Time, turn *Turn) gatehouse.Decision {
	e.noteFirstUse(now)
	// An unsent event is worth nothing, so its expiry is its last use.
	// A command that has waited since before the event expired still gets it, as it would have then.
	if !e.sent {
		e.until = now
	}
	switch turn.Op {
	case gatehouse.OpSend:
		if e.sent && now.Before(e.until) {
			return failedWith(now, gatehouse.Conflict, "was sent before; an event is sent once")
		}
		e.sent, e.message, e.until = true, turn.Message, now.Add(keepTime(turn.Command))
		return grantedAt(now)
	case gatehouse.OpWait:
		if !e.sent || !arrivalTime(now, turn).Before(e.until) {
			e.countRefused(turn)
			return refusedFor(now, gatehouse.Forever)
		}
		e.countPassed(now, turn)
		d := grantedAt(now)
		d.Message = e.message
		return d
	default:
		d, there := grantedAt(now), e.sent && now.Before(e.until)
		d.Stats = e.commandStats("waited", gatehouse.Stat{Name: "triggered", Value: boolToInt(there)})
		return d
	}
}

// boolToInt is 1 for what has happened and 0 for what has not.
func boolToInt(happened bool) int64 {
	if happened {
		return 1
	}
	return 0
}

// Undo implements [State]. There is nothing to give back.
func (e *Event) Undo(time.Time, *Turn) {}

// Expiry implements [State]. An event that was not sent is like a new one.
func (e *Event) Expiry() time.Time { return e.until }

func (e *Event) codeFields(c *stateCodec) {
	c.codeVersion(1)
	e.commandCounts.codeFields(c)
	c.codeBool(&e.sent)
	c.codeString(&e.message)
	c.codeTime(&e.until)
}
