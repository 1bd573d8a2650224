package control

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A JointChange is one change over several controllers: a grant over several names, or what becomes of one.
// It has one turn for each name, and takes effect under all of them or under none. From ApplyJoint on it
// belongs to the store, with its parts, until Done is called.
type JointChange struct {
	// Parts are ordered by [ComparePartKeys]. No key is there twice. There are at most MaxParts.
	Parts []Part

	// Granted says, from Done on, that all parts took effect.
	Granted bool

	// Done is called exactly once, perhaps before ApplyJoint returns, without any lock of the store's. It
	// must not block. Either err is nil, and every turn has its decision; or it is not known what took
	// effect.
	Done func(err error)
}

// MaxParts is the most parts of a joint change: the members of a grant, and its record.
const MaxParts = gatehouse.MaxMembers + 1

// A Part is the turn of one controller in a joint change.
type Part struct {
	Key  gatehouse.Key
	Turn Turn

	// Optional says that the others take effect whatever this one is answered, as when a grant is released
	// one of whose names was deleted.
	Optional bool

	// Passive says that the turn, if it goes on waiting, keeps nothing back at this name: it is only to be
	// told of changes.
	Passive bool
}

// A GrantTurn is what a turn that is a part of a joint change has besides.
type GrantTurn struct {
	// ID is that of the grant; empty if it has no record.
	ID string

	// Command is the whole command. Members of a settle, a topup and a release find their cost in it.
	Command *gatehouse.GrantCommand

	// Trial says that the turn is only tried: it is answered as it would be, and takes nothing. Limits and
	// sizes come into force all the same, at the first look.
	Trial bool

	// Counted is, for a limiter of a grant that is there, how much the record says that it has counted so
	// far.
	Counted int64
}

// A JointPart is a part with the state that it is served on.
type JointPart struct {
	*Part
	State State // nil when there is none, before and after
	Room  *Room // nil is as much as may be wanted
}

// ServeJoint serves a joint change at one instant, and reports whether it took effect. The states are served
// in place, or replaced.
func ServeJoint(now time.Time, parts []JointPart) (granted bool) {
	panic("not yet")
}

// GrantHolder is the holder of the holds of a grant. No command of a caller has such a one: Command.Check
// refuses a Holder that begins with a zero byte.
func GrantHolder(id string) string { return "\x00grant/" + id }
