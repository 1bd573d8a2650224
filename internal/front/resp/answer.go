package resp

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// A question is what was asked, as far as its answer depends on it. It outlives the command's text
// while that waits.
type question struct {
	key     gatehouse.Key
	holder  string // what an acquire is answered with, where something is held
	op      gatehouse.Op
	details bool
	since   instant // when it was put off
}

// outcomes are the codes of what is neither granted nor refused.
var outcomes = [...]string{
	gatehouse.Conflict:  "CONFLICT",
	gatehouse.Deleted:   "DELETED",
	gatehouse.Missing:   "NOTFOUND",
	gatehouse.Invalid:   "INVALID",
	gatehouse.Exhausted: "EXHAUSTED",
}

// codes are those of errors.
var codes = [...]string{
	gatehouse.CodeInternal:    "INTERNAL",
	gatehouse.CodeInvalid:     "INVALID",
	gatehouse.CodeExhausted:   "EXHAUSTED",
	gatehouse.CodeUnavailable: "UNAVAILABLE",
	gatehouse.CodeTimeout:     "TIMEOUT",
}

// answer answers a decision, or the error that took its place.
func (s *session) answer(q *question, d *gatehouse.Decision, err error) {
	s.count(q.key, q.op, d, err)
	r := &s.loop.reply
	switch {
	case err != nil:
		r.fail(codes[gatehouse.CodeOf(err)], err.Error())
	case d.Outcome > gatehouse.Granted:
		s.refuse(q.key, d)
	case q.details || q.op == gatehouse.OpPeek:
		r.decision(q, d)
	case d.Outcome == gatehouse.Refused:
		r.null()
	default:
		r.value(q, d)
	}
}

// refuse answers what was neither granted nor refused.
func (s *session) refuse(key gatehouse.Key, d *gatehouse.Decision) {
	text := d.Message
	if d.Outcome == gatehouse.Missing {
		text = "does not exist"
	}
	s.loop.reply.fail(outcomes[d.Outcome], key.String()+" "+text)
}

// count notes an answer in the metrics, and on the log when that is wanted.
func (s *session) count(key gatehouse.Key, op gatehouse.Op, d *gatehouse.Decision, err error) {
	outcome := gatehouse.Granted
	if err == nil {
		outcome = d.Outcome
	}
	known := telemetry.OutcomeOf(outcome, err)
	s.loop.tallies.count(key.Kind, op, known)
	if s.server.debug {
		s.server.log.Debug("answered", "kind", key.Kind.String(), "name", key.Name, "op", op.String(),
			"outcome", known.String())
	}
}

// value answers a grant with what there is to tell, or with OK.
func (r *reply) value(q *question, d *gatehouse.Decision) {
	switch q.op {
	case gatehouse.OpAcquire:
		if params.HasHolders(q.key.Kind) {
			r.text(q.holder)
			return
		}
	case gatehouse.OpWait:
		if q.key.Kind == gatehouse.Event {
			r.text(d.Message)
			return
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		r.integer(d.Value)
		return
	case gatehouse.OpDelay, gatehouse.OpReserve:
		r.integer(params.CeilMillis(d.Delay))
		return
	case gatehouse.OpStats:
		r.stats(d.Stats)
		return
	}
	r.ok()
}

// stats answers a controller's figures. Times are RFC 3339, lengths of time milliseconds.
func (r *reply) stats(stats []gatehouse.Stat) {
	r.mapping(len(stats))
	for _, stat := range stats {
		r.text(stat.Name)
		switch value := stat.Value.(type) {
		case int64:
			r.integer(value)
		case time.Duration:
			r.integer(value.Milliseconds())
		case time.Time:
			if value.IsZero() {
				r.null()
			} else {
				r.text(value.UTC().Format(time.RFC3339))
			}
		default:
			r.text(fmt.Sprint(value))
		}
	}
}

// decision answers all there is to know about a decision, as a map.
func (r *reply) decision(q *question, d *gatehouse.Decision) {
	held, limiter := params.HasHolders(q.key.Kind), q.key.Kind.Limiter()
	wait := q.op == gatehouse.OpDelay || q.op == gatehouse.OpReserve || q.op == gatehouse.OpCharge
	value := q.op == gatehouse.OpCount || q.op == gatehouse.OpValue
	message := q.op == gatehouse.OpWait && q.key.Kind == gatehouse.Event
	figures := q.op == gatehouse.OpStats
	r.mapping(1 + 3*count(held || limiter) + count(limiter) + count(len(d.Windows) > 0) +
		count(q.holder != "") + 2*count(d.Fence != 0) + count(wait) + count(value) + count(message) +
		count(figures))
	r.pair("granted", int64(count(d.Outcome == gatehouse.Granted)))
	if held || limiter {
		r.pair("limit", d.Limit)
		r.pair("remaining", d.Remaining)
		r.pair("retry_after", params.CeilMillis(d.RetryAfter))
	}
	if limiter {
		r.pair("reset_after", params.CeilMillis(d.ResetAfter))
	}
	if len(d.Windows) > 0 {
		r.text("windows")
		r.windows(d.Windows)
	}
	if q.holder != "" {
		r.text("key")
		r.text(q.holder)
	}
	if d.Fence != 0 {
		r.pair("fence", int64(d.Fence)) // #nosec G115 -- microseconds since 1970, or a count from there
		r.pair("expires_after", params.FloorMillis(d.ExpiresAfter))
	}
	if wait {
		r.pair("delay", params.CeilMillis(d.Delay))
	}
	if value {
		r.pair("value", d.Value)
	}
	if message {
		r.text("message")
		r.text(d.Message)
	}
	if figures {
		r.text("stats")
		r.stats(d.Stats)
	}
}

func (r *reply) pair(name string, value int64) {
	r.text(name)
	r.integer(value)
}

// windows tells about each of several limits. Those that refused have a retry_after.
func (r *reply) windows(windows []gatehouse.Window) {
	r.array(len(windows))
	for i := range windows {
		w := &windows[i]
		r.mapping(4)
		r.text("limit")
		r.text(w.Limit.String())
		r.pair("remaining", w.Remaining)
		r.pair("retry_after", params.CeilMillis(w.RetryAfter))
		r.pair("reset_after", params.CeilMillis(w.ResetAfter))
	}
}
