package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A GrantRecord is the record of a grant over several names: its members, how much of each counts, and until
// when. It is neither a lock nor a limit. What the members hold ends by itself when the grant does, so that
// nothing need be done then. The record is kept for a while after that, so that commands with its id are told
// that it has ended.
//
// Its answers are shared with later readers, so each change makes a new one.
type GrantRecord struct {
	last      *gatehouse.GrantRecord // nil when there is none
	settled   []time.Time            // when each member was settled last; nil if none was
	answers   int32                  // how many acquires were answered with it, at most maxAnswers
	confirmed bool                   // it was renewed, settled or topped up: its holder knows of it
}

// Step implements [State].
func (r *GrantRecord) Step(now time.Time, turn *Turn) {
	r.passTime(now)
	// A trial of a joint change is answered by the same function, so that the two cannot differ.
	tryRecord(r, now, turn)
	if turn.Decision.Outcome != gatehouse.Granted || turn.Grant == nil || turn.Grant.Trial {
		return
	}
	switch turn.Op {
	case gatehouse.OpAcquire:
		r.begin(now, turn)
	case gatehouse.OpRenew, gatehouse.OpTopUp, gatehouse.OpSettle, gatehouse.OpRelease:
		r.follow(now, turn)
	}
	r.fillAnswer(now, &turn.Decision)
}

// passTime ends a grant whose time is up, and forgets one that ended long ago.
func (r *GrantRecord) passTime(now time.Time) {
	switch {
	case r.last == nil:
	case !r.Expiry().After(now):
		*r = GrantRecord{}
	case !r.last.Ended && !r.last.Until.After(now):
		ended := *r.last
		ended.Ended = true
		// Limiters end their part of it by the same rule at the same instant.
		switch ended.OnExpiry {
		case gatehouse.ExpiryEstimate:
			ended.Counted = slices.Clone(ended.Counted)
			for i, taken := range ended.Taken {
				ended.Counted[i] = max(ended.Counted[i], taken)
			}
		case gatehouse.ExpiryZero:
			ended.Counted = make([]int64, len(ended.Want))
		}
		r.last = &ended
	}
}

// tryRecord answers what a turn would be, and changes nothing but how often it was answered. r may be nil.
func tryRecord(r *GrantRecord, now time.Time, turn *Turn) {
	d := &turn.Decision
	*d = gatehouse.Decision{Outcome: gatehouse.Granted, At: now}
	absent := r == nil || r.last == nil
	switch {
	case absent && turn.Op == gatehouse.OpAcquire:
		d.Fence = leastFence(now, turn)
		return
	case absent:
		*d = failedWith(now, gatehouse.Missing, "is not there: it never was, or ended long ago")
		return
	}
	switch turn.Op {
	case gatehouse.OpAcquire:
		d.Outcome, d.Message = gatehouse.Conflict, "is there already, and wants something else"
		switch {
		case r.last.Ended:
			d.Message = "has ended, and its id is remembered"
		case turn.Grant == nil || !slices.Equal(turn.Grant.Command.Want, r.last.Want):
		case turn.Grant.lost != "":
			// The client that asks again must not go on: another one may hold it by now.
			d.Message = "does not hold " + turn.Grant.lost + " any more: it was evicted, or the name deleted"
			return
		default:
			// The same acquire is answered with the same grant. An undo of one answer leaves it to the other.
			r.answers = addAnswer(r.answers)
		}
	case gatehouse.OpRenew, gatehouse.OpTopUp, gatehouse.OpSettle, gatehouse.OpRelease:
		d.Message = r.liveFault(turn)
		if d.Message != "" {
			d.Outcome = gatehouse.Conflict
		}
	case gatehouse.OpStats:
		d.Stats = r.recordStats()
	}
	r.fillAnswer(now, d)
}

// leastFence is the fencing token that a grant has at least.
func leastFence(now time.Time, turn *Turn) uint64 {
	if turn.MinFence != 0 {
		return turn.MinFence
	}
	return uint64(now.UnixMicro()) // the present is after 1970
}

// liveFault says why an operation on the grant that goes on comes too late, or means another; "" if it does
// not.
func (r *GrantRecord) liveFault(turn *Turn) string {
	switch {
	case r.last.Ended:
		return "has ended: it was released or has expired"
	case turn.Fence != 0 && turn.Fence != r.last.Fence:
		return fmt.Sprintf("has fencing token %d, not %d: the grant of that token is over",
			r.last.Fence, turn.Fence)
	}
	return ""
}

// fillAnswer fills in how the grant stands.
func (r *GrantRecord) fillAnswer(now time.Time, d *gatehouse.Decision) {
	d.Grant, d.Fence, d.ExpiresAfter = r.last, r.last.Fence, 0
	if !r.last.Ended {
		d.ExpiresAfter = r.last.Until.Sub(now)
	}
}

// begin begins a grant.
func (r *GrantRecord) begin(now time.Time, turn *Turn) {
	cmd := turn.Grant.Command
	one := &gatehouse.GrantRecord{
		Want: slices.Clone(cmd.Want), Taken: make([]int64, len(cmd.Want)), Fence: leastFence(now, turn),
		Since: now, Until: now.Add(turn.Expires), Expires: turn.Expires,
		Overrun: turn.Grant.Overrun, OnExpiry: turn.Grant.OnExpiry,
	}
	for i := range one.Want {
		one.Taken[i] = one.Want[i].Cost
	}
	// A cost that was clipped is less than what was asked for.
	for i := range turn.Grant.served {
		if p := &turn.Grant.served[i]; p.Key.Kind.Limiter() && p.wouldPass() {
			one.Taken[p.Turn.Grant.Member] = p.Turn.Decision.Value
		}
	}
	one.Counted = one.Taken // neither is ever changed
	*r = GrantRecord{last: one, answers: 1}
}

// follow notes what became of the grant.
func (r *GrantRecord) follow(now time.Time, turn *Turn) {
	one := *r.last
	// Callers that were answered with the record still use it.
	one.Taken, one.Counted = slices.Clone(one.Taken), slices.Clone(one.Counted)
	for i := range turn.Grant.served {
		p := &turn.Grant.served[i]
		// An optional part may have been refused, as its name was deleted meanwhile.
		if !p.Key.Kind.Limiter() || !p.wouldPass() {
			continue
		}
		m := p.Turn.Grant.Member
		one.Counted[m] = p.Turn.Decision.Value
		if turn.Op == gatehouse.OpTopUp {
			one.Taken[m] = addSaturating(one.Taken[m], p.Turn.Cost)
		}
	}
	switch turn.Op {
	case gatehouse.OpSettle:
		r.noteSettled(now, turn)
	case gatehouse.OpRenew:
		one.Expires = turn.Expires
		if one.Expires == gatehouse.AsAcquired {
			one.Expires = r.last.Expires
		}
		one.Until = now.Add(one.Expires)
	case gatehouse.OpRelease:
		one.Until, one.Ended = now, true
	}
	if one.Until.Before(one.Since) {
		one.Since = one.Until // the clock was set back
	}
	r.last, r.confirmed = &one, true
}

// noteSettled notes which members were settled.
func (r *GrantRecord) noteSettled(now time.Time, turn *Turn) {
	settled := make([]time.Time, len(r.last.Want))
	copy(settled, r.settled)
	r.settled = settled // copies of the state have the old one
	for i := range turn.Grant.served {
		if p := &turn.Grant.served[i]; p.Key.Kind.Limiter() && p.wouldPass() {
			r.settled[p.Turn.Grant.Member] = now
		}
	}
}

// settledSince reports whether a member was settled at an instant or later: then it counts what it was
// settled at, and not what was added before.
func (r *GrantRecord) settledSince(member int, at time.Time) bool {
	return member >= 0 && member < len(r.settled) && !r.settled[member].IsZero() &&
		!r.settled[member].Before(at)
}

// forgetAnswer takes back one answer about the grant, and reports whether the grant stays, because another
// caller was answered too or its holder has used it since.
func (r *GrantRecord) forgetAnswer(now time.Time, turn *Turn) (stays bool) {
	r.passTime(now)
	granted := turn.Granted
	switch {
	case r.last == nil || granted == nil || granted.Fence != r.last.Fence || r.last.Ended:
		return false
	case turn.Grant != nil && turn.Grant.Command.Op == gatehouse.OpTopUp:
		return false // what is taken back is no acquire
	case r.answers > 1 && r.answers < maxAnswers:
		r.answers--
		return true
	}
	return r.confirmed || r.answers == maxAnswers
}

// Undo implements [State]. It takes back an acquire, after which the grant is as if it had never been, or a
// topup.
func (r *GrantRecord) Undo(now time.Time, turn *Turn) {
	r.passTime(now)
	if r.last == nil || turn.Granted == nil || turn.Granted.Fence != r.last.Fence || r.last.Ended {
		return
	}
	if turn.Grant == nil || turn.Grant.Command.Op != gatehouse.OpTopUp {
		*r = GrantRecord{}
		return
	}
	one := *r.last
	one.Taken, one.Counted = slices.Clone(one.Taken), slices.Clone(one.Counted)
	for i := range one.Want {
		// As its limiter does.
		if cost, told := costOf(turn.Grant.Command.Costs, one.Want[i].Key); told {
			one.Taken[i] -= min(cost, one.Taken[i])
			// A settle has said the whole cost since, and that stays.
			if !r.settledSince(i, turn.Granted.At) {
				one.Counted[i] -= min(cost, one.Counted[i])
			}
		}
	}
	r.last = &one
}

// Expiry implements [State].
func (r *GrantRecord) Expiry() time.Time {
	if r.last == nil {
		return time.Unix(0, 0)
	}
	return r.last.Until.Add(gatehouse.RememberedFor(r.last.Expires))
}

// recordStats are the statistics of a grant.
func (r *GrantRecord) recordStats() []gatehouse.Stat {
	return []gatehouse.Stat{
		{Name: "members", Value: int64(len(r.last.Want))},
		{Name: "created_at", Value: r.last.Since},
		{Name: "until", Value: r.last.Until},
		{Name: "ended", Value: fmt.Sprint(r.last.Ended)},
	}
}

// Record is what is remembered of the grant as it stood after the last turn, nil when there is none; it must
// not be changed.
func (r *GrantRecord) Record() *gatehouse.GrantRecord { return r.last }

// Weight implements [State].
func (r *GrantRecord) Weight() int {
	if r == nil || r.last == nil {
		return recordWeight
	}
	return recordWeight + wantWeight(r.last.Want)
}

// wantWeight is what a list of members takes in a record, with what was taken of them, and counts.
func wantWeight(want []gatehouse.Member) int {
	weight := len(want) * memberWeight
	for i := range want {
		m := &want[i]
		weight += len(m.Key.Name) + textWeight + m.Limits.Len()*limitTextWeight + len(m.Zone)
	}
	return weight
}

// recordGrowth is the most that the record of a new grant takes.
func recordGrowth(turn *Turn) int {
	if turn.Op != gatehouse.OpAcquire {
		return 0
	}
	return recordWeight + wantWeight(turn.Grant.Command.Want)
}
