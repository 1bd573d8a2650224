package resp

import (
	"bytes"
	"fmt"
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

// answerExplain answers GH.EXPLAIN id|LAST: what is known of a refusal, or null if it is not kept.
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
	user.Show(e.Keys())
	e.Decision.Message = user.Hide(e.Decision.Message)
	r.writeExplained(&e)
}

// writeExplained tells what is known of a refusal. Times are milliseconds; -1 is a time that is not known.
func (r *replyWriter) writeExplained(e *decisions.Explained) {
	d, cmd := &e.Decision, &e.Command
	owner, origin := new(gatehouse.Owner), new(gatehouse.Origin)
	if cmd.Owner != nil {
		owner = cmd.Owner
	}
	if cmd.Origin != nil {
		origin = cmd.Origin
	}
	// As everywhere in RESP the number of pairs comes first.
	r.writeMap(15)
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
}
