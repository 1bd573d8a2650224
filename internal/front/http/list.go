package http

import (
	"context"
	"strconv"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/valyala/fasthttp"
)

// The limits of one list, in names and in bytes of names.
const (
	defaultListLimit = 100
	maxListLimit     = 1000
	maxListBytes     = 256 << 10
)

// A nameList is a request for the names of a kind, in order: up to limit of them, behind after.
type nameList struct {
	gate.Prefix
	limit   int
	details bool // all there is to know of each name

	server *Server
	user   *access.User       // nil if rights are off
	cancel context.CancelFunc // ends the search

	body []byte // the answer, unless err says why there is none
	err  error
}

// answerList answers a request for names. The store has to look at all its names to find those that come
// next, which can take a tenth of a second. So the connection waits meanwhile, like one whose request is in
// line, and the search ends when its client leaves.
func (s *Server) answerList(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	l := &nameList{Prefix: gate.Prefix{Kind: kind}, server: s, user: from.user}
	if p := l.readQuery(ctx); p != nil {
		s.rejectRequest(ctx, from, p)
		return
	}
	if !s.takeRate(ctx, from) {
		return
	}
	w := &waiter{server: s, task: l, responder: s.newResponder(ctx, from)}
	// park comes before the search: from then on a hang-up calls cancel and so ends the search.
	leaves, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.park(ctx)
	go func() { // ends with the list, or soon after its client has left
		if l.loadNames(leaves, s) {
			w.onDecision(nil)
		}
	}()
}

// loadNames fills in body or err. In the whole server one list is made at a time. It reports false if the
// client has left.
func (l *nameList) loadNames(ctx context.Context, s *Server) bool {
	turn := &s.config.Budget.List
	// Somebody may have asked for thousands of lists. Others are told in good time that theirs is not made.
	if !turn.BeginWithin(ctx, s.config.WriteTimeout) {
		l.err = gatehouse.Errorf(gatehouse.CodeExhausted,
			"server makes one list at a time, and others came first; try again soon")
		return ctx.Err() == nil
	}
	defer turn.End()
	// Shutdown waits for all lists in this queue. Making each of them could take longer than it has.
	if s.stopping.Load() {
		l.err = gatehouse.Errorf(gatehouse.CodeUnavailable, "the server is stopping")
		return true
	}
	// One more than is shown tells whether there are more.
	described, err := l.user.List(access.ListRequest{Prefix: l.Prefix, Most: l.limit + 1},
		func(asked access.ListRequest) ([]gatehouse.NameDetails, error) { return l.fetch(ctx, asked) })
	if err != nil {
		l.err = err
		return ctx.Err() == nil
	}
	names := make([]string, 0, len(described))
	for i := range described {
		names = append(names, described[i].Name)
	}
	l.body = l.encodeNames(names, described)
	return true
}

// fetch asks the gate for names.
func (l *nameList) fetch(ctx context.Context, asked access.ListRequest) ([]gatehouse.NameDetails, error) {
	if asked.Prefix.Prefix != "" || l.details {
		return l.server.config.Gate.Describe(ctx, asked.Prefix, asked.Most)
	}
	// Which is much cheaper.
	names, err := l.server.config.Gate.Names(ctx, asked.Kind, asked.After, asked.Most)
	described := make([]gatehouse.NameDetails, len(names))
	for i, name := range names {
		described[i].Name = name
	}
	return described, err
}

// encodeNames returns the answer as JSON. It ends at the limit of names or at maxListBytes. next is the value
// of after for the names that follow, and empty if there are none. described are the names with details.
func (l *nameList) encodeNames(names []string, described []gatehouse.NameDetails) []byte {
	bytes, most := 0, 0
	// The name that reaches maxListBytes is still in the list, so a list has one name at least and a client
	// that follows next always gets on.
	for most < len(names) && most < l.limit {
		bytes += len(names[most])
		most++
		if bytes >= maxListBytes {
			break
		}
	}
	next := ""
	if most < len(names) {
		next = names[most-1]
	}
	var entries any = append([]string{}, names[:most]...)
	if l.details {
		all := make([]nameJSON, 0, most)
		for i := range described[:most] {
			all = append(all, newNameJSON(&described[i]))
		}
		entries = all
	}
	return encodeJSON(struct {
		Kind  string `json:"kind"`
		Names any    `json:"names"`
		Next  string `json:"next"`
	}{l.Kind.String(), entries, next})
}

// cancelTask implements [waiterTask].
func (l *nameList) cancelTask() { l.cancel() }

// mustReach implements [waiterTask].
func (l *nameList) mustReach(bool) bool { return false }

// countTask implements [waiterTask]. A list is no request to a controller.
func (l *nameList) countTask(s *Server, _ *responder, status int) { s.metrics.countResponse(status) }

// writeShort implements [waiterTask].
func (l *nameList) writeShort(resp *fasthttp.Response, r *responder) {
	l.server.writeOverloaded(resp, r.wantsJSON)
}

// writeTask implements [waiterTask]: it writes the list as a response.
func (l *nameList) writeTask(resp *fasthttp.Response, r *responder) {
	allowOrigin(resp, r.origin)
	if l.err == nil {
		writeRawJSON(resp, "application/json", l.body)
		return
	}
	f := errorRejection(l.err)
	f.writeTo(resp, r.wantsJSON)
}

// readQuery reads the parameters of the list.
func (l *nameList) readQuery(ctx *fasthttp.RequestCtx) *rejection {
	limit, details := strconv.Itoa(defaultListLimit), "false"
	p := readOptions(ctx, map[string]*string{
		"after": &l.After, "limit": &limit, "prefix": &l.Prefix.Prefix, "details": &details,
	}, "after limit prefix details")
	l.details = details == "true"
	if p == nil && !l.details && details != "false" {
		p = badRequest("details is %s, want true or false", params.Quote([]byte(details)))
	}
	n, err := strconv.Atoi(limit)
	if p == nil && (err != nil || n < 1 || n > maxListLimit) {
		p = badRequest("limit is %s, want a whole number from 1 to %d",
			params.Quote([]byte(limit)), maxListLimit)
	}
	l.limit = n
	return p
}

// maxDeleted is the largest number of names that one request deletes.
const maxDeleted = 1000

// deletePrefix deletes the names of a kind that begin with the parameter prefix. confirm must repeat the
// kind, as this cannot be taken back.
func (s *Server) deletePrefix(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	prefix, p := readPrefixParams(ctx, kind)
	if p != nil {
		s.rejectRequest(ctx, from, p)
		return
	}
	if !s.takeRate(ctx, from) {
		return
	}
	if err := from.user.RequireAll(kind, prefix.Prefix, gatehouse.LevelManage, "to delete"); err != nil {
		s.refuseUser(ctx, from, from.user, err)
		return
	}
	prefix.Prefix = from.user.Inside(prefix.Prefix)
	if prefix.After != "" {
		prefix.After = from.user.Inside(prefix.After)
	}
	// A delete that has begun is carried out, as part of it cannot be taken back. So the context never ends,
	// and Begin always gets the turn.
	working := context.WithoutCancel(ctx)
	s.config.Budget.Deletion.Begin(working)
	deleted, next, err := s.config.Gate.DeletePrefix(working, prefix, maxDeleted)
	s.config.Budget.Deletion.End()
	if err != nil {
		f := errorRejection(from.user.HideError(err))
		s.rejectRequest(ctx, from, &f)
		return
	}
	next, _ = from.user.Outside(next)
	from.user.Audit("delete", kind.String()+"/"+prefix.Prefix+"*", peer.Source(ctx.Conn()))
	allowOrigin(&ctx.Response, s.allowedOrigin(from))
	writeJSON(&ctx.Response, struct {
		Kind    string `json:"kind"`
		Deleted int    `json:"deleted"`
		Next    string `json:"next"`
	}{kind.String(), deleted, next})
	s.metrics.countResponse(ctx.Response.StatusCode())
	s.closeIfStopping(ctx)
}

// readPrefixParams reads the parameters of a delete by prefix.
func readPrefixParams(ctx *fasthttp.RequestCtx, kind gatehouse.Kind) (prefix gate.Prefix, p *rejection) {
	prefix.Kind = kind
	confirm := ""
	p = readOptions(ctx, map[string]*string{
		"prefix": &prefix.Prefix, "confirm": &confirm, "after": &prefix.After,
	}, "prefix confirm after")
	// An empty prefix would delete every name of the kind, which a script with an empty variable asks for
	// easily.
	switch {
	case p != nil:
	case prefix.Prefix == "":
		p = badRequest("prefix is missing, want the first byte or more of the names to delete")
	case confirm != kind.String():
		p = badRequest("confirm is %s, want confirm=%s, because a delete cannot be taken back",
			params.Quote([]byte(confirm)), kind)
	}
	return prefix, p
}
