package http

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A route is a path of somebody else's at this door, and who answers there. See Config.Routes.
type route struct {
	path    string // one that ends in a slash holds for all below it
	methods map[string]handler
	allow   string
}

type handler = func(ctx *fasthttp.RequestCtx, name string) error

// newRoutes reads Config.Routes. Longer paths come first, so that the nearest is found first.
func newRoutes(config map[string]handler) (all []*route, err error) {
	for pattern, answer := range config {
		method, path, _ := strings.Cut(pattern, " ")
		known := method == fasthttp.MethodGet || method == fasthttp.MethodPost
		known = known && strings.HasPrefix(path, "/") && answer != nil
		if _, p := readTarget([]byte(path)); !known || p == nil {
			return nil, fmt.Errorf("route %q, want GET or POST and a path that is not taken", pattern)
		}
		i := slices.IndexFunc(all, func(r *route) bool { return r.path == path })
		if i < 0 {
			i = len(all)
			all = append(all, &route{path: path, methods: make(map[string]handler)})
		}
		all[i].methods[method] = answer
	}
	for _, r := range all {
		if r.methods[fasthttp.MethodGet] != nil {
			r.methods[fasthttp.MethodHead] = r.methods[fasthttp.MethodGet]
		}
		for _, method := range []string{fasthttp.MethodGet, fasthttp.MethodHead, fasthttp.MethodPost} {
			if r.methods[method] != nil {
				r.allow += method + ", "
			}
		}
		r.allow += fasthttp.MethodOptions
	}
	slices.SortFunc(all, func(a, b *route) int { return len(b.path) - len(a.path) })
	return all, nil
}

// findRoute finds the route of a raw path, and the rest of the path, still encoded, where the route's own
// ends in a slash. odd says that the path is not in its proper form: letter case, or a slash at the end.
func (s *Server) findRoute(path []byte) (r *route, rest []byte, odd bool) {
	for _, r := range s.routes {
		n := len(r.path)
		switch below := r.path[n-1] == '/'; {
		case len(path) < n || !strings.EqualFold(string(path[:n]), r.path):
		case below && len(path) > n, !below && len(path) == n:
			return r, path[n:], string(path[:n]) != r.path
		case !below && string(path[n:]) == "/":
			return r, nil, true
		}
	}
	return nil, nil, false
}

// route answers a request to a path that is none of this door's own. ok is false if there is no such route.
func (s *Server) route(ctx *fasthttp.RequestCtx, path, query []byte, from *sender) (ok bool) {
	r, rest, odd := s.findRoute(path)
	if r == nil {
		return false
	}
	name, p := r.read(ctx.Method(), rest)
	if p == nil && odd {
		p = moved(ctx.Method(), withQuery(r.path+string(rest), query))
	}
	switch {
	case p != nil:
		s.refuse(ctx, from, p)
		if s.origin(from) != "" { // a script of that origin may send JSON as what it is
			ctx.Response.Header.Set(fasthttp.HeaderAccessControlAllowHeaders, fasthttp.HeaderContentType)
		}
	case !isVisit(&ctx.Request.Header, from) && !s.fromHere(ctx, from):
	default:
		allowOrigin(&ctx.Response, s.origin(from))
		s.serve(ctx, r.methods[string(ctx.Method())], name, from)
		guardPage(&ctx.Response)
	}
	return true
}

// read looks at a request's method, and decodes the name that its path ends in.
func (r *route) read(method, rest []byte) (name string, p *problem) {
	if r.methods[string(method)] == nil {
		return "", wrongMethod(method, r.allow)
	}
	text, ok := unescape(rest, false)
	if !ok {
		return "", badEscape("name", rest)
	}
	return string(text), nil
}

// moved leads to the proper form of a path. A POST stays a POST.
func moved(method []byte, location string) *problem {
	if strings.ContainsFunc(location, unicode.IsControl) {
		return bad("request target has a control character, want it percent-encoded")
	}
	status := fasthttp.StatusMovedPermanently
	if string(method) == fasthttp.MethodPost {
		status = fasthttp.StatusPermanentRedirect
	}
	return &problem{status: status, location: location}
}

// isVisit reports whether a browser is about to show the answer as a page of its own, because somebody
// followed a link. A GET of a route has no effects, and no other site's page can read what is shown so.
// Where a browser does not tell, it may be about to show the page in a frame; it is told not to with the
// answer.
func isVisit(h *fasthttp.RequestHeader, from *sender) bool {
	if !h.IsGet() {
		return false
	}
	if from.fetch {
		return string(h.Peek("Sec-Fetch-Mode")) == "navigate" &&
			string(h.Peek("Sec-Fetch-Dest")) == "document"
	}
	return len(from.origin) == 0 && bytes.HasPrefix(from.accept, []byte("text/html"))
}

// serve lets a route answer. One that panics is answered for: a request must not end the server.
func (s *Server) serve(ctx *fasthttp.RequestCtx, answer handler, name string, from *sender) {
	defer s.answered(ctx, from)
	var err error
	if !ctx.IsPost() { // it is a page
		s.inTurn(ctx, s.config.Budget.Page, from, func() { err = answer(ctx, name) })
	} else {
		err = answer(ctx, name)
	}
	if err == nil {
		s.charge(ctx, from)
		return
	}
	f := faultOf(err)
	if status := ctx.Response.StatusCode(); status >= fasthttp.StatusBadRequest {
		f.status = status
		f.code = "" // that of the status
	}
	f.write(&ctx.Response, from.json)
}

// answered is deferred by whatever answers for a page or a route, and counts the answer. A panic becomes a
// 500: a request must not end the server.
func (s *Server) answered(ctx *fasthttp.RequestCtx, from *sender) {
	if broken := recover(); broken != nil {
		s.log.Error("answering a request failed", "target", params.Quote(ctx.Request.Header.RequestURI()),
			"panic", broken, "stack", string(debug.Stack()))
		ctx.Response.ResetBody()
		refuse(&ctx.Response, fasthttp.StatusInternalServerError, "the server failed at this", from.json)
	}
	s.metrics.responded(ctx.Response.StatusCode())
	s.last(ctx)
}
