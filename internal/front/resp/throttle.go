package resp

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
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
			"Limits a rate as Redis was to do from 8.8 on.", (*session).gcra},
	}
}

// A rate is so many per period, and a burst beyond the first.
type rate struct {
	burst, count int64
	period       time.Duration
}

// shortNumber is how many digits are sure to fit 64 bits.
const shortNumber = 18

// number reads a whole number.
func number(text []byte) (n int64, ok bool) {
	if len(text) == 0 || len(text) > shortNumber {
		n, err := strconv.ParseInt(string(text), 10, 64)
		return n, err == nil
	}
	for _, c := range text {
		digit := c - '0'
		if digit > 9 {
			n, err := strconv.ParseInt(string(text), 10, 64) // it may have a sign
			return n, err == nil
		}
		n = 10*n + int64(digit)
	}
	return n, true
}

// seconds makes a length of time of so many seconds, from 0, the longest there is when they are too many.
func seconds(n int64) time.Duration {
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
	if len(args) != 5 && len(args) != 6 {
		s.failBare(cellUsage)
		return
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		var ok bool
		numbers[i], ok = number(arg)
		if !ok {
			s.fail("ERR", "value is not an integer or out of range")
			return
		}
	}
	r := rate{numbers[0], numbers[1], seconds(numbers[2])}
	switch {
	case r.burst < 0 || r.count < 0 || numbers[2] < 0:
		s.fail("INVALID", fmt.Sprintf(
			"cl.throttle of max_burst %d, count %d, period %d, want none below 0",
			r.burst, r.count, numbers[2]))
		return
	case r.count == 0 || int64(r.period) < r.count:
		s.failBare("Zero rates are not supported")
		return
	}
	s.limit(args[1], demand{r, numbers[3], cellVerdict})
}

func cellVerdict(a *reply, v verdict) {
	a.array(5)
	a.integer(int64(count(v.limited)))
	a.integer(v.limit)
	a.integer(v.remaining)
	a.integer(cellSeconds(v.retry))
	a.integer(cellSeconds(v.reset))
}

// cellSeconds are the seconds of redis-cell: cut off, and one more if there is a millisecond left.
func cellSeconds(d time.Duration) int64 {
	if d == gatehouse.Forever {
		return -1
	}
	ms := d.Milliseconds()
	return ms/1000 + int64(count(ms%1000 > 0))
}

// crabThrottle answers THROTTLE key max_burst count period [quantity] as throttlecrab documents:
// whether it is allowed, the limit, what remains, and the seconds until all is given back and until it
// can be tried again, cut off. max_burst is all that passes at once, the first included.
func (s *session) crabThrottle(args [][]byte) {
	if len(args) > 6 {
		s.wrongArity("THROTTLE")
		return
	}
	numbers := [4]int64{3: 1}
	for i, arg := range args[2:] {
		var ok bool
		numbers[i], ok = number(arg)
		if !ok {
			what := [...]string{"max_burst", "count_per_period", "period", "quantity"}[i]
			s.fail("ERR", "invalid "+what)
			return
		}
	}
	most, times, period, quantity := numbers[0], numbers[1], numbers[2], numbers[3]
	switch {
	case quantity < 0:
		s.fail("ERR", fmt.Sprintf("negative quantity: %d", quantity))
		return
	case most <= 0 || times <= 0 || period <= 0:
		s.fail("ERR", "invalid rate limit parameters")
		return
	}
	s.limit(args[1], demand{rate{most - 1, times, seconds(period)}, quantity, crabVerdict})
}

func crabVerdict(a *reply, v verdict) {
	a.array(5)
	a.integer(int64(count(!v.limited)))
	a.integer(v.limit)
	a.integer(v.remaining)
	a.integer(int64(v.reset / time.Second))
	switch {
	case !v.limited:
		a.integer(0)
	case v.retry == gatehouse.Forever: // throttlecrab has a time here, at which it would refuse again
		a.integer(-1)
	default:
		a.integer(int64(v.retry / time.Second))
	}
}

// longestPeriod is how many seconds a GCRA's period has at most, which is Redis's limit too.
const longestPeriod = 1e12

// gcra answers GCRA key max-burst tokens-per-period period [TOKENS count], as it stood when it was taken
// out of Redis 8.8: whether it is limited, the limit, what remains, and the seconds, with fractions,
// until it can be tried again and until all is given back. TOKENS was NUM_REQUESTS before.
func (s *session) gcra(args [][]byte) {
	if len(args) > 7 {
		s.wrongArity("GCRA")
		return
	}
	burst, ok := number(args[2])
	times, known := number(args[3])
	period, err := strconv.ParseFloat(string(args[4]), 64)
	switch {
	case !ok || !known:
		s.fail("ERR", "value is not an integer or out of range")
		return
	case burst < 0 || times < 1:
		s.fail("ERR", "value is out of range, must be positive")
		return
	case err != nil:
		s.fail("ERR", "value is not a valid float")
		return
	case !(period >= 1 && period <= longestPeriod):
		s.fail("ERR", "period must be >= 1 and <= 1e12")
		return
	}
	quantity, ok := s.tokens(args[5:])
	if !ok {
		return
	}
	length := time.Duration(min(period, float64(math.MaxInt64/time.Second)) * float64(time.Second))
	s.limit(args[1], demand{rate{burst, times, length}, quantity, gcraVerdict})
}

func gcraVerdict(a *reply, v verdict) {
	a.array(5)
	a.integer(int64(count(v.limited)))
	a.integer(v.limit)
	a.integer(v.remaining)
	if v.retry == gatehouse.Forever {
		a.double(-1)
	} else {
		a.double(v.retry.Seconds())
	}
	a.double(v.reset.Seconds())
}

// tokens reads [TOKENS count].
func (s *session) tokens(options [][]byte) (n int64, ok bool) {
	if len(options) == 0 {
		return 1, true
	}
	option := word(options[0])
	switch {
	case option != "TOKENS" && option != "NUM_REQUESTS":
		s.fail("ERR", "syntax error")
		return 0, false
	case len(options) == 1:
		s.fail("ERR", "Missing "+option+" value")
		return 0, false
	}
	n, ok = number(options[1])
	if !ok || n < 0 {
		s.fail("ERR", "value is out of range, must be positive")
		return 0, false
	}
	return n, true
}
