package http

import (
	"context"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// This file is how a refusal is explained by its id.

// decisionsPath is what the paths of kept refusals begin with; their ids are behind it.
const decisionsPath = "/v1/decisions/"

// headerDecision is the id of a refusal that is kept.
const headerDecision = "Gatehouse-Decision"

// setDecisionHeader names a refusal that is kept.
func setDecisionHeader(resp *fasthttp.Response, number uint64) {
	if number != 0 {
		setTextHeader(resp, headerDecision, gatehouse.DecisionID(number))
	}
}

// decisionIDIfAny is the id of a refusal, empty if it is not kept.
func decisionIDIfAny(number uint64) string {
	if number == 0 {
		return ""
	}
	return gatehouse.DecisionID(number)
}

// An explanationJSON is all that is known of a refusal. Times are in milliseconds.
type explanationJSON struct {
	ID      string    `json:"id"`
	At      time.Time `json:"at"`
	Kind    string    `json:"kind"`
	Name    string    `json:"name"`
	Op      string    `json:"op"`
	Outcome string    `json:"outcome"`
	Detail  string    `json:"detail"`

	Cost     int64  `json:"cost"`
	Asked    string `json:"asked,omitempty"`
	MaxWait  *int64 `json:"maxwait,omitempty"`
	MaxDelay int64  `json:"maxdelay,omitempty"`

	Binding    string          `json:"binding"`
	Limit      int64           `json:"limit"`
	Remaining  int64           `json:"remaining"`
	RetryAfter *int64          `json:"retry_after"`
	Passes     *time.Time      `json:"passes"`
	Windows    []limitLeftJSON `json:"windows,omitempty"`
	Want       []levelJSON     `json:"want,omitempty"`

	Waited  int64 `json:"waited"`
	Waiting int   `json:"waiting"`

	Holders []holderJSON `json:"holders,omitempty"`
	Users   []topJSON    `json:"users,omitempty"`

	Request string `json:"request,omitempty"`
	User    string `json:"user,omitempty"`
	ownerJSON
}

// A limitLeftJSON is one of several limits, and what is left of it.
type limitLeftJSON struct {
	Limit      string `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter int64  `json:"retry_after"`
}

// A levelJSON is one of several names.
type levelJSON struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Cost       int64  `json:"cost"`
	Outcome    string `json:"outcome"`
	Limit      int64  `json:"limit"`
	Remaining  int64  `json:"remaining"`
	RetryAfter *int64 `json:"retry_after"`
}

// answerDecision answers with the explanation of a refusal.
func (s *Server) answerDecision(ctx *fasthttp.RequestCtx, from *sender, path string) {
	id, ok := decodePercent([]byte(strings.TrimPrefix(path, decisionsPath)), false)
	if !ok {
		badEscape("id", []byte(path)).writeTo(&ctx.Response, from.wantsJSON)
		return
	}
	e, p := s.findDecision(string(id))
	user := s.userOf(ctx)
	// Who may not look at a name is told no more than that nothing is kept.
	if p == nil && !user.Sees(e.Keys()) {
		p = noSuchPath("decision %s is not one that you may see", params.Quote(id))
	}
	if p != nil {
		p.writeTo(&ctx.Response, from.wantsJSON)
		return
	}
	// The holders are asked for at the store, so that one such answer is made at a time.
	s.answerInTurn(ctx, s.config.Budget.Page, from, func() {
		writeRawJSON(&ctx.Response, "application/json", encodeJSON(s.explain(&e, user)))
	})
}

// findDecision returns the refusal with an id, or why there is none to be shown.
func (s *Server) findDecision(id string) (e decisions.Explained, p *rejection) {
	kept := s.config.Decisions
	number, ok := gatehouse.ParseDecisionID(id)
	quoted := params.Quote([]byte(id))
	// A server without a log never gave an id, whatever the id is.
	switch {
	case kept == nil || kept.Kept() == 0:
		return e, noSuchPath("decision %s is not kept: this server keeps none, see --decisions", quoted)
	case !ok:
		return e, noSuchPath("decision is %s, want an id such as d1x8k2, from the header %s of a refusal",
			quoted, headerDecision)
	}
	e, ok = kept.Find(number)
	switch {
	case ok:
		return e, nil
	// An id that is too old and one of another server need different advice.
	case kept.HadNumber(number):
		return e, noSuchPath("decision %s is not kept any more: this server keeps the last %d refusals, "+
			"see --decisions", quoted, kept.Kept())
	}
	return e, noSuchPath("decision %s is not one of this server, which keeps its last %d refusals: ask the "+
		"server that refused", quoted, kept.Kept())
}

// explain returns all that is known of a refusal, in which names are as the user calls them.
func (s *Server) explain(e *decisions.Explained, user *access.User) *explanationJSON {
	cmd, d := &e.Command, &e.Decision
	within, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
	defer cancel()
	// The gate is asked by the names that it knows.
	causes := s.config.Decisions.FindCauses(within, s.config.Gate, e)
	user.ShowRefusal(d, e.Keys(), causes.Holders)
	out := &explanationJSON{
		ID: gatehouse.DecisionID(e.Number), At: d.At.UTC(), Kind: e.Key.Kind.String(), Name: e.Key.Name,
		Holders: holdersJSON(causes.Holders), Users: newTopJSON(causes.Users),
		Op: cmd.Op.String(), Outcome: d.Outcome.String(), Cost: cmd.Cost,
		Asked: e.Asked(), MaxDelay: cmd.MaxDelay.Milliseconds(), Binding: e.Name().String(), Limit: d.Limit,
		Remaining: d.Remaining, RetryAfter: ceilKnown(d.RetryAfter), Waited: e.Waited.Milliseconds(),
		Waiting: e.Waiting,
	}
	// Members that are null or left out are those of which nothing is known.
	if cmd.MaxWait != gatehouse.Forever {
		out.MaxWait = new(cmd.MaxWait.Milliseconds())
	}
	if at, known := e.Passes(); known {
		out.Passes = &at
	}
	for i := range d.Windows {
		w := &d.Windows[i]
		out.Windows = append(out.Windows,
			limitLeftJSON{w.Limit.String(), w.Remaining, params.CeilMillis(w.RetryAfter)})
	}
	for _, m := range e.Members {
		out.Want = append(out.Want, levelJSON{
			m.Key.Kind.String(), m.Key.Name, m.Cost, m.Outcome.String(), m.Limit, m.Remaining,
			ceilKnown(m.RetryAfter),
		})
	}
	if cmd.Owner != nil {
		out.ownerJSON = newOwnerJSON(*cmd.Owner)
	}
	if cmd.Origin != nil {
		out.Request, out.User = cmd.Origin.RequestID, cmd.Origin.User
	}
	out.Detail = e.Sentence()
	return out
}

// ceilKnown is a time to wait in milliseconds, nil for Forever.
func ceilKnown(d time.Duration) *int64 {
	if d == gatehouse.Forever {
		return nil
	}
	return new(params.CeilMillis(d))
}
