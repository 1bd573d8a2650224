package gatehouse

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// The bounds of names and numbers, the same through every door.
const (
	// MaxName is the length of a name in bytes. It leaves room for its percent-encoded form in a
	// request line.
	MaxName = 512
	// MaxHolder is the length of a holder key in bytes.
	MaxHolder = 512
	// MaxMessage is the length of an event's message in bytes.
	MaxMessage = 4096
	// MaxSize is the largest size or cost: the largest integer a structured header field can carry.
	MaxSize = 999_999_999_999_999
	// MaxDuration is the longest time: a hundred years, so that sums with the present do not overflow.
	MaxDuration = 100 * 365 * 24 * time.Hour
)

// needs is a set of fields that an operation reads, so that Check looks at no others.
type needs uint8

const (
	needHolder needs = 1 << iota
	needSize
	needInterval
	needExpires
)

// grammar says which operations each kind has and what they need. OpStats, OpDelete and OpUndo
// are known to all of them.
var grammar = [Kinds][numOps]struct {
	known bool
	needs needs
}{
	TokenBucket: {OpAcquire: {true, needSize | needInterval}},
	Semaphore: {
		OpAcquire: {true, needHolder | needSize | needExpires},
		OpRelease: {true, needHolder},
		OpRenew:   {true, needHolder | needExpires},
	},
	Lock: {
		OpAcquire: {true, needHolder | needExpires},
		OpRelease: {true, needHolder},
		OpRenew:   {true, needHolder | needExpires},
	},
	Event:    {OpWait: {true, 0}, OpSend: {true, 0}},
	Watchdog: {OpWait: {true, 0}, OpKick: {true, needExpires}},
	Counter:  {OpCount: {true, 0}, OpValue: {true, 0}, OpReset: {true, 0}},
	Barrier:  {OpWait: {true, needSize}},
}

// Has reports whether the kind knows the operation.
func (k Kind) Has(op Op) bool {
	if k == 0 || int(k) >= Kinds || op >= numOps {
		return false
	}
	return op == OpStats || op == OpDelete || op == OpUndo || grammar[k][op].known
}

// Check returns an error of CodeInvalid when cmd makes no sense for key: an unknown operation, a
// bad name, a number out of range, a cost that can never fit.
func (cmd *Command) Check(key Key) error {
	if !key.Kind.Has(cmd.Op) {
		return Errorf(CodeInvalid, "%s has no operation %s", key.Kind, cmd.Op)
	}
	if cmd.MaxWait != 0 && (cmd.MaxWait < Forever || cmd.MaxWait > MaxDuration) {
		return outOfRange(key, "MaxWait", cmd.MaxWait, "Forever, or 0 to 100 years")
	}
	if cmd.Keep < 0 || cmd.Keep > MaxDuration {
		return outOfRange(key, "Keep", cmd.Keep, "0 to 100 years")
	}
	if bad := nameFault(key.Name); bad != "" {
		return Errorf(CodeInvalid, "%s: name %s", key.Kind, bad)
	}
	return cmd.checkNeeds(key, grammar[key.Kind][cmd.Op].needs)
}

func (cmd *Command) checkNeeds(key Key, n needs) error {
	if n&needHolder != 0 && (cmd.Holder == "" || len(cmd.Holder) > MaxHolder) {
		return Errorf(CodeInvalid, "%s: Holder of %d bytes, want 1 to %d", key, len(cmd.Holder), MaxHolder)
	}
	if n&needInterval != 0 && (cmd.Interval <= 0 || cmd.Interval > MaxDuration) {
		return outOfRange(key, "Interval", cmd.Interval, "more than 0 and at most 100 years")
	}
	if n&needExpires != 0 && (cmd.Expires < 0 || cmd.Expires > MaxDuration) &&
		(cmd.Op != OpRenew || cmd.Expires != AsAcquired) {
		return outOfRange(key, "Expires", cmd.Expires, "0 to 100 years")
	}
	if n&needSize != 0 && (cmd.Size < 0 || cmd.Size > MaxSize) {
		return outOfRange(key, "Size", cmd.Size, fmt.Sprintf("0 to %d", int64(MaxSize)))
	}
	if cmd.Op == OpAcquire {
		return cmd.checkCost(key)
	}
	if len(cmd.Message) > MaxMessage {
		return Errorf(CodeInvalid,
			"%s: Message of %d bytes, want at most %d", key, len(cmd.Message), MaxMessage)
	}
	return nil
}

func (cmd *Command) checkCost(key Key) error {
	if cmd.Cost < 1 || cmd.Cost > MaxSize {
		return outOfRange(key, "Cost", cmd.Cost, fmt.Sprintf("1 to %d", int64(MaxSize)))
	}
	size := cmd.Size
	if key.Kind == Lock {
		size = 1
	}
	if size > 0 && cmd.Cost > size {
		return Errorf(CodeInvalid, "%s: cost %d can never fit a size of %d", key, cmd.Cost, size)
	}
	return nil
}

func outOfRange(key Key, field string, value any, want string) error {
	return Errorf(CodeInvalid, "%s: %s is %v, want %s", key, field, value, want)
}

// nameFault says what is wrong with a name, "" when nothing is.
func nameFault(name string) string {
	if len(name) == 0 || len(name) > MaxName {
		return fmt.Sprintf("has %d bytes, want 1 to %d", len(name), MaxName)
	}
	plain := true
	for i := range len(name) {
		plain = plain && name[i] >= ' ' && name[i] < 0x7f
	}
	if plain {
		return ""
	}
	if !utf8.ValidString(name) {
		return fmt.Sprintf("%q is not valid UTF-8", name)
	}
	if strings.ContainsFunc(name, isControl) {
		return fmt.Sprintf("%q has a control character", name)
	}
	return ""
}

// isControl reports the control characters of both planes that terminals and logs act on, and the
// two separators that some readers take for line ends.
func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r <= 0x9f || r == '\u2028' || r == '\u2029'
}
