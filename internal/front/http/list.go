package http

import (
	"context"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
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
	kind  gatehouse.Kind
	after string
	limit int

	cancel context.CancelFunc // ends the search

	body []byte // the answer, unless err says why there is none
	err  error
}

// answerList answers a request for names. The store has to look at all its names to find those that come
// next, which can take a tenth of a second. So the connection is parked meanwhile, like one that waits in
// line, and the search ends when its client leaves.
func (s *Server) answerList(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	l := &nameList{kind: kind}
	if p := l.readQuery(ctx); p != nil {
		s.rejectRequest(ctx, from, p)
		return
	}
	header := &ctx.Request.Header
	w := &waiter{server: s, list: l, responder: responder{
		wantsJSON: from.wantsJSON, origin: s.allowedOrigin(from),
		closeAfter: header.ConnectionClose(), http10: !header.IsHTTP11(),
	}}
	// parkAfterHandler comes before the search: from then on a hang-up calls cancel and so ends the search.
	leaves, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	w.parkAfterHandler(ctx)
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
	patience, cancel := context.WithTimeout(ctx, s.config.WriteTimeout)
	defer cancel()
	if !turn.Begin(patience) {
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
	names, err := s.config.Gate.Names(ctx, l.kind, l.after, l.limit+1)
	if err != nil {
		l.err = err
		return ctx.Err() == nil
	}
	l.body = l.encodeNames(names)
	return true
}

// encodeNames returns the answer as JSON. It ends at the limit of names or at maxListBytes. next is the value
// of after for the names that follow, and empty if there are none.
func (l *nameList) encodeNames(names []string) []byte {
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
	return encodeJSON(struct {
		Kind  string   `json:"kind"`
		Names []string `json:"names"`
		Next  string   `json:"next"`
	}{l.kind.String(), append([]string{}, names[:most]...), next})
}

// writeList writes the list as a response.
func (l *nameList) writeList(resp *fasthttp.Response, r *responder) {
	allowOrigin(resp, r.origin)
	if l.err == nil {
		writeRawJSON(resp, "application/json", l.body)
		// The answer is copied into one message with its headers. The waiter stays until a slow client has
		// taken that, and must not keep the body as well.
		l.body = nil
		return
	}
	f := errorProblem(l.err)
	f.writeTo(resp, r.wantsJSON)
}

// readQuery reads the parameters of the list.
func (l *nameList) readQuery(ctx *fasthttp.RequestCtx) *rejection {
	// Names may be in any letter case, as those of commands. id is bouncer's name for what a client logs.
	l.limit = defaultListLimit
	_, query := splitURI(ctx.Request.Header.RequestURI())
	return eachParam(query, func(name, value []byte) error {
		switch strings.ToLower(string(name)) {
		case "after":
			l.after = string(value)
		case "limit":
			n, err := strconv.Atoi(string(value))
			if err != nil || n < 1 || n > maxListLimit {
				return gatehouse.Errorf(gatehouse.CodeInvalid,
					"limit is %s, want a whole number from 1 to %d", params.Quote(value), maxListLimit)
			}
			l.limit = n
		case "id":
		default:
			return gatehouse.Errorf(gatehouse.CodeInvalid,
				"parameter %s is unknown, want one of after limit id", params.Quote(name))
		}
		return nil
	})
}
