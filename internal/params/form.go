// Package params reads a command's parameters from text. There is one table of them for every door, so
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
	"github.com/google/uuid"
)

// The parameters. Every operation knows and checks all of them; those it has no use for do no harm.
const (
	size = iota
	cost
	interval
	expires
	maxWait
	key
	message
	amount
	value
	id
	burst
	mode
	guard
	limits
	zone
	fence
	extend
	numParameters
)

var names = [numParameters]string{
	"size", "cost", "interval", "expires", "maxwait", "key", "message", "amount", "value", "id",
	"burst", "mode", "guard", "limits", "zone", "fence", "extend",
}

// Names returns the names of all parameters.
func Names() []string { return slices.Clone(names[:]) }

// A Form holds what a request gives for each parameter, as text. The zero Form holds nothing.
type Form struct {
	values [numParameters][]byte // nil is absent
	any    bool                  // one of those from burst to zone is there
}

// Set gives a parameter a value, which the form does not copy. Names are read in any letter case, and
// the last of a repeated one counts. The error is of CodeInvalid.
func (f *Form) Set(name, value []byte) error {
	if !f.Take(name, value) {
		return Unknown(name)
	}
	return nil
}

// Unknown is the error of CodeInvalid about a parameter that does not exist. more are parameters that its
// listener knows besides.
func Unknown(name []byte, more ...string) error {
	return gatehouse.Errorf(gatehouse.CodeInvalid, "parameter %s is unknown, want one of %s",
		Quote(name), strings.Join(append(Names(), more...), " "))
}

// Take is Set for a listener that has parameters of its own: known is false if the form has no such one.
func (f *Form) Take(name, value []byte) (known bool) {
	for i, known := range names {
		if len(name) == len(known) && bytes.EqualFold(name, []byte(known)) {
			switch {
			case len(value) == 0 && (i == size || i == key || i == fence):
				value = nil // as if it were absent
			case value == nil:
				value = []byte{}
			}
			f.values[i] = value
			f.any = f.any || i >= burst && i <= zone
			return true
		}
	}
	return false
}

// Read fills cmd, of which the operation is known, with what the form says and the defaults for what
// is absent; an acquire of a semaphore or lock without a key gets a random one. Texts are copied. The
// error is of CodeInvalid and names the parameter, its value and what is wanted.
func (f *Form) Read(kind gatehouse.Kind, cmd *gatehouse.Command) error {
	r := reader{form: f}
	r.numbers(cmd, kind)
	r.limiter(cmd, kind)
	r.texts(cmd, kind)
	r.holder(cmd, kind)
	r.fence(cmd, kind)
	return r.err
}

// A reader reads one parameter after the other and remembers the first error.
type reader struct {
	form *Form
	err  error
}

// numbers reads the sizes and times, and puts the defaults in where there is none.
func (r *reader) numbers(cmd *gatehouse.Command, kind gatehouse.Kind) {
	absent := int64(gatehouse.DefaultSize)
	if kind == gatehouse.Barrier {
		absent = gatehouse.DefaultBarrierSize
	}
	length := gatehouse.DefaultExpires
	cmd.Extend = r.extend(cmd, kind)
	if cmd.Extend || cmd.Op == gatehouse.OpRenew {
		length = gatehouse.AsAcquired
	}
	least := int64(1)
	if cmd.Op == gatehouse.OpPeek {
		least = 0
	}
	cmd.Size = r.number(size, number{absent, 0, gatehouse.MaxSize})
	if kind == gatehouse.Semaphore && r.form.values[size] == nil {
		cmd.Size = gatehouse.InForce
	}
	cmd.Cost = r.number(cost, number{1, least, gatehouse.MaxSize})
	r.interval(cmd)
	cmd.Expires = r.millis(expires, length, 0)
	cmd.MaxWait = r.millis(maxWait, gatehouse.Forever, -1)
	sum := r.number(amount, number{1, minInt64, maxInt64})
	to := r.number(value, number{0, minInt64, maxInt64})
	cmd.Amount = sum
	if cmd.Op == gatehouse.OpReset {
		cmd.Amount = to
	}
}

// extend reads whether an acquire may move the end of the hold that its key has. Other operations check it.
func (r *reader) extend(cmd *gatehouse.Command, kind gatehouse.Kind) bool {
	switch text := r.form.values[extend]; {
	case text == nil || bytes.EqualFold(text, []byte("false")):
	case bytes.EqualFold(text, []byte("true")):
		return cmd.Op == gatehouse.OpAcquire && HasHolders(kind)
	default:
		r.fault("extend is %s, want true or false", Quote(text))
	}
	return false
}

const (
	minInt64  = -1 << 63
	maxInt64  = 1<<63 - 1
	maxMillis = int64(gatehouse.MaxDuration / time.Millisecond)
)

// A number is what a parameter is when it is absent, and its range.
type number struct{ absent, least, most int64 }

func (r *reader) number(parameter int, want number) int64 {
	text := r.form.values[parameter]
	if text == nil {
		return want.absent
	}
	// A leading plus sign is accepted, as bouncer's times and amounts accept it.
	if i, err := strconv.ParseInt(string(text), 10, 64); err == nil &&
		i >= want.least && i <= want.most && signed(text[0], parameter) {
		return i
	}
	r.fault("%s is %s, want a whole number%s from %d to %d%s",
		names[parameter], Quote(text), unitOf(parameter), want.least, want.most, inMillis(parameter, text))
	return want.absent
}

// unitOf is the unit of a parameter, as a sentence about its value has it.
func unitOf(parameter int) string {
	switch parameter {
	case interval, expires, maxWait, guard:
		return " of milliseconds"
	}
	return ""
}

// inMillis says how to write a time that was given with a unit.
func inMillis(parameter int, text []byte) string {
	d, err := time.ParseDuration(string(text))
	if unitOf(parameter) == "" || err != nil || d < time.Millisecond || d > gatehouse.MaxDuration {
		return ""
	}
	return fmt.Sprintf(": write %s=%d for %s", names[parameter], d.Milliseconds(), d)
}

func (r *reader) fault(format string, args ...any) {
	if r.err == nil {
		r.err = gatehouse.Errorf(gatehouse.CodeInvalid, format, args...)
	}
}

// signed reports whether a parameter may begin as it does: a size or cost has no sign at all, and
// only what may be negative has a minus.
func signed(first byte, parameter int) bool {
	switch parameter {
	case size, cost, burst:
		return first != '+' && first != '-'
	case interval, expires, guard:
		return first != '-'
	}
	return true
}

// millis reads a time in milliseconds; -1 stays what it is.
func (r *reader) millis(parameter int, absent time.Duration, least int64) time.Duration {
	if r.form.values[parameter] == nil {
		return absent
	}
	ms := r.number(parameter, number{0, least, maxMillis})
	if ms < 0 {
		return gatehouse.Forever
	}
	return time.Duration(ms) * time.Millisecond
}

// interval reads a time in milliseconds or a calendar window.
func (r *reader) interval(cmd *gatehouse.Command) {
	text := r.form.values[interval]
	if len(text) == 0 || text[0] <= '9' {
		cmd.Interval = r.millis(interval, gatehouse.DefaultInterval, 1)
		return
	}
	calendar, ok := gatehouse.ParseCalendar(string(text))
	if !ok {
		r.fault("interval is %s, want milliseconds, or day, week or month", Quote(text))
	}
	cmd.Calendar = calendar
}

// limiter reads what only limiters have. Other kinds check it and leave it at that.
func (r *reader) limiter(cmd *gatehouse.Command, kind gatehouse.Kind) {
	v := &r.form.values
	cmd.Burst = max(0, cmd.Size-1)
	if r.form.any {
		r.variety(cmd, kind)
	}
	if !kind.Limiter() {
		cmd.Burst, cmd.Guard, cmd.Mode = 0, 0, gatehouse.ModeDefault
		cmd.Zone, cmd.Limits, cmd.Calendar = "", nil, gatehouse.NoCalendar
		return
	}
	none := v[size] == nil && v[interval] == nil && v[burst] == nil && v[limits] == nil
	switch cmd.Op {
	case gatehouse.OpPeek, gatehouse.OpDelay:
	case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
		none = none && v[zone] == nil && v[mode] == nil && v[guard] == nil
	default:
		none = false
	}
	if none {
		cmd.Size, cmd.Interval, cmd.Burst = gatehouse.InForce, 0, 0
	}
}

// variety reads what most limiters are used without.
func (r *reader) variety(cmd *gatehouse.Command, kind gatehouse.Kind) {
	v := &r.form.values
	cmd.Burst = r.number(burst, number{cmd.Burst, 0, gatehouse.MaxSize - 1})
	cmd.Guard = r.millis(guard, 0, 0)
	cmd.Zone = string(v[zone])
	if v[mode] != nil {
		r.mode(cmd, kind)
	}
	if v[limits] == nil {
		return
	}
	if v[size] != nil || v[interval] != nil || v[burst] != nil {
		r.fault("limits is %s, want it instead of size, interval and burst, not besides", Quote(v[limits]))
		return
	}
	parsed, err := gatehouse.ParseLimits(string(v[limits]))
	if err != nil {
		r.fault("%w", err)
	}
	cmd.Limits = parsed
}

// mode reads a mode. Kinds that have none take those of all others.
func (r *reader) mode(cmd *gatehouse.Command, kind gatehouse.Kind) {
	names, text := kind.Modes(), string(r.form.values[mode])
	if names == nil {
		names = slices.Concat(gatehouse.SlidingWindow.Modes(), gatehouse.Pace.Modes())
	}
	if !slices.Contains(names, text) {
		r.fault("mode is %s, want one of %s", Quote([]byte(text)), strings.Join(names, " "))
		return
	}
	cmd.Mode, _ = kind.ParseMode(text)
}

// texts reads the key, the message and what else is not looked at.
func (r *reader) texts(cmd *gatehouse.Command, kind gatehouse.Kind) {
	most := [...]struct{ parameter, most int }{
		{key, gatehouse.MaxHolder}, {message, gatehouse.MaxMessage}, {id, gatehouse.MaxMessage},
		{zone, maxZone},
	}
	for _, text := range most {
		if n := len(r.form.values[text.parameter]); n > text.most {
			r.fault("%s has %d bytes, want at most %d", names[text.parameter], n, text.most)
		}
	}
	if k := r.form.values[key]; len(k) > 0 && (HasHolders(kind) || kind.Limiter()) {
		cmd.Holder = string(k)
	}
	if m := r.form.values[message]; len(m) > 0 {
		cmd.Message = string(m)
	}
}

// holder makes a key for an acquire that has none, and refuses what cannot do without.
func (r *reader) holder(cmd *gatehouse.Command, kind gatehouse.Kind) {
	if cmd.Holder != "" {
		return
	}
	switch {
	case cmd.Op == gatehouse.OpAcquire && HasHolders(kind):
		cmd.Holder = uuid.NewString()
	case cmd.Op == gatehouse.OpRelease || cmd.Op == gatehouse.OpRenew:
		r.fault("key is missing, want the key that acquire answered with")
	case cmd.Op == gatehouse.OpCancel:
		r.fault("key is missing, want the key that reserve was given")
	}
}

// fence reads the fencing token of the hold that a release or a renew means. It means nothing without the key
// of that hold, so that one without is refused whatever the operation.
func (r *reader) fence(cmd *gatehouse.Command, kind gatehouse.Kind) {
	text := r.form.values[fence]
	if text == nil {
		return
	}
	token, err := strconv.ParseUint(string(text), 10, 64)
	switch {
	case err != nil:
		r.fault("fence is %s, want a whole number from 0 to %d", Quote(text), uint64(math.MaxUint64))
	case token != 0 && r.form.values[key] == nil:
		r.fault("fence is %d without a key, want the key of that hold with it", token)
	case HasHolders(kind) && (cmd.Op == gatehouse.OpRelease || cmd.Op == gatehouse.OpRenew):
		cmd.Fence = token
	}
}

// maxZone is longer than the name of any time zone.
const maxZone = 64

// HasHolders reports whether what controllers of this kind grant is held under a key, without which
// there is no release.
func HasHolders(kind gatehouse.Kind) bool {
	return kind == gatehouse.Semaphore || kind == gatehouse.Lock
}

// longest is how much of somebody else's text is repeated in a message.
const longest = 80

// Quote makes a text safe to repeat in a message or a log line: escaped, and cut when long.
func Quote(text []byte) string {
	if len(text) > longest {
		return fmt.Sprintf("%q…", text[:longest])
	}
	return fmt.Sprintf("%q", text)
}
