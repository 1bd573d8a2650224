package http

import (
	"context"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// How many names a list gives, and how many bytes of them.
const (
	defaultListLimit = 100
	maxListLimit     = 1000
	maxListBytes     = 256 << 10
)

// A nameList asks for the names of a kind, in order: those that come after a name, at most limit.
type nameList struct {
	kind  gatehouse.Kind
	after string
	limit int

	body []byte // the answer, unless err says why there is none
	err  error
}

// answerList answers a list of names. To find those that come next all names are looked at, which can take a
// tenth of a second. So the connection is parked meanwhile, as one that waits in line: the list ends when its
// client leaves.
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
	leaves, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.parkAfterHandler(ctx)
	go func() { // ends with the list, or soon after its client has left
		if l.loadNames(leaves, s) {
			w.onDecision(gatehouse.Decision{}, nil)
		}
	}()
}

// loadNames makes the answer, one at a time in the whole server. It reports false if the client has left.
func (l *nameList) loadNames(ctx context.Context, s *Server) bool {
	turn := &s.config.Budget.List
	if !turn.Begin(ctx) {
		return false
	}
	defer turn.End()
	if s.stopping.Load() { // the others in this queue are not made to wait for it
		l.err = gatehouse.Errorf(gatehouse.CodeUnavailable, "the server is stopping")
		return true
	}
	names, err := s.config.Gate.Names(ctx, l.kind, l.after, l.limit+1)
	if err != nil {
		l.err = err
		return ctx.Err() == nil
	}
	l.body = l.encodeNames(names)
	return true
}

// encodeNames is the answer as JSON. It ends when the limit, of names or of bytes, is reached; next is what
// to give as after for the names that follow, and is empty at the end.
func (l *nameList) encodeNames(names []string) []byte {
	bytes, most := 0, 0
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
		l.body = nil // the response has it, and is gone before a slow client has taken its copy
		return
	}
	f := errorProblem(l.err)
	f.writeTo(resp, r.wantsJSON)
}

// readQuery reads the query.
func (l *nameList) readQuery(ctx *fasthttp.RequestCtx) *rejection {
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
