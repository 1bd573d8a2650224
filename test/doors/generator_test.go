package doors

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A generator makes up operations. It stays at one key for a while, so that limits are met.
type generator struct {
	random *rand.Rand
	key    gatehouse.Key
	rules  map[gatehouse.Key]gatehouse.Command // the limit that callers of a key agree on for a while

	// still makes nothing end or come back by itself for an hour: what is decided then does not depend
	// on when.
	still bool
}

func newGenerator(random *rand.Rand) *generator {
	return &generator{random: random, rules: map[gatehouse.Key]gatehouse.Command{}}
}

// chance is true in so many of a hundred cases.
func (g *generator) chance(percent int) bool { return g.random.IntN(100) < percent }

// among is a number from the one to the other.
func (g *generator) among(from, to int64) int64 { return from + g.random.Int64N(to-from+1) }

// one picks one of several.
func one[T any](g *generator, of ...T) T { return of[g.random.IntN(len(of))] }

// pause is how long it takes until the next operation: mostly little, sometimes hours.
func (g *generator) pause() time.Duration {
	switch p := g.random.IntN(100); {
	case p < 40:
		return 0
	case p < 80:
		return time.Duration(g.among(0, int64(300*time.Millisecond)))
	case p < 95:
		return time.Duration(g.among(0, 5)) * 500 * time.Millisecond
	case p < 99:
		return time.Duration(g.among(0, int64(time.Minute)))
	}
	return time.Duration(g.among(0, int64(6*time.Hour)))
}

// next makes up an operation.
func (g *generator) next() operation {
	if g.key.Kind == 0 || g.chance(5) {
		g.key.Kind = gatehouse.Kind(g.among(1, int64(gatehouse.Grant)-1))
		g.key.Name = one(g, "a", "user:1/x y", "größe+50%")
	}
	op := operation{key: g.key, terse: g.chance(50), brief: g.chance(30)}
	if g.chance(2) {
		op.cmd.Op = gatehouse.OpDelete
		return op
	}
	switch kind := g.key.Kind; {
	case g.chance(6):
		op.cmd.Op = gatehouse.OpStats
	case kind.Limiter():
		g.limiter(&op.cmd)
	case kind == gatehouse.Semaphore || kind == gatehouse.Lock:
		g.holder(&op.cmd)
	default:
		g.other(&op.cmd)
	}
	return op
}

// limiter makes up an operation of a limiter.
func (g *generator) limiter(cmd *gatehouse.Command) {
	if _, known := g.rules[g.key]; !known || g.chance(4) {
		g.rules[g.key] = g.rule()
	}
	rule := g.rules[g.key]
	operation := one(g, gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpAcquire,
		gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpReserve,
		gatehouse.OpCancel, gatehouse.OpRefund, gatehouse.OpCharge)
	if g.chance(2) {
		operation = gatehouse.OpReset
	}
	switch operation {
	case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge:
		if *cmd = rule; g.chance(25) {
			*cmd = gatehouse.Command{Rule: gatehouse.Rule{Size: gatehouse.InForce}}
		}
	case gatehouse.OpPeek, gatehouse.OpDelay:
		if g.chance(50) {
			*cmd = rule
		}
	}
	cmd.Op = operation
	switch operation {
	case gatehouse.OpCancel:
		cmd.Holder = g.holderKey()
		return
	case gatehouse.OpReset:
		return
	case gatehouse.OpReserve:
		if g.chance(70) {
			cmd.Holder = g.holderKey()
		}
	case gatehouse.OpPeek:
		if g.chance(30) {
			return // of cost 0
		}
	}
	cmd.Cost = 1
	if g.chance(30) {
		cmd.Cost = g.among(1, 4)
	}
}

// rule makes up a limit.
func (g *generator) rule() gatehouse.Command {
	rule := gatehouse.Command{Rule: gatehouse.Rule{Size: g.size(), Interval: g.interval()}}
	rule.Burst = max(0, rule.Size-1)
	switch {
	case g.chance(25):
		rule = gatehouse.Command{Rule: gatehouse.Rule{Limits: g.limits()}}
	case g.chance(20) && !g.still:
		rule.Interval, rule.Calendar = 0, g.calendar()
		rule.Zone = one(g, "", "Europe/Berlin", "Asia/Kathmandu")
	case g.key.Kind == gatehouse.GCRA && g.chance(60):
		rule.Burst = g.among(0, 9)
	}
	switch g.key.Kind {
	case gatehouse.SlidingWindow:
		rule.Mode = one(g, gatehouse.ModeDefault, gatehouse.ModeFine, gatehouse.ModeStrict)
	case gatehouse.Pace:
		rule.Mode = one(g, gatehouse.ModeDefault, gatehouse.ModePaced, gatehouse.ModeClassic)
		rule.Guard = one(g, 0, 0, 7*time.Millisecond, time.Second)
	}
	return rule
}

func (g *generator) size() int64 {
	if g.chance(4) {
		return 0
	}
	return g.among(1, 12)
}

func (g *generator) interval() time.Duration {
	if g.still {
		return one(g, longTime, longTime+time.Hour)
	}
	return one(g, 70*time.Millisecond, time.Second, time.Second, 2*time.Second, 7*time.Second,
		90*time.Second, time.Hour)
}

func (g *generator) calendar() gatehouse.Calendar {
	return one(g, gatehouse.Day, gatehouse.Week, gatehouse.Month)
}

// limits are two or three, one longer than the other.
func (g *generator) limits() gatehouse.LimitList {
	size := g.among(1, 6)
	if g.still {
		return gatehouse.NewLimitList(
			gatehouse.Limit{Size: size, Interval: longTime},
			gatehouse.Limit{Size: size + g.among(0, 10), Interval: longTime + time.Hour},
		)
	}
	limits := []gatehouse.Limit{
		{Size: size, Interval: one(g, 200*time.Millisecond, time.Second)},
		{Size: size + g.among(0, 10), Interval: one(g, 5*time.Second, time.Minute)},
	}
	if g.chance(50) {
		limits = append(limits, gatehouse.Limit{Size: size + g.among(5, 50), Calendar: g.calendar()})
	}
	return gatehouse.NewLimitList(limits...)
}

// longTime is an interval of which even a fiftieth is longer than any test.
const longTime = 100 * 24 * time.Hour

// expires is how long a hold or a watchdog lasts; 0 is never, or at once.
func (g *generator) expires() time.Duration {
	if g.still {
		return one(g, 0, time.Hour)
	}
	return one(g, 0, time.Second, 20*time.Second, gatehouse.DefaultExpires)
}

func (g *generator) holderKey() string { return fmt.Sprintf("key %d", g.among(1, 5)) }

// holder makes up an operation of a semaphore or a lock.
func (g *generator) holder(cmd *gatehouse.Command) {
	*cmd = gatehouse.Command{
		Op: one(g,
			gatehouse.OpAcquire, gatehouse.OpAcquire, gatehouse.OpRelease, gatehouse.OpRenew),
		Holder: g.holderKey(), Expires: g.expires(),
	}
	switch {
	case cmd.Op == gatehouse.OpRelease:
		cmd.Expires = 0
	case cmd.Op == gatehouse.OpRenew && g.chance(50):
		cmd.Expires = gatehouse.AsAcquired
	case cmd.Op == gatehouse.OpAcquire:
		cmd.Cost, cmd.Size = 1, 1
		if cmd.Extend = g.chance(20); cmd.Extend && g.chance(50) {
			cmd.Expires = gatehouse.AsAcquired
		}
		if g.key.Kind == gatehouse.Semaphore {
			cmd.Cost, cmd.Size = g.among(1, 3), g.among(0, 5)
			if g.chance(25) {
				cmd.Size = gatehouse.InForce
			}
		}
	}
}

// other makes up an operation of what is neither a limiter nor held.
func (g *generator) other(cmd *gatehouse.Command) {
	switch g.key.Kind {
	case gatehouse.Event:
		cmd.Op = one(g, gatehouse.OpWait, gatehouse.OpWait, gatehouse.OpSend)
		if cmd.Op == gatehouse.OpSend {
			cmd.Message = one(g, "", "done", "100 % größer\n", `"x"`)
		}
	case gatehouse.Watchdog:
		cmd.Op = one(g, gatehouse.OpWait, gatehouse.OpWait, gatehouse.OpKick)
		if cmd.Op == gatehouse.OpKick {
			cmd.Expires = g.expires()
		}
	case gatehouse.Barrier:
		cmd.Op, cmd.Size = gatehouse.OpWait, g.among(0, 2)
	case gatehouse.Counter:
		cmd.Op = one(g, gatehouse.OpCount, gatehouse.OpCount, gatehouse.OpValue, gatehouse.OpReset)
		if cmd.Op != gatehouse.OpValue {
			cmd.Amount = one[int64](g, 0, 1, -5, 1000, math.MaxInt64, math.MinInt64)
		}
	default:
		panic("gatetest: no operations of " + g.key.Kind.String())
	}
}
