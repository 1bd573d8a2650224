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
	"github.com/gatehousehq/gatehouse/internal/topk"
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
	name := e.Name() // as the gate knows it
	user.Show(e.Keys())
	e.Decision.Message = user.Hide(e.Decision.Message)
	if !params.HasHolders(name.Kind) {
		r.writeExplained(&e, &causes{
			users: s.server.config.Decisions.TopUsersAt(decisions.Granted, name, namedCauses),
		})
		return
	}
	three := s.three
	s.answerInBackground(s.server.config.Budget.Page, func(ctx context.Context, a *laterReply) {
		c := s.server.holdersAt(ctx, name, e.Decision.At)
		for i := range c.holders {
			c.holders[i].Grant = user.ShownGrant(c.holders[i].Grant)
		}
		later := replyWriter{three: three}
		later.writeExplained(&e, &c)
		a.text = later.out
	})
}

// causes are who has used up what there was: of a semaphore or a lock those who held it then and still do,
// of a limiter those who were granted most of it lately.
type causes struct {
	holders []gatehouse.HolderEntry
	users   []topk.Entry[string]
}

// namedCauses is how many of them are told.
const namedCauses = 10

// holdersAt returns who held a name at an instant and still does. A store that does not answer leaves the
// rest of an explanation as it is.
func (s *Server) holdersAt(ctx context.Context, name gatehouse.Key, at time.Time) (c causes) {
	d, err := s.config.Gate.Do(ctx, name, gatehouse.Command{Op: gatehouse.OpHolders, Amount: namedCauses})
	if err != nil || d.Report == nil {
		return c
	}
	for _, h := range d.Report.Holders {
		if !h.Since.After(at) {
			c.holders = append(c.holders, h)
		}
	}
	return c
}

// writeExplained tells what is known of a refusal. Times are milliseconds; -1 is a time that is not known.
func (r *replyWriter) writeExplained(e *decisions.Explained, c *causes) {
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
func (r *replyWriter) writeCauses(c *causes) {
	r.writeText("holders")
	r.writeArray(len(c.holders))
	for i := range c.holders {
		r.writeHolder(&c.holders[i])
	}
	r.writeText("users")
	r.writeArray(len(c.users))
	for _, u := range c.users {
		r.writeMap(3)
		r.writeTexts("user", u.Key)
		r.writePair("count", int64(math.Round(u.Count)))
		r.writePair("excess", int64(math.Round(u.Excess)))
	}
}
