package gatehouse

import "slices"

// A Level is how much a user may do with a name. Each level includes those below it.
type Level uint8

// The levels. NoLevel allows nothing.
const (
	NoLevel Level = iota
	// LevelRead is to look, and to wait for an event or a watchdog.
	LevelRead
	// LevelUse is to take, to give back what was taken, to send and to count.
	LevelUse
	// LevelManage is to decide about what others have: delete, reset, evict, close, change a limit.
	LevelManage

	numLevels
)

var levelNames = [numLevels]string{"nothing", "read", "use", "manage"}

// String returns "read", "use" or "manage", and "nothing" for NoLevel.
func (l Level) String() string { return nameAt(levelNames[:], int(l), "nothing") }

// ParseLevel returns the level with this name; ok is false when there is none.
func ParseLevel(name string) (l Level, ok bool) {
	i := slices.Index(levelNames[1:], name)
	return Level(i + 1), i >= 0 // an index of three names
}

// Level returns the level that an operation on a name of this kind needs; NoLevel for an operation that the
// kind does not have, or that only gates send.
func (k Kind) Level(op Op) Level {
	switch {
	case !k.Has(op) || op == OpUndo:
		return NoLevel
	case op == OpStats:
		return LevelRead
	case op == OpDelete:
		return LevelManage
	}
	return grammar[k][op].level
}
