package resp

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
)

// outcomes are the codes of what is neither granted nor refused.
var outcomes = [...]string{
	gatehouse.Conflict:  "CONFLICT",
	gatehouse.Deleted:   "DELETED",
	gatehouse.Missing:   "NOTFOUND",
	gatehouse.Invalid:   "INVALID",
	gatehouse.Exhausted: "EXHAUSTED",
	gatehouse.Forbidden: "NOPERM",
}

// codes are those of errors.
var codes = [...]string{
	gatehouse.CodeInternal:    "INTERNAL",
	gatehouse.CodeInvalid:     "INVALID",
	gatehouse.CodeExhausted:   "EXHAUSTED",
	gatehouse.CodeUnavailable: "UNAVAILABLE",
	gatehouse.CodeTimeout:     "TIMEOUT",

	gatehouse.CodeUnauthenticated: "NOAUTH",
	gatehouse.CodeForbidden:       "NOPERM",
	gatehouse.CodeQuota:           "QUOTA",
}

// answerDecision answers a command that is decided.
func (s *session) answerDecision(c *nativeCall) {
	// First, as it may turn a decision into the error of a user whose wait was ended.
	c.leaveCall()
	d, err := c.Decision, c.Err
	s.countAnswer(c.shownKey(), c.Command.Op, d, err)
	r := &s.loop.reply
	switch {
	case err != nil:
		r.writeFailed(err)
	case d.Outcome > gatehouse.Granted:
		s.answerFailure(c.decisiveKey(), d)
	case d.Report != nil:
		r.writeReport(c.Command.Op, d.Report)
	// A peek changes nothing: the figures are all that it is asked for.
	case c.details || c.Command.Op == gatehouse.OpPeek:
		r.writeDecision(c, d)
	case d.Outcome == gatehouse.Refused:
		r.writeNull()
	default:
		r.writeGranted(c, d)
	}
}

// answerFailure answers what was neither granted nor refused.
func (s *session) answerFailure(key gatehouse.Key, d *gatehouse.Decision) {
	text := d.Message
	if d.Outcome == gatehouse.Missing {
		text = "does not exist"
	}
	s.loop.reply.writeError(outcomes[d.Outcome], key.String()+" "+text)
}

// countAnswer notes an answer in the metrics, and on the log when that is wanted.
func (s *session) countAnswer(key gatehouse.Key, op gatehouse.Op, d *gatehouse.Decision, err error) {
	outcome := gatehouse.Granted
	if err == nil {
		outcome = d.Outcome
		s.noteRefusal(d.Number)
	}
	s.countOutcome(key, op, telemetry.OutcomeOf(outcome, err), 1)
}

// countOutcome is countAnswer for n answers with an outcome that is known.
func (s *session) countOutcome(
	key gatehouse.Key, op gatehouse.Op, known telemetry.RequestOutcome, n uint64,
) {
	s.loop.counts.countAnswer(key.Kind, op, known, n)
	for ; s.server.debug && n > 0; n-- {
		s.server.log.Debug("answered", "kind", key.Kind.String(), "name", key.Name, "op", op.String(),
			"outcome", known.String())
	}
}

// writeGranted answers a grant with what there is to tell, or with OK.
func (r *replyWriter) writeGranted(c *nativeCall, d *gatehouse.Decision) {
	switch c.Command.Op {
	case gatehouse.OpAcquire:
		// The client needs the key to release, and may not have chosen it.
		if params.HasHolders(c.Key.Kind) {
			r.writeText(c.heldBy())
			return
		}
	case gatehouse.OpWait:
		if c.Key.Kind == gatehouse.Event {
			r.writeText(d.Message)
			return
		}
	case gatehouse.OpCount, gatehouse.OpValue:
		r.writeInteger(d.Value)
		return
	case gatehouse.OpDelay, gatehouse.OpReserve:
		r.writeInteger(params.CeilMillis(d.Delay))
		return
	case gatehouse.OpStats:
		r.writeStats(d.Stats)
		return
	}
	// OK is also for what breaks out of the cases above: an acquire of a limiter, and a wait for a watchdog
	// or a barrier, have nothing to tell.
	r.writeOK()
}

// writeStats answers a controller's statistics. Times are RFC 3339, lengths of time milliseconds.
func (r *replyWriter) writeStats(stats []gatehouse.Stat) {
	r.writeMap(len(stats))
	for _, stat := range stats {
		r.writeText(stat.Name)
		switch value := stat.Value.(type) {
		case int64:
			r.writeInteger(value)
		case time.Duration:
			r.writeInteger(value.Milliseconds())
		case time.Time:
			// It has not happened yet: a date in the year 1 would look like one that has.
			if value.IsZero() {
				r.writeNull()
			} else {
				r.writeText(value.UTC().Format(time.RFC3339))
			}
		default:
			r.writeText(fmt.Sprint(value))
		}
	}
}

// writeDecision answers all there is to know about a decision, as a map.
func (r *replyWriter) writeDecision(c *nativeCall, d *gatehouse.Decision) {
	op, kind, holder := c.Command.Op, c.Key.Kind, c.heldBy()
	held, limiter := params.HasHolders(kind), kind.Limiter()
	wait := op == gatehouse.OpDelay || op == gatehouse.OpReserve || op == gatehouse.OpCharge
	value := op == gatehouse.OpCount || op == gatehouse.OpValue
	message := op == gatehouse.OpWait && kind == gatehouse.Event
	figures := op == gatehouse.OpStats
	why := d.Outcome == gatehouse.Refused && d.Message != ""
	kept := d.Number != 0
	// RESP sends the number of pairs before the pairs, so each block below is counted here as well.
	r.writeMap(1 + 3*boolToInt(held || limiter) + boolToInt(limiter) + boolToInt(len(d.Windows) > 0) +
		boolToInt(holder != "") + 2*boolToInt(d.Fence != 0) + boolToInt(wait) + boolToInt(value) +
		boolToInt(message) + boolToInt(figures) + boolToInt(why) + boolToInt(kept) + countReported(d) +
		2*boolToInt(c.hasLevels()))
	r.writePair("granted", int64(boolToInt(d.Outcome == gatehouse.Granted)))
	if held || limiter {
		r.writePair("limit", d.Limit)
		r.writePair("remaining", d.Remaining)
		r.writePair("retry_after", params.CeilMillis(d.RetryAfter))
	}
	if limiter {
		r.writePair("reset_after", params.CeilMillis(d.ResetAfter))
	}
	if len(d.Windows) > 0 {
		r.writeText("windows")
		r.writeWindows(d.Windows)
	}
	r.writeReported(d)
	if holder != "" {
		r.writeTexts("key", holder)
	}
	if d.Fence != 0 {
		r.writePair("fence", int64(d.Fence)) // microseconds since 1970, or a count from there
		r.writePair("expires_after", params.FloorMillis(d.ExpiresAfter))
	}
	if wait {
		r.writePair("delay", params.CeilMillis(d.Delay))
	}
	if value {
		r.writePair("value", d.Value)
	}
	if message {
		r.writeTexts("message", d.Message)
	}
	if figures {
		r.writeText("stats")
		r.writeStats(d.Stats)
	}
	if why {
		r.writeTexts("detail", c.decisiveKey().String()+" "+d.Message)
	}
	if kept {
		r.writeTexts("decision", gatehouse.DecisionID(d.Number))
	}
	if c.hasLevels() {
		r.writeTexts("binding", c.decisiveKey().String())
		r.writeWant(c.levels())
	}
}

func (r *replyWriter) writePair(name string, value int64) {
	r.writeText(name)
	r.writeInteger(value)
}

// writeWindows tells about each of several limits. Those that refused have a retry_after.
func (r *replyWriter) writeWindows(windows []gatehouse.Window) {
	r.writeArray(len(windows))
	for i := range windows {
		w := &windows[i]
		r.writeMap(4)
		r.writeTexts("limit", w.Limit.String())
		r.writePair("remaining", w.Remaining)
		r.writePair("retry_after", params.CeilMillis(w.RetryAfter))
		r.writePair("reset_after", params.CeilMillis(w.ResetAfter))
	}
}
