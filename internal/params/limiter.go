package params

import (
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse"
)

// This file reads what only limiters have.

// readLimiter reads what only limiters have. Other kinds check it and leave it at that.
func (r *formReader) readLimiter(cmd *gatehouse.Command, kind gatehouse.Kind) {
	v := &r.values.texts
	// A GCRA lets its whole size through at once unless a burst is given.
	cmd.Burst = max(0, cmd.Size-1)
	if r.values.named&limiterOptions != 0 {
		r.readLimiterOptions(cmd, kind)
	}
	// Other kinds have read and checked these parameters; they must not act on them.
	if !kind.Limiter() {
		cmd.Rule = gatehouse.Rule{Size: cmd.Size, Interval: cmd.Interval}
		return
	}
	none := v[sizeParameter] == nil && v[intervalParameter] == nil && v[burstParameter] == nil &&
		v[limitsParameter] == nil
	// A request without any part of a limit is judged by the limit in force.
	switch cmd.Op {
	case gatehouse.OpPeek, gatehouse.OpDelay:
	case gatehouse.OpAcquire, gatehouse.OpReserve, gatehouse.OpCharge, gatehouse.OpFeedback:
		none = none && v[zoneParameter] == nil && v[modeParameter] == nil && v[guardParameter] == nil
	default:
		// What remains never names a limit, so nothing is to be set.
		none = false
	}
	if none {
		cmd.Size, cmd.Interval, cmd.Burst = gatehouse.InForce, 0, 0
	}
}

// readLimiterOptions reads what most limiters are used without.
func (r *formReader) readLimiterOptions(cmd *gatehouse.Command, kind gatehouse.Kind) {
	v := &r.values.texts
	cmd.Burst = r.readNumber(burstParameter, numberRange{cmd.Burst, 0, gatehouse.MaxSize - 1})
	cmd.Guard = r.readMillis(guardParameter, 0, 0)
	cmd.Zone = string(v[zoneParameter])
	if v[modeParameter] != nil {
		r.readMode(cmd, kind)
	}
	if v[limitsParameter] == nil {
		return
	}
	if v[sizeParameter] != nil || v[intervalParameter] != nil || v[burstParameter] != nil {
		r.failParameter("limits is %s, want it instead of size, interval and burst, not besides",
			Quote(v[limitsParameter]))
		return
	}
	// A list replaces size, interval and burst; both together would contradict one another.
	parsed, err := gatehouse.ParseLimits(string(v[limitsParameter]))
	if err != nil {
		r.failParameter("%w", err)
	}
	cmd.Limits = parsed
}

// readMode reads a mode. Kinds that have none take those of all others.
func (r *formReader) readMode(cmd *gatehouse.Command, kind gatehouse.Kind) {
	// Every kind checks all parameters, so one without modes accepts those of all kinds.
	names, text := kind.Modes(), string(r.values.texts[modeParameter])
	if names == nil {
		names = slices.Concat(gatehouse.SlidingWindow.Modes(), gatehouse.Pace.Modes())
	}
	if !slices.Contains(names, text) {
		r.failParameter("mode is %s, want one of %s", Quote([]byte(text)), strings.Join(names, " "))
		return
	}
	cmd.Mode, _ = kind.ParseMode(text)
}
