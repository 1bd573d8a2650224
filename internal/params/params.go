// Package params reads a command's parameters from text. There is one table of them for all protocols, so
// that a name means the same, and is refused with the same sentence, wherever it is given.
package params

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/digits"
	"github.com/google/uuid"
)

// The parameters. Every operation knows and checks all of them; those it has no use for do no harm. Only
// parents are refused where they are not charged.
const (
	sizeParameter = iota
	costParameter
	intervalParameter
	expiresParameter
	maxWaitParameter
	keyParameter
	messageParameter
	amountParameter
	valueParameter
	idParameter
	burstParameter
	modeParameter
	guardParameter
	limitsParameter
	zoneParameter
	fenceParameter
	extendParameter
	// From here on those of owners and operators, see owner.go.
	ownerParameter
	hostParameter
	purposeParameter
	reasonParameter
	nowParameter
	afterParameter
	limitParameter
	statusParameter
	retryAfterParameter
	remainingParameter
	resetParameter
	parentsParameter // see parents.go
	numParameters
)

var names = [numParameters]string{
	"size", "cost", "interval", "expires", "maxwait", "key", "message", "amount", "value", "id",
	"burst", "mode", "guard", "limits", "zone", "fence", "extend",
	"owner", "host", "purpose", "reason", "now", "after", "limit",
	"status", "retry-after", "remaining", "reset", "parents",
}

// Names returns the names of all parameters.
func Names() []string { return slices.Clone(names[:]) }

// Read fills cmd, of which the operation is known, with what the form says and the defaults for what
// is absent; an acquire of a semaphore or lock without a key gets a random one. Texts are copied. The
// error is of CodeInvalid and names the parameter, its value and what is wanted.
func (f *Values) Read(kind gatehouse.Kind, cmd *gatehouse.Command) error {
	r := formReader{values: f}
	// The limiter's defaults follow from the size, and the fence from the key: the order matters.
	r.readNumbers(cmd, kind)
	r.readLimiter(cmd, kind)
	r.readTexts(cmd, kind)
	r.readHolder(cmd, kind)
	r.readFence(cmd, kind)
	r.readOwner(cmd)
	r.checkParents(kind, cmd.Op)
	if f.named&reportFields != 0 || cmd.Op == gatehouse.OpFeedback {
		r.readFeedback(cmd)
	}
	return r.err
}

// A formReader reads one parameter after the other and remembers the first error.
type formReader struct {
	values *Values
	err    error
}

// readNumbers reads the sizes and times, and puts the defaults in where there is none.
func (r *formReader) readNumbers(cmd *gatehouse.Command, kind gatehouse.Kind) {
	// A barrier for one would open at once, so its default is two.
	absent := int64(gatehouse.DefaultSize)
	if kind == gatehouse.Barrier {
		absent = gatehouse.DefaultBarrierSize
	}
	// A renew, or an acquire that extends, keeps the length that the hold has unless a new one is given.
	length := gatehouse.DefaultExpires
	cmd.Extend = r.readExtend(cmd, kind)
	if cmd.Extend || cmd.Op == gatehouse.OpRenew {
		length = gatehouse.AsAcquired
	}
	least := int64(1)
	if cmd.Op == gatehouse.OpPeek {
		least = 0
	}
	cmd.Size = r.readNumber(sizeParameter, numberRange{absent, 0, gatehouse.MaxSize})
	if kind == gatehouse.Semaphore && r.values.texts[sizeParameter] == nil {
		// A semaphore without a size in the request keeps the size it has.
		cmd.Size = gatehouse.InForce
	}
	cmd.Cost = r.readNumber(costParameter, numberRange{1, least, gatehouse.MaxSize})
	r.readInterval(cmd)
	cmd.Expires = r.readMillis(expiresParameter, length, 0)
	cmd.MaxWait = r.readMillis(maxWaitParameter, gatehouse.Forever, -1)
	// Both are checked in any case, although at most one of them is used.
	sum := r.readNumber(amountParameter, numberRange{1, minInt64, maxInt64})
	to := r.readNumber(valueParameter, numberRange{0, minInt64, maxInt64})
	cmd.Amount = sum
	if cmd.Op == gatehouse.OpReset {
		cmd.Amount = to
	}
}

// readExtend reads whether an acquire may move the end of the hold that its key has. Other operations check
// it.
func (r *formReader) readExtend(cmd *gatehouse.Command, kind gatehouse.Kind) bool {
	return r.readBool(extendParameter) && cmd.Op == gatehouse.OpAcquire && HasHolders(kind)
}

// readBool reads a parameter that is true or false, which it is when it is absent.
func (r *formReader) readBool(parameter int) bool {
	text := r.values.texts[parameter]
	yes := bytes.EqualFold(text, []byte("true"))
	if text != nil && !yes && !bytes.EqualFold(text, []byte("false")) {
		r.failParameter("%s is %s, want true or false", names[parameter], Quote(text))
	}
	return yes
}

const (
	minInt64  = -1 << 63
	maxInt64  = 1<<63 - 1
	maxMillis = int64(gatehouse.MaxDuration / time.Millisecond)
)

// A numberRange is what a parameter is when it is absent, and its range.
type numberRange struct{ absent, least, most int64 }

func (r *formReader) readNumber(parameter int, want numberRange) int64 {
	text := r.values.texts[parameter]
	if text == nil {
		return want.absent
	}
	// A leading plus sign is accepted, as bouncer's times and amounts accept it.
	i, ok := digits.ParseInteger(text)
	if ok && i >= want.least && i <= want.most &&
		(text[0] >= '0' || strings.IndexByte(forms[parameter].signs, text[0]) >= 0) {
		return i
	}
	// The sentence names the range and the unit, and shows how to write a time given with a unit.
	r.failParameter("%s is %s, want a whole number%s from %d to %d%s", names[parameter], Quote(text),
		forms[parameter].unit, want.least, want.most, inMillis(parameter, text))
	return want.absent
}

// ofMillis is the unit of times, as a sentence about a value has it.
const ofMillis = " of milliseconds"

// forms say how the numbers of parameters are written: in which unit, and what signs they may begin with.
var forms = [numParameters]struct{ unit, signs string }{
	intervalParameter: {ofMillis, "+"}, expiresParameter: {ofMillis, "+"}, guardParameter: {ofMillis, "+"},
	retryAfterParameter: {ofMillis, "+"}, resetParameter: {ofMillis, "+"},
	maxWaitParameter: {ofMillis, "+-"}, amountParameter: {"", "+-"}, valueParameter: {"", "+-"},
}

// inMillis says how to write a time that was given with a unit.
func inMillis(parameter int, text []byte) string {
	d, err := time.ParseDuration(string(text))
	if forms[parameter].unit == "" || err != nil || d < time.Millisecond || d > gatehouse.MaxDuration {
		return ""
	}
	return fmt.Sprintf(": write %s=%d for %s", names[parameter], d.Milliseconds(), d)
}

func (r *formReader) failParameter(format string, args ...any) {
	// One sentence is what an answer has room for, so the first fault is told.
	if r.err == nil {
		r.err = gatehouse.Errorf(gatehouse.CodeInvalid, format, args...)
	}
}

// readMillis reads a time in milliseconds; -1 stays what it is.
func (r *formReader) readMillis(parameter int, absent time.Duration, least int64) time.Duration {
	if r.values.texts[parameter] == nil {
		return absent
	}
	ms := r.readNumber(parameter, numberRange{0, least, maxMillis})
	if ms < 0 {
		return gatehouse.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// readInterval reads a time in milliseconds or a calendar window.
func (r *formReader) readInterval(cmd *gatehouse.Command) {
	text := r.values.texts[intervalParameter]
	if len(text) == 0 || text[0] <= '9' {
		cmd.Interval = r.readMillis(intervalParameter, gatehouse.DefaultInterval, 1)
		return
	}
	// Names of calendar windows begin with a letter, times in milliseconds never do.
	calendar, ok := gatehouse.ParseCalendar(string(text))
	if !ok {
		r.failParameter("interval is %s, want milliseconds, or day, week or month", Quote(text))
	}
	// The interval is not set: the calendar says when a window ends.
	cmd.Calendar = calendar
}

// readTexts reads the key, the message and what else is not looked at.
func (r *formReader) readTexts(cmd *gatehouse.Command, kind gatehouse.Kind) {
	// Lengths are checked for every operation, even where the text is not used.
	most := [...]struct{ parameter, most int }{
		{keyParameter, gatehouse.MaxHolder}, {messageParameter, gatehouse.MaxMessage},
		{idParameter, gatehouse.MaxMessage}, {zoneParameter, maxZone},
	}
	for _, text := range most {
		if n := len(r.values.texts[text.parameter]); n > text.most {
			r.failParameter("%s has %d bytes, want at most %d", names[text.parameter], n, text.most)
		}
	}
	k := r.values.texts[keyParameter]
	// The holds of grants have such keys, and no client may name them.
	if len(k) > 0 && k[0] == 0 {
		r.failParameter("key is %s, want another first byte than zero", Quote(k))
	}
	if len(k) > 0 && (HasHolders(kind) || kind.Limiter()) {
		cmd.Holder = string(k)
	}
	// A request that waits keeps its command, so a text that means nothing to it is not copied.
	if m := r.values.texts[messageParameter]; len(m) > 0 && cmd.Op == gatehouse.OpSend {
		cmd.Message = string(m)
	}
}

// readHolder makes a key for an acquire that has none, and refuses what cannot do without.
func (r *formReader) readHolder(cmd *gatehouse.Command, kind gatehouse.Kind) {
	if cmd.Holder != "" {
		return
	}
	switch {
	case cmd.Op == gatehouse.OpAcquire && HasHolders(kind):
		// The random key is part of the answer, and what the client releases with.
		cmd.Holder = uuid.NewString()
	case cmd.Op == gatehouse.OpRelease || cmd.Op == gatehouse.OpRenew:
		r.failParameter("key is missing, want the key that acquire answered with")
	case cmd.Op == gatehouse.OpCancel:
		r.failParameter("key is missing, want the key that reserve was given")
	}
}

// readFence reads the fencing token of the hold that a release or a renew means. It means nothing without
// the key of that hold, so that one without is refused whatever the operation.
func (r *formReader) readFence(cmd *gatehouse.Command, kind gatehouse.Kind) {
	token := r.readToken()
	switch {
	// A fence of 0 names no hold, so it needs no key.
	case token != 0 && r.values.texts[keyParameter] == nil:
		r.failParameter("fence is %d without a key, want the key of that hold with it", token)
	case HasHolders(kind) && (cmd.Op == gatehouse.OpRelease || cmd.Op == gatehouse.OpRenew):
		cmd.Fence = token
	}
}

// readToken reads a fencing token, 0 if there is none.
func (r *formReader) readToken() uint64 {
	text := r.values.texts[fenceParameter]
	if text == nil {
		return 0
	}
	token, err := strconv.ParseUint(string(text), 10, 64)
	if err != nil {
		r.failParameter("fence is %s, want a whole number from 0 to %d", Quote(text), uint64(math.MaxUint64))
		return 0
	}
	return token
}

// maxZone is longer than the name of any time zone.
const maxZone = 64

// HasHolders reports whether what controllers of this kind grant is held under a key, without which
// there is no release.
func HasHolders(kind gatehouse.Kind) bool {
	return kind == gatehouse.Semaphore || kind == gatehouse.Lock
}

// TakesForClient reports whether an operation that is granted gives its client something that no other client
// can have then, so that it is taken back if that client is gone: a hold, or what it has waited for. An event
// that was sent, or a watchdog that has fired, can be had by all.
func TakesForClient(op gatehouse.Op, kind gatehouse.Kind, waited bool) bool {
	switch op {
	case gatehouse.OpAcquire:
		return waited || HasHolders(kind)
	case gatehouse.OpWait:
		return waited && kind == gatehouse.Barrier
	}
	return false
}

// TakesForRecord reports whether a command takes something for a grant with a record, or adds to it. That is
// not taken for a client that is gone.
func TakesForRecord(cmd *gatehouse.GrantCommand) bool {
	return cmd.Op == gatehouse.OpTopUp || cmd.Op == gatehouse.OpAcquire && cmd.HasRecord()
}

// maxQuoted is how much of a client's text is repeated in a message.
const maxQuoted = 80

// Quote makes a text safe to repeat in a message or a log line: escaped, and cut when long.
func Quote(text []byte) string {
	if len(text) > maxQuoted {
		return fmt.Sprintf("%q…", text[:maxQuoted])
	}
	return fmt.Sprintf("%q", text)
}
