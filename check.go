package gatehouse

import (
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds of names and numbers, the same in every protocol.
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

// fieldSet is a set of fields that an operation reads, so that Check looks at no others.
type fieldSet uint8

const (
	needHolder fieldSet = 1 << iota
	needSize
	needExpires
	needCost
	needLimit
	needLimitIfAny // the limit in force will do
	needFeedback
)

// operationRule says whether a kind knows an operation, what that needs, and which level its caller needs.
type operationRule struct {
	known  bool
	fields fieldSet
	level  Level
}

var limiterRules = [numOps]operationRule{
	OpAcquire:  {true, needLimit | needCost, LevelUse},
	OpPeek:     {true, needLimitIfAny | needCost, LevelRead},
	OpDelay:    {true, needLimitIfAny | needCost, LevelRead},
	OpReserve:  {true, needLimit | needCost, LevelUse},
	OpCancel:   {true, needHolder, LevelUse},
	OpRefund:   {true, needCost, LevelUse},
	OpCharge:   {true, needLimit | needCost, LevelUse},
	OpReset:    {true, 0, LevelManage},
	OpBump:     {true, 0, LevelManage},
	OpClose:    {true, 0, LevelManage},
	OpOpen:     {true, 0, LevelManage},
	OpWaiters:  {true, 0, LevelRead},
	OpFeedback: {true, needLimit | needFeedback, LevelManage},
}

// holdRules are those of semaphores and locks, which differ in what an acquire needs besides.
func holdRules(more fieldSet) [numOps]operationRule {
	return [numOps]operationRule{
		OpAcquire: {true, needHolder | needExpires | needCost | more, LevelUse},
		OpRelease: {true, needHolder, LevelUse},
		OpRenew:   {true, needHolder | needExpires, LevelUse},
		OpEvict:   {true, 0, LevelManage},
		OpBump:    {true, 0, LevelManage},
		OpClose:   {true, 0, LevelManage},
		OpOpen:    {true, 0, LevelManage},
		OpHolders: {true, 0, LevelRead},
		OpWaiters: {true, 0, LevelRead},
	}
}

// grammar says which operations each kind has, and what they need. OpStats, OpDelete and OpUndo are known to
// all of them.
var grammar = [Kinds][numOps]operationRule{
	TokenBucket: limiterRules, GCRA: limiterRules, FixedWindow: limiterRules,
	SlidingWindow: limiterRules, SlidingLog: limiterRules, Pace: limiterRules,
	Semaphore: holdRules(needSize), Lock: holdRules(0),
	Event: {OpWait: {true, 0, LevelRead}, OpSend: {true, 0, LevelUse}, OpWaiters: {true, 0, LevelRead}},
	Watchdog: {
		OpWait: {true, 0, LevelRead}, OpKick: {true, needExpires, LevelUse}, OpWaiters: {true, 0, LevelRead},
	},
	Counter: {OpCount: {true, 0, LevelUse}, OpValue: {true, 0, LevelRead}, OpReset: {true, 0, LevelManage}},
	Barrier: {OpWait: {true, needSize, LevelUse}, OpWaiters: {true, 0, LevelRead}},
	// Only a gate sends these, as a part of a joint change: a GrantCommand is what callers say.
	Grant: {
		OpAcquire: {true, 0, LevelUse}, OpPeek: {true, 0, LevelRead}, OpRenew: {true, 0, LevelUse},
		OpTopUp: {true, 0, LevelUse}, OpSettle: {true, 0, LevelUse}, OpRelease: {true, 0, LevelUse},
	},
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
	// These fields are checked for every operation, used or not: a wrong value shows a mistake in the
	// client.
	if cmd.MaxWait != 0 && (cmd.MaxWait < Forever || cmd.MaxWait > MaxDuration) {
		return outOfRange(key, "MaxWait", cmd.MaxWait, "Forever, or 0 to 100 years")
	}
	if cmd.MaxDelay < 0 || cmd.MaxDelay > MaxDuration {
		return outOfRange(key, "MaxDelay", cmd.MaxDelay, "0 to 100 years")
	}
	if cmd.Keep < 0 || cmd.Keep > MaxDuration {
		return outOfRange(key, "Keep", cmd.Keep, "0 to 100 years")
	}
	plain := hasPlainName(key)
	if !plain {
		if bad := NameFault(key.Name); bad != "" {
			return Errorf(CodeInvalid, "%s: name %s", key.Kind, bad)
		}
	}
	if !plain || !isPlain(cmd.Holder) {
		if err := cmd.checkMarks(key); err != nil {
			return err
		}
	}
	return cmd.checkFields(key, grammar[key.Kind][cmd.Op].fields)
}

// hasPlainName reports whether a name needs no further look: most are printable ASCII, and one look at their
// bytes replaces the others.
func hasPlainName(key Key) bool {
	return len(key.Name) > 0 && len(key.Name) <= MaxName && isPlain(key.Name)
}

func (cmd *Command) checkFields(key Key, n fieldSet) error {
	if n&needHolder != 0 && cmd.Holder == "" || len(cmd.Holder) > MaxHolder {
		return Errorf(CodeInvalid, "%s: Holder of %d bytes, want 1 to %d", key, len(cmd.Holder), MaxHolder)
	}
	if cmd.Owner != nil {
		if err := cmd.Owner.check(key); err != nil {
			return err
		}
	}
	// Such holders are those of grants, whose holds a caller who knows only a name must not touch.
	if cmd.Holder != "" && cmd.Holder[0] == 0 {
		return Errorf(CodeInvalid, "%s: Holder %q begins with a zero byte, want another first byte", key,
			cmd.Holder)
	}
	if cmd.Fence != 0 && cmd.Holder == "" && !cmd.Op.byID() {
		return Errorf(CodeInvalid, "%s: Fence %d without a Holder, want that of the hold", key, cmd.Fence)
	}
	if n&needExpires != 0 && (cmd.Expires < 0 || cmd.Expires > MaxDuration) &&
		(!cmd.mayExtendHold() || cmd.Expires != AsAcquired) {
		return outOfRange(key, "Expires", cmd.Expires, "0 to 100 years")
	}
	if err := cmd.checkAmounts(key, n); err != nil {
		return err
	}
	if n&needFeedback != 0 {
		return cmd.Feedback.check(key)
	}
	if cmd.Op == OpEvict || cmd.Op == OpClose {
		return cmd.checkReason(key)
	}
	if len(cmd.Message) > MaxMessage {
		return Errorf(CodeInvalid,
			"%s: Message of %d bytes, want at most %d", key, len(cmd.Message), MaxMessage)
	}
	return nil
}

// checkAmounts looks at the size or the limit, and at the cost.
func (cmd *Command) checkAmounts(key Key, n fieldSet) error {
	// Only an acquire can leave a semaphore's size as it is. A barrier has no size in force before its
	// first arrival.
	keeps := cmd.Size == InForce && cmd.Op == OpAcquire
	if n&needSize != 0 && !keeps && (cmd.Size < 0 || cmd.Size > MaxSize) {
		return outOfRange(key, "Size", cmd.Size, fmt.Sprintf("0 to %d", int64(MaxSize)))
	}
	// An operation that only asks may leave the limit out.
	if n&needLimit != 0 && cmd.Size != InForce || n&needLimitIfAny != 0 && cmd.HasLimit() {
		if err := cmd.checkLimit(key); err != nil {
			return err
		}
	}
	if n&needCost != 0 {
		return cmd.checkCost(key)
	}
	return nil
}

// byID reports whether the Fence of an operation stands for a public id, and not for the token of a hold.
func (op Op) byID() bool { return op == OpEvict || op == OpBump || op == OpHolders || op == OpWaiters }

// checkReason looks at what an evict and a close have besides: which hold, and why.
func (cmd *Command) checkReason(key Key) error {
	if cmd.Op == OpEvict && cmd.Fence == 0 {
		return Errorf(CodeInvalid, "%s: evict of no hold, want its id", key)
	}
	if bad := TextFault(cmd.Message); bad != "" {
		return Errorf(CodeInvalid, "%s: reason %s", key, bad)
	}
	return nil
}

// mayExtendHold reports whether the command may move the end of a hold that is there.
func (cmd *Command) mayExtendHold() bool {
	return cmd.Op == OpRenew || cmd.Op == OpAcquire && cmd.Extend
}

// checkLimit looks at the limits of a limiter and their variety.
func (cmd *Command) checkLimit(key Key) error {
	if cmd.Mode != ModeDefault && (cmd.Mode >= numModes || modes[cmd.Mode].kind != key.Kind) {
		return outOfRange(key, "Mode", cmd.Mode, "one that this kind has")
	}
	if cmd.Guard < 0 || cmd.Guard > MaxDuration {
		return outOfRange(key, "Guard", cmd.Guard, "0 to 100 years")
	}
	// A list replaces the single limit, whose fields then mean nothing.
	if cmd.Limits.Len() > 0 {
		return cmd.checkLimits(key)
	}
	switch {
	case cmd.Calendar > Month:
		return outOfRange(key, "Calendar", cmd.Calendar, "Day, Week or Month")
	case cmd.Calendar == NoCalendar && (cmd.Interval <= 0 || cmd.Interval > MaxDuration):
		return outOfRange(key, "Interval", cmd.Interval, "more than 0 and at most 100 years")
	case cmd.Size < 0 || cmd.Size > MaxSize:
		return outOfRange(key, "Size", cmd.Size, fmt.Sprintf("0 to %d", int64(MaxSize)))
	case cmd.Burst < 0 || cmd.Burst >= MaxSize:
		return outOfRange(key, "Burst", cmd.Burst, fmt.Sprintf("0 to %d", int64(MaxSize)-1))
	}
	// It alone counts by the time of one token, which nanoseconds have to be able to tell.
	if key.Kind == GCRA {
		return Limit{Size: cmd.Size, Interval: cmd.Interval, Calendar: cmd.Calendar}.checkRate(key, cmd.Burst)
	}
	return nil
}

func (cmd *Command) checkLimits(key Key) error {
	if err := cmd.Limits.check(); err != nil {
		return Errorf(CodeInvalid, "%s: %w", key, err)
	}
	for i := range cmd.Limits.Len() {
		limit := cmd.Limits.At(i)
		// In a list the burst is always one less than the size.
		if err := limit.checkRate(key, limit.Size-1); err != nil {
			return err
		}
	}
	return nil
}

// checkRate refuses what a GCRA cannot count in nanoseconds.
func (l Limit) checkRate(key Key, burst int64) error {
	if key.Kind != GCRA || l.Size == 0 || l.Calendar != NoCalendar {
		return nil
	}
	// The time between two requests, interval/size, must be at least a nanosecond.
	if int64(l.Interval) < l.Size {
		return Errorf(CodeInvalid, "%s: %s is more than one per nanosecond; want a lower rate", key, l)
	}
	// A full burst takes (burst+1) steps to come back, which must not overflow.
	if int64(MaxDuration)/(int64(l.Interval)/l.Size) < burst+1 {
		return Errorf(CodeInvalid,
			"%s: a burst of %d at %s takes more than 100 years to come back; want a lower one", key, burst, l)
	}
	return nil
}

func (cmd *Command) checkCost(key Key) error {
	least := int64(1)
	if cmd.Op == OpPeek {
		least = 0
	}
	if cmd.Cost < least || cmd.Cost > MaxSize {
		return outOfRange(key, "Cost", cmd.Cost, fmt.Sprintf("%d to %d", least, int64(MaxSize)))
	}
	// A cost above the capacity would wait forever.
	if size := cmd.largestCost(key.Kind); size > 0 && cmd.Cost > size {
		return Errorf(CodeInvalid, "%s: cost %d can never fit a size of %d", key, cmd.Cost, size)
	}
	return nil
}

// largestCost is the most that can ever be taken at once, as far as the command says; 0 when it does not.
func (cmd *Command) largestCost(kind Kind) int64 {
	// The most frequent command goes first.
	if kind == TokenBucket && cmd.Op == OpAcquire && cmd.Limits.Len() == 0 {
		return cmd.Size
	}
	switch {
	case kind == Lock:
		return 1
	case kind.Limiter() && (cmd.Op == OpRefund || cmd.Op == OpCharge || !cmd.HasLimit()):
		return 0
	case kind.Limiter() && cmd.Limits.Len() > 0:
		// The smallest limit decides. A limit of 0 stops for now, which is no reason to call the command
		// invalid.
		least := int64(0)
		for i := range cmd.Limits.Len() {
			if size := cmd.Limits.At(i).Size; size > 0 && (least == 0 || size < least) {
				least = size
			}
		}
		return least
	case kind == GCRA && cmd.Calendar == NoCalendar && cmd.Size > 0:
		return cmd.Burst + 1
	}
	return cmd.Size
}

func outOfRange(key Key, field string, value any, want string) error {
	return Errorf(CodeInvalid, "%s: %s is %v, want %s", key, field, value, want)
}

// NameFault says what is wrong with the name of a controller, a resource or a client, "" when nothing is. Its
// subject is left to the caller: `has 0 bytes, want 1 to 512`.
func NameFault(name string) string {
	if len(name) == 0 || len(name) > MaxName {
		return fmt.Sprintf("has %d bytes, want 1 to %d", len(name), MaxName)
	}
	if isPlain(name) { // which needs no look at runes
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

// isPlain reports whether a text is printable ASCII.
func isPlain(text string) bool {
	for i := range len(text) {
		if text[i]-' ' >= 0x7f-' ' {
			return false
		}
	}
	return true
}

// isControl reports the control characters of both planes that terminals and logs act on, and the
// two separators that some readers take for line ends.
func isControl(r rune) bool {
	return unicode.IsControl(r) || r == '\u2028' || r == '\u2029'
}

// checkMarks refuses a name or a holder with a mark that changes the direction of text: where it is shown,
// what stands behind it seems to stand elsewhere, so that one name can pass for another. Earlier versions
// took such names, and what they stored is still there: so it can be looked at, given up and deleted.
func (cmd *Command) checkMarks(key Key) error {
	switch cmd.Op {
	case OpStats, OpDelete, OpUndo, OpRelease, OpRenew, OpCancel:
		return nil
	}
	// %+q shows the mark by its number, so that it does not turn the message itself around.
	if hasDirectionMark(key.Name) {
		return Errorf(CodeInvalid, "%s: name %+q has a mark that changes the direction of text", key.Kind,
			key.Name)
	}
	if hasDirectionMark(cmd.Holder) {
		return Errorf(CodeInvalid, "%s: Holder %+q has a mark that changes the direction of text", key,
			cmd.Holder)
	}
	return nil
}

// hasDirectionMark reports marks, embeddings, overrides and isolates. They begin with one of two bytes, which
// other text seldom has.
func hasDirectionMark(text string) bool {
	// Searching for the bytes first keeps the check cheap for plain names.
	if strings.IndexByte(text, "\u200e"[0]) < 0 && strings.IndexByte(text, "\u061c"[0]) < 0 {
		return false
	}
	return strings.ContainsFunc(text, func(r rune) bool { return unicode.Is(unicode.Bidi_Control, r) })
}
