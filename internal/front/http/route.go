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
	methods map[string]routeHandler
	allow   string
}

type routeHandler = func(ctx *fasthttp.RequestCtx, name string) error

// newRoutes reads Config.Routes. Longer paths come first, so that the nearest is found first.
func newRoutes(config map[string]routeHandler) (all []*route, err error) {
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
			all = append(all, &route{path: path, methods: make(map[string]routeHandler)})
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

// answerRoute answers a request to a path that is none of this door's own. ok is false if there is no such
// route.
func (s *Server) answerRoute(ctx *fasthttp.RequestCtx, path, query []byte, from *sender) (ok bool) {
	r, rest, odd := s.findRoute(path)
	if r == nil {
		return false
	}
	name, p := r.readName(ctx.Method(), rest)
	if p == nil && odd {
		p = redirectTo(ctx.Method(), withQuery(r.path+string(rest), query))
	}
	switch {
	case p != nil:
		s.rejectRequest(ctx, from, p)
		if s.allowedOrigin(from) != "" { // a script of that origin may send JSON as what it is
			ctx.Response.Header.Set(fasthttp.HeaderAccessControlAllowHeaders, fasthttp.HeaderContentType)
		}
	case !isPageVisit(&ctx.Request.Header, from) && !s.checkOrigin(ctx, from):
	default:
		allowOrigin(&ctx.Response, s.allowedOrigin(from))
		s.callRoute(ctx, r.methods[string(ctx.Method())], name, from)
		restrictPage(&ctx.Response)
	}
	return true
}

// readName looks at a request's method, and decodes the name that its path ends in.
func (r *route) readName(method, rest []byte) (name string, p *rejection) {
	if r.methods[string(method)] == nil {
		return "", wrongMethod(method, r.allow)
	}
	text, ok := decodePercent(rest, false)
	if !ok {
		return "", badEscape("name", rest)
	}
	return string(text), nil
}

// redirectTo leads to the proper form of a path. A POST stays a POST.
func redirectTo(method []byte, location string) *rejection {
	if strings.ContainsFunc(location, unicode.IsControl) {
		return badRequest("request target has a control character, want it percent-encoded")
	}
	status := fasthttp.StatusMovedPermanently
	if string(method) == fasthttp.MethodPost {
		status = fasthttp.StatusPermanentRedirect
	}
	return &rejection{status: status, location: location}
}

// isPageVisit reports whether a browser is about to show the answer as a page of its own, because somebody
// followed a link. A GET of a route has no effects, and no other site's page can read what is shown so.
// Where a browser does not tell, it may be about to show the page in a frame; it is told not to with the
// answer.
func isPageVisit(h *fasthttp.RequestHeader, from *sender) bool {
	if !h.IsGet() {
		return false
	}
	if from.hasSecFetch {
		return string(h.Peek("Sec-Fetch-Mode")) == "navigate" &&
			string(h.Peek("Sec-Fetch-Dest")) == "document"
	}
	return len(from.origin) == 0 && bytes.HasPrefix(from.accept, []byte("text/html"))
}

// callRoute lets a route answer. One that panics is answered for: a request must not end the server.
func (s *Server) callRoute(ctx *fasthttp.RequestCtx, answer routeHandler, name string, from *sender) {
	defer s.finishPage(ctx, from)
	var err error
	if !ctx.IsPost() { // it is a page
		s.answerInTurn(ctx, s.config.Budget.Page, from, func() { err = answer(ctx, name) })
	} else {
		err = answer(ctx, name)
	}
	if err == nil {
		s.chargeAnswer(ctx, from)
		return
	}
	f := errorProblem(err)
	if status := ctx.Response.StatusCode(); status >= fasthttp.StatusBadRequest {
		f.status = status
		f.code = "" // that of the status
	}
	f.writeTo(&ctx.Response, from.wantsJSON)
}

// finishPage is deferred by whatever answers for a page or a route, and counts the answer. A panic becomes a
// 500: a request must not end the server.
func (s *Server) finishPage(ctx *fasthttp.RequestCtx, from *sender) {
	if broken := recover(); broken != nil {
		s.log.Error("answering a request failed", "target", params.Quote(ctx.Request.Header.RequestURI()),
			"panic", broken, "stack", string(debug.Stack()))
		ctx.Response.ResetBody()
		writeProblem(&ctx.Response, fasthttp.StatusInternalServerError, "the server failed at this",
			from.wantsJSON)
	}
	s.metrics.countResponse(ctx.Response.StatusCode())
	s.closeIfStopping(ctx)
}
