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
	defaultPage = 100
	largestPage = 1000
	largestList = 256 << 10
)

// A list asks for the names of a kind, in order: those that come after a name, at most limit.
type list struct {
	kind  gatehouse.Kind
	after string
	limit int

	body []byte // the answer, unless err says why there is none
	err  error
}

// list answers a list of names. To find those that come next all names are looked at, which can take a tenth
// of a second. So the connection is parked meanwhile, as one that waits in line: the list ends when its
// client leaves.
func (s *Server) list(ctx *fasthttp.RequestCtx, kind gatehouse.Kind, from *sender) {
	l := &list{kind: kind}
	if p := l.read(ctx); p != nil {
		s.refuse(ctx, from, p)
		return
	}
	header := &ctx.Request.Header
	w := &waiter{server: s, list: l, reply: reply{
		json: from.json, origin: s.origin(from), close: header.ConnectionClose(), http10: !header.IsHTTP11(),
	}}
	leaves, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.leave(ctx)
	go func() { // ends with the list, or soon after its client has left
		if l.make(leaves, s) {
			w.done(gatehouse.Decision{}, nil)
		}
	}()
}

// make makes the answer, one at a time in the whole server. It reports false if the client has left.
func (l *list) make(ctx context.Context, s *Server) bool {
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
	l.body = l.encode(names)
	return true
}

// encode is the answer as JSON. It ends when the limit, of names or of bytes, is reached; next is what to
// give as after for the names that follow, and is empty at the end.
func (l *list) encode(names []string) []byte {
	bytes, most := 0, 0
	for most < len(names) && most < l.limit {
		bytes += len(names[most])
		most++
		if bytes >= largestList {
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

// answer writes the list as a response.
func (l *list) answer(resp *fasthttp.Response, r *reply) {
	allowOrigin(resp, r.origin)
	if l.err == nil {
		writeRaw(resp, "application/json", l.body)
		l.body = nil // the response has it, and is gone before a slow client has taken its copy
		return
	}
	f := faultOf(l.err)
	f.write(resp, r.json)
}

// read reads the query.
func (l *list) read(ctx *fasthttp.RequestCtx) *problem {
	l.limit = defaultPage
	_, query := split(ctx.Request.Header.RequestURI())
	return eachParam(query, func(name, value []byte) error {
		switch strings.ToLower(string(name)) {
		case "after":
			l.after = string(value)
		case "limit":
			n, err := strconv.Atoi(string(value))
			if err != nil || n < 1 || n > largestPage {
				return gatehouse.Errorf(gatehouse.CodeInvalid,
					"limit is %s, want a whole number from 1 to %d", params.Quote(value), largestPage)
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
