package resp

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/digits"
)

// rateGroup is the group of commands of which many are answered together; see batch.
const rateGroup = "rate_limit"

// throttleCommands are those that others have for the generic cell rate algorithm. All of them limit
// the controller of kind gcra that has their key for a name.
func throttleCommands() []*command {
	const group = rateGroup
	flags := []string{writes, fast}
	const cell = "key max_burst count period [quantity]"
	return []*command{
		{"CL.THROTTLE", -1, flags, true, group, cell,
			"Limits a rate as redis-cell does.", (*session).cellThrottle},
		{"THROTTLE", -5, flags, true, group, cell,
			"Limits a rate as throttlecrab does.", (*session).crabThrottle},
		{"GCRA", -5, flags, true, group, "key max-burst tokens-per-period period [TOKENS count]",
			"Limits a rate as Redis was to do from 8.8 on.", (*session).gcraThrottle},
	}
}

// A throttleRate is a number of calls per period, and a burst beyond the first.
type throttleRate struct {
	burst, count int64
	period       time.Duration
}

// parseNumbers reads a burst, a count, a period and a quantity, which is 1 when it is left out. bad is which
// of them is no number, -1 when all are.
func parseNumbers(args [][]byte) (numbers [4]int64, bad int) {
	numbers[3] = 1
	for i, arg := range args {
		n, ok := digits.ParseInteger(arg)
		if !ok {
			return numbers, i
		}
		numbers[i] = n
	}
	return numbers, -1
}

// secondsDuration returns n seconds, n at least 0, or the longest duration when n seconds do not fit into
// one.
func secondsDuration(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(n) * time.Second
}

const cellUsage = "Usage: cl.throttle <key> <max_burst> <count per period> <period> [<quantity>]"

// cellThrottle answers CL.THROTTLE key max_burst count period [quantity] as redis-cell does: whether it
// is limited, the limit, what remains, and the seconds until it can be tried again and until all is
// given back, each rounded up from milliseconds.
func (s *session) cellThrottle(args [][]byte) {
	// redis-cell answers its usage here, and not the error of Redis: so the table has an arity of -1.
	if len(args) != 5 && len(args) != 6 {
		s.answerBareError(cellUsage)
		return
	}
	numbers, bad := parseNumbers(args[2:])
	if bad >= 0 {
		s.answerError("ERR", "value is not an integer or out of range")
		return
	}
	r := throttleRate{numbers[0], numbers[1], secondsDuration(numbers[2])}
	switch {
	// The period is checked in seconds, as it came: the product of a number far below 0 may have overflowed.
	case r.burst < 0 || r.count < 0 || numbers[2] < 0:
		s.answerError("INVALID", fmt.Sprintf(
			"cl.throttle of max_burst %d, count %d, period %d, want none below 0",
			r.burst, r.count, numbers[2]))
		return
	// More than one per nanosecond would have a step of 0, which is as unlimited as a period of 0.
	case r.count == 0 || int64(r.period) < r.count:
		s.answerBareError("Zero rates are not supported")
		return
	}
	s.limitRate(args[1], &rateRequest{r, numbers[3], cellForm})
}

// writeRate answers a command for a rate. All forms begin alike, with whether it is limited or allowed, the
// limit, and what remains; two times follow.
func (r *replyWriter) writeRate(call *rateCall, v *rateResult) {
	head := "*5\r\n:0\r\n"
	// throttlecrab tells whether it is allowed, the others whether it is limited.
	if v.limited != (call.wanted.form == crabForm) {
		head = "*5\r\n:1\r\n"
	}
	out := appendLine(append(append(r.out, head...), call.limit...), ':', v.remaining)
	if call.wanted.form == cellForm {
		r.out = appendLine(appendLine(out, ':', cellSeconds(v.retry)), ':', cellSeconds(v.reset))
		return
	}
	r.out = out
	switch call.wanted.form {
	case crabForm:
		r.writeCrabTimes(v)
	case gcraForm:
		r.writeGCRATimes(v)
	}
}

// cellSeconds are the seconds of redis-cell: cut off, and one more if there is a millisecond left.
func cellSeconds(d time.Duration) int64 {
	if d == gatehouse.Forever {
		return -1
	}
	ms := d.Milliseconds()
	return ms/1000 + int64(boolToInt(ms%1000 > 0))
}

// crabThrottle answers THROTTLE key max_burst count period [quantity] as throttlecrab documents:
// whether it is allowed, the limit, what remains, and the seconds until all is given back and until it
// can be tried again, cut off. max_burst is all that passes at once, the first included.
func (s *session) crabThrottle(args [][]byte) {
	if len(args) > 6 {
		s.wrongArity("THROTTLE")
		return
	}
	numbers, bad := parseNumbers(args[2:])
	if bad >= 0 {
		what := [...]string{"max_burst", "count_per_period", "period", "quantity"}[bad]
		s.answerError("ERR", "invalid "+what)
		return
	}
	most, times, period, quantity := numbers[0], numbers[1], numbers[2], numbers[3]
	switch {
	case quantity < 0:
		s.answerError("ERR", fmt.Sprintf("negative quantity: %d", quantity))
		return
	case most <= 0 || times <= 0 || period <= 0:
		s.answerError("ERR", "invalid rate limit parameters")
		return
	}
	r := throttleRate{most - 1, times, secondsDuration(period)} // all that passes at once includes the first
	s.limitRate(args[1], &rateRequest{r, quantity, crabForm})
}

// writeCrabTimes ends an answer of throttlecrab.
func (r *replyWriter) writeCrabTimes(v *rateResult) {
	r.writeInteger(int64(v.reset / time.Second))
	switch {
	case !v.limited:
		r.writeInteger(0)
	case v.retry == gatehouse.Forever: // throttlecrab has a time here, at which it would refuse again
		r.writeInteger(-1)
	default:
		r.writeInteger(int64(v.retry / time.Second))
	}
}

// longestPeriod is how many seconds a GCRA's period has at most, which is Redis's limit too.
const longestPeriod = 1e12

// gcraThrottle answers GCRA key max-burst tokens-per-period period [TOKENS count], as it stood when it was
// taken out of Redis 8.8: whether the request is limited, the limit, what remains, and two times in seconds,
// with fractions: until it can be tried again, and until the whole limit is back. TOKENS was NUM_REQUESTS
// before.
func (s *session) gcraThrottle(args [][]byte) {
	if len(args) > 7 {
		s.wrongArity("GCRA")
		return
	}
	// The fixed arguments are judged before TOKENS, so that one error is answered, the first.
	burst, ok := digits.ParseInteger(args[2])
	times, known := digits.ParseInteger(args[3])
	period, err := strconv.ParseFloat(string(args[4]), 64)
	switch {
	case !ok || !known:
		s.answerError("ERR", "value is not an integer or out of range")
		return
	case burst < 0 || times < 1:
		s.answerError("ERR", "value is out of range, must be positive")
		return
	// Go reads 1_0 as 10, and Redis does not.
	case err != nil || bytes.IndexByte(args[4], '_') >= 0:
		s.answerError("ERR", "value is not a valid float")
		return
	// Written with a not, so that NaN, which is neither below nor above anything, is refused too.
	case !(period >= 1 && period <= longestPeriod):
		s.answerError("ERR", "period must be >= 1 and <= 1e12")
		return
	}
	quantity, ok := s.readTokens(args[5:])
	if !ok {
		return
	}
	// 1e12 s are more than a Duration holds (292 years), and what such a conversion yields depends on the
	// processor.
	length := time.Duration(min(period, float64(math.MaxInt64/time.Second)) * float64(time.Second))
	s.limitRate(args[1], &rateRequest{throttleRate{burst, times, length}, quantity, gcraForm})
}

// writeGCRATimes ends an answer of Redis.
func (r *replyWriter) writeGCRATimes(v *rateResult) {
	if v.retry == gatehouse.Forever {
		r.writeDouble(-1)
	} else {
		r.writeSeconds(v.retry)
	}
	r.writeSeconds(v.reset)
}

// writeSeconds answers a length of time in seconds. [time.Duration.Seconds] adds two parts, which has a digit
// too many in it now and then: 2.7748692139999998 for 2.774869214.
func (r *replyWriter) writeSeconds(d time.Duration) { r.writeDouble(float64(d) / float64(time.Second)) }

// readTokens reads [TOKENS count].
func (s *session) readTokens(options [][]byte) (n int64, ok bool) {
	if len(options) == 0 {
		return 1, true
	}
	option := upperWord(options[0])
	switch {
	case option != "TOKENS" && option != "NUM_REQUESTS":
		s.answerError("ERR", "syntax error")
		return 0, false
	case len(options) == 1:
		s.answerError("ERR", "Missing "+option+" value")
		return 0, false
	}
	n, ok = digits.ParseInteger(options[1])
	if !ok || n < 0 {
		s.answerError("ERR", "value is out of range, must be positive")
		return 0, false
	}
	return n, true
}
