package http

import (
	"context"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// This file is how who holds and who waits is told as JSON. Times that are not known are null, and so are
// ends that there are none of.

// isReport reports whether an operation is answered with a list of holders or waiters.
func isReport(op gatehouse.Op) bool { return op == gatehouse.OpHolders || op == gatehouse.OpWaiters }

// isManaged reports whether an operation is one of an operator, which exists as a POST below /v1 alone: it
// must not be repeated by what reads ahead, and bouncer has no such path.
func isManaged(op gatehouse.Op) bool { return op >= gatehouse.OpEvict && op <= gatehouse.OpOpen }

type closingJSON struct {
	By     string    `json:"by"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

func newClosingJSON(c *gatehouse.Closing) *closingJSON {
	if c == nil {
		return nil
	}
	return &closingJSON{c.By, c.Reason, c.At.UTC()}
}

// An ownerJSON is in each entry of a list.
type ownerJSON struct {
	Owner   string `json:"owner"`
	Host    string `json:"host"`
	Purpose string `json:"purpose"`
}

func newOwnerJSON(o gatehouse.Owner) ownerJSON { return ownerJSON{o.Name, o.Host, o.Purpose} }

type holderJSON struct {
	ID string `json:"id"`
	ownerJSON
	Grant     string       `json:"grant,omitempty"`
	Since     *time.Time   `json:"since"`
	HeldFor   *int64       `json:"held_for"`
	ExpiresIn *int64       `json:"expires_in"`
	Renewals  int64        `json:"renewals"`
	Slots     int64        `json:"slots"`
	Fence     uint64       `json:"fence"`
	Evicted   *closingJSON `json:"evicted"`
}

type waiterJSON struct {
	ID string `json:"id"`
	ownerJSON
	Grant      string `json:"grant,omitempty"`
	Position   int    `json:"position"`
	Cost       int64  `json:"cost"`
	WaitingFor int64  `json:"waiting_for"`
	Expected   *int64 `json:"expected_wait"`
	Expected90 *int64 `json:"expected_wait_90"`
}

type otherLineJSON struct {
	Server     uint32 `json:"server"`
	Waiting    int    `json:"waiting"`
	WaitingFor int64  `json:"waiting_for"`
	Age        int64  `json:"age"`
}

// knownMillis is a time in milliseconds, nil for Forever.
func knownMillis(d time.Duration) *int64 {
	if d == gatehouse.Forever {
		return nil
	}
	return new(d.Milliseconds())
}

// writeReport answers with a list of holders or waiters.
func (r *responder) writeReport(resp *fasthttp.Response, report *gatehouse.Report) {
	// Each list is a struct of its own, so that its members keep their order.
	if r.op == gatehouse.OpHolders {
		writeJSON(resp, struct {
			Kind    string       `json:"kind"`
			Name    string       `json:"name"`
			Size    int64        `json:"size"`
			Held    int64        `json:"held"`
			Closed  *closingJSON `json:"closed"`
			Total   int          `json:"total"`
			Holders []holderJSON `json:"holders"`
			Next    string       `json:"next"`
		}{
			r.key.Kind.String(), r.key.Name, report.Limit, report.Used, newClosingJSON(report.Closed),
			report.Total, holdersJSON(report.Holders), report.Next,
		})
		return
	}
	others := make([]otherLineJSON, 0, len(report.Others))
	for _, o := range report.Others {
		others = append(others, otherLineJSON{
			o.Server, o.Waiting, o.WaitingFor.Milliseconds(), o.Seen.Milliseconds(),
		})
	}
	writeJSON(resp, struct {
		Kind    string          `json:"kind"`
		Name    string          `json:"name"`
		Closed  *closingJSON    `json:"closed"`
		Total   int             `json:"total"`
		Waiters []waiterJSON    `json:"waiters"`
		Next    string          `json:"next"`
		Others  []otherLineJSON `json:"other_servers"`
	}{
		r.key.Kind.String(), r.key.Name, newClosingJSON(report.Closed), report.Total,
		waitersJSON(report.Waiters), report.Next, others,
	})
}

func holdersJSON(holders []gatehouse.HolderEntry) []holderJSON {
	list := make([]holderJSON, 0, len(holders))
	for i := range holders {
		h := &holders[i]
		out := holderJSON{
			ID: gatehouse.HolderID(h.Fence), ownerJSON: newOwnerJSON(h.Owner), Grant: h.Grant,
			ExpiresIn: knownMillis(h.ExpiresAfter), Renewals: h.Renewals, Slots: h.Slots, Fence: h.Fence,
			Evicted: newClosingJSON(h.Evicted),
		}
		// One from a store of an earlier version has no beginning.
		if !h.Since.IsZero() {
			out.Since, out.HeldFor = new(h.Since.UTC()), knownMillis(h.HeldFor)
		}
		list = append(list, out)
	}
	return list
}

func waitersJSON(waiters []gatehouse.WaiterEntry) []waiterJSON {
	list := make([]waiterJSON, 0, len(waiters))
	for i := range waiters {
		w := &waiters[i]
		list = append(list, waiterJSON{
			ID: w.ID, ownerJSON: newOwnerJSON(w.Owner), Grant: w.Grant, Position: w.Position, Cost: w.Cost,
			WaitingFor: w.WaitingFor.Milliseconds(), Expected: knownMillis(w.Expected),
			Expected90: knownMillis(w.Expected90),
		})
	}
	return list
}

// A nameJSON is one name in a list with details.
type nameJSON struct {
	Name    string       `json:"name"`
	Limit   int64        `json:"limit"`
	Used    int64        `json:"used"`
	Waiting int          `json:"waiting"`
	Holders int          `json:"holders"`
	Granted int64        `json:"granted"`
	Refused int64        `json:"refused"`
	Since   *time.Time   `json:"since"`
	Closed  *closingJSON `json:"closed"`
}

func newNameJSON(d *gatehouse.NameDetails) nameJSON {
	out := nameJSON{
		Name: d.Name, Limit: d.Limit, Used: d.Used, Waiting: d.Waiting, Holders: d.Holders,
		Granted: d.Granted, Refused: d.Refused, Closed: newClosingJSON(d.Closed),
	}
	if !d.Since.IsZero() {
		out.Since = new(d.Since.UTC())
	}
	return out
}

// cyclesPath is the page of owners that wait for each other.
const cyclesPath = "/v1/cycles"

type linkJSON struct {
	Owner  string `json:"owner"`
	Host   string `json:"host"`
	Kind   string `json:"kind"`
	Name   string `json:"name"`
	Waiter string `json:"waiter"`
	Holder string `json:"holder"`
}

type cycleJSON struct {
	Stuck bool       `json:"stuck"`
	Links []linkJSON `json:"links"`
}

// answerCycles answers with the owners that wait for each other. One such answer is made at a time, as each
// looks at all lines.
func (s *Server) answerCycles(ctx *fasthttp.RequestCtx) {
	from := readSender(&ctx.Request.Header)
	s.answerInTurn(ctx, s.config.Budget.Page, &from, func() {
		within, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
		defer cancel()
		cycles, err := s.config.Gate.Cycles(within)
		if err != nil {
			f := errorRejection(err)
			f.writeTo(&ctx.Response, from.wantsJSON)
			return
		}
		// Not nil, so that no cycle is an empty list and not null.
		list := make([]cycleJSON, 0, len(cycles))
		for _, c := range s.userOf(ctx).OwnCycles(cycles) {
			list = append(list, newCycleJSON(c))
		}
		writeJSON(&ctx.Response, struct {
			Cycles []cycleJSON `json:"cycles"`
		}{list})
	})
}

func newCycleJSON(c gate.Cycle) cycleJSON {
	out := cycleJSON{Stuck: c.Stuck}
	for _, l := range c.Links {
		out.Links = append(out.Links, linkJSON{
			l.Owner.Name, l.Owner.Host, l.Key.Kind.String(), l.Key.Name, l.Waiter, l.Holder,
		})
	}
	return out
}

// explains reports whether a refusal of a request is to say who holds: where people read the answer, or a
// program that wants all there is to know.
func explains(r *httpRequest, from *sender) bool {
	return r.Command.Op == gatehouse.OpAcquire && (from.wantsJSON || r.details || r.stream) &&
		(params.HasHolders(r.Key.Kind) || r.Key.Kind.Limiter())
}
