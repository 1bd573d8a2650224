package resp

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/params"
)

// noteRefusal remembers the last refusal of the connection; 0 is none.
func (s *session) noteRefusal(number uint64) {
	if number != 0 {
		s.refused = number
	}
}

// answerExplain answers GH.EXPLAIN id|LAST: what is known of a refusal, or null if it is not kept. Holders
// are asked for at the store, so not by the event loop.
func (s *session) answerExplain(args [][]byte) {
	r := &s.loop.reply
	number, ok := s.refused, true
	if !bytes.EqualFold(args[1], []byte("last")) {
		number, ok = gatehouse.ParseDecisionID(string(args[1]))
	}
	if !ok {
		r.writeError("INVALID", fmt.Sprintf("decision is %s, want LAST or an id such as d1x8k2",
			params.Quote(args[1])))
		return
	}
	// Without any the log is nil, and finds nothing.
	var kept *decisions.Log
	if s.server.config.Decisions != nil {
		kept = s.server.config.Decisions.Log
	}
	e, ok := kept.Find(number)
	user := s.user()
	if !ok || !user.Sees(e.Keys()) {
		r.writeNull()
		return
	}
	three := s.three
	s.answerInBackground(s.server.config.Budget.Page, func(ctx context.Context, a *laterReply) {
		// The gate is asked by the names that it knows.
		causes := s.server.config.Decisions.FindCauses(ctx, s.server.config.Gate, &e)
		user.ShowRefusal(&e.Decision, e.Keys(), causes.Holders)
		later := replyWriter{three: three}
		later.writeExplained(&e, &causes)
		a.text = later.out
	})
}

// writeExplained tells what is known of a refusal. Times are milliseconds; -1 is a time that is not known.
func (r *replyWriter) writeExplained(e *decisions.Explained, c *decisions.Causes) {
	d, cmd := &e.Decision, &e.Command
	owner, origin := new(gatehouse.Owner), new(gatehouse.Origin)
	if cmd.Owner != nil {
		owner = cmd.Owner
	}
	if cmd.Origin != nil {
		origin = cmd.Origin
	}
	// As everywhere in RESP the number of pairs comes first.
	r.writeMap(25)
	r.writeTexts("id", gatehouse.DecisionID(e.Number))
	r.writeTexts("at", d.At.UTC().Format(time.RFC3339Nano))
	r.writeTexts("name", e.Key.String())
	r.writeTexts("op", cmd.Op.String())
	r.writeTexts("binding", e.Name().String())
	r.writeTexts("asked", e.Asked())
	r.writePair("cost", cmd.Cost)
	r.writePair("limit", d.Limit)
	r.writePair("remaining", d.Remaining)
	r.writePair("retry_after", params.CeilMillis(d.RetryAfter))
	r.writePair("waited", e.Waited.Milliseconds())
	r.writePair("waiting", int64(e.Waiting))
	r.writeTexts("owner", owner.Name)
	r.writeTexts("user", origin.User)
	r.writeTexts("detail", e.Sentence())
	r.writeText("maxwait")
	r.writeKnownMillis(cmd.MaxWait)
	r.writePair("maxdelay", cmd.MaxDelay.Milliseconds())
	r.writeText("passes")
	passes, _ := e.Passes() // the zero time is null
	r.writeInstant(passes)
	r.writeText("windows")
	r.writeWindows(d.Windows)
	r.writeText("want")
	r.writeArray(len(e.Members))
	for _, m := range e.Members {
		r.writeMap(6)
		r.writeTexts("name", m.Key.String(), "outcome", m.Outcome.String())
		r.writePair("cost", m.Cost)
		r.writePair("limit", m.Limit)
		r.writePair("remaining", m.Remaining)
		r.writePair("retry_after", params.CeilMillis(m.RetryAfter))
	}
	r.writeTexts("host", owner.Host, "purpose", owner.Purpose, "request", origin.RequestID)
	r.writeCauses(c)
}

// writeCauses tells who has used up what there was.
func (r *replyWriter) writeCauses(c *decisions.Causes) {
	r.writeText("holders")
	r.writeArray(len(c.Holders))
	for i := range c.Holders {
		r.writeHolder(&c.Holders[i])
	}
	r.writeText("users")
	r.writeArray(len(c.Users))
	for _, u := range c.Users {
		// Counts fade with time, so that they have fractions, which people do not ask for.
		r.writeMap(3)
		r.writeTexts("user", u.Key)
		r.writePair("count", int64(math.Round(u.Count)))
		r.writePair("excess", int64(math.Round(u.Excess)))
	}
}
