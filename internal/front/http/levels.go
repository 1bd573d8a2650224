package http

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/ratelimit"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// This file has requests for a limiter with parents. Such a one is a grant over these names that leaves no
// record, and its answer is that of one name: of the level that decided. A responder has its levels.

// levels are the name of a request and its parents, and what was decided about them. All methods of a nil one
// are those of a request without parents.
type levels struct {
	gate.GrantRequest
	server *Server
	short  bool // there is no room for all that could be said
}

// decideLevels puts a request with parents to the gate.
func (s *Server) decideLevels(ctx *fasthttp.RequestCtx, r *httpRequest, from *sender) {
	l := &levels{server: s}
	l.Command = r.Command.WithParents(r.Key, r.parents...)
	w := &waiter{server: s, task: l, responder: s.newResponder(ctx, from)}
	w.responder.answersTo(r, s.config.Refusal)
	w.responder.levels = l
	l.Decided = func(*gate.GrantRequest) { w.onDecision(nil) }
	// It judges the task, which has all names.
	if !w.enterUser(ctx, from) {
		return
	}
	s.config.Gate.SubmitGrant(&l.GrantRequest)
	w.answerOrWait(ctx, from)
}

// cancelTask implements [waiterTask].
func (l *levels) cancelTask() { l.server.config.Gate.CancelGrant(&l.GrantRequest) }

// mustReach implements [waiterTask]: as for a limiter alone.
func (l *levels) mustReach(waited bool) bool {
	return waited && l.Err == nil && l.Decision.Outcome == gatehouse.Granted
}

// countTask implements [waiterTask].
func (l *levels) countTask(s *Server, r *responder, status int) {
	s.countReply(r, telemetry.OutcomeOf(l.Decision.Outcome, l.Err), status)
}

// writeTask implements [waiterTask].
func (l *levels) writeTask(resp *fasthttp.Response, r *responder) {
	d := l.Decision.AsOne()
	r.writeDecision(resp, &d, l.Err)
}

// writeShort implements [waiterTask]: it tells about the level that decided alone.
func (l *levels) writeShort(resp *fasthttp.Response, r *responder) {
	l.short = true
	// The long answer has been written, and there was no room for it.
	resp.ResetBody()
	l.writeTask(resp, r)
}

// decisiveKey returns the key of the level that decided; without parents it is that of the request.
func (l *levels) decisiveKey(own gatehouse.Key) gatehouse.Key {
	if l == nil || l.Decision.Decisive() < 0 {
		return own
	}
	return l.Decision.Want[l.Decision.Decisive()].Key
}

// detailsJSON returns the members that tell about each level, behind others of the same object.
func (l *levels) detailsJSON() []byte {
	more := l.moreJSON()
	if more == nil {
		return nil
	}
	return append([]byte{','}, more...)
}

// moreJSON returns the members that tell about each level; nil without parents.
func (l *levels) moreJSON() []byte {
	if l == nil || l.Decision.Decisive() < 0 {
		return nil
	}
	var o jsonObject
	o = o.addRaw("binding", appendMember(nil, &l.GrantRequest, l.Decision.Decisive()))
	if !l.short {
		o = o.addRaw("want", wantJSON(&l.GrantRequest))
	}
	return o
}

// levelPolicies returns the policies of one level, in its order, and the index of the one that decides. They
// are named as parents are written, with the limit behind a colon where there are several.
func (r *responder) levelPolicies(i int) (all []ratelimit.Policy, first int) {
	m := &r.levels.Decision.Want[i]
	d := m.Decision
	name := params.ParentText(m.Key)
	if len(d.Windows) == 0 {
		p := ratelimit.OnlyPolicy(m.Key.Kind, &d)
		p.Name = name
		all = append(all, p)
	} else {
		first = ratelimit.BindingWindow(d.Windows)
	}
	for j := range d.Windows {
		p := ratelimit.WindowPolicy(m.Key.Kind, &d, j)
		p.Name = name + ":" + p.Name
		all = append(all, p)
	}
	// In a refusal only the limits that refuse have a time, so no time is later than Retry-After.
	if r.levels.Decision.Outcome == gatehouse.Refused && d.Outcome != gatehouse.Refused {
		for j := range all {
			all[j].MoreAfter = gatehouse.Forever
		}
	}
	return all, first
}

// maxLimitFields is the longest value, in bytes, of the headers with the limits of all levels, for the same
// reason as maxHeaderMessage. If they are longer, they have the level that decided alone.
const maxLimitFields = 2 << 10

// writeLevelHeaders writes both fields for a name and its parents: the policies in their order, and in
// RateLimit the one first that decides.
func writeLevelHeaders(resp *fasthttp.Response, r *responder) {
	binding := r.levels.Decision.Decisive()
	if binding < 0 {
		return
	}
	// Many clients read the first member of a list only, so that the level that decided comes first.
	own, first := r.levelPolicies(binding)
	limits, policies := own[first].AppendLimit(nil), []byte(nil)
	onlyLimits, onlyPolicies := slices.Clip(limits), own[first].AppendPolicy(nil)
	for i := range r.levels.Decision.Want {
		all, _ := r.levelPolicies(i)
		for j := range all {
			if len(policies) > 0 {
				policies = append(policies, ", "...)
			}
			policies = all[j].AppendPolicy(policies)
			if i != binding || j != first {
				limits = all[j].AppendLimit(append(limits, ", "...))
			}
		}
	}
	if len(limits) > maxLimitFields || len(policies) > maxLimitFields {
		limits, policies = onlyLimits, onlyPolicies
	}
	setLimitHeaders(resp, policies, limits)
}

// refusedLevels returns the names of the policies of all levels that refused.
func (r *responder) refusedLevels() (names []string) {
	for i := range r.levels.Decision.Want {
		d := &r.levels.Decision.Want[i].Decision
		if d.Outcome != gatehouse.Refused {
			continue
		}
		all, first := r.levelPolicies(i)
		found := len(names)
		for j := range all {
			if len(d.Windows) == 0 || d.Windows[j].RetryAfter != 0 {
				names = append(names, all[j].Name)
			}
		}
		// As for one name: a refusal names one policy at least.
		if len(names) == found {
			names = append(names, all[first].Name)
		}
	}
	return names
}
