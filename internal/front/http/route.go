package http

import (
	"bytes"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"unicode"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A route is a path that another front serves on this listener, and its handlers. See Config.Routes.
type route struct {
	path    string // one that ends in a slash stands for all paths below it
	methods map[string]routeHandler
	allow   string
}

type routeHandler = func(ctx *fasthttp.RequestCtx, name string) error

// newRoutes reads Config.Routes. Longer paths come first, so that the most specific one is found first.
func newRoutes(config map[string]routeHandler) (all []*route, err error) {
	for pattern, answer := range config {
		method, path, _ := strings.Cut(pattern, " ")
		// A path that readTarget accepts belongs to a controller or a page, and the route would never be
		// reached.
		known := method == fasthttp.MethodGet || method == fasthttp.MethodPost
		known = known && strings.HasPrefix(path, "/") && answer != nil
		_, several := readSeveral([]byte(path))
		if _, p := readTarget([]byte(path)); !known || p == nil || several {
			return nil, fmt.Errorf("route %q, want GET or POST and a path that is not taken", pattern)
		}
		i := slices.IndexFunc(all, func(r *route) bool { return r.path == path })
		if i < 0 {
			i = len(all)
			all = append(all, &route{path: path, methods: make(map[string]routeHandler)})
		}
		all[i].methods[method] = answer
	}
	// The library leaves out the body of an answer to HEAD, so the handler of GET serves both.
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

// findRoute returns the route of a raw path, nil if there is none. rest is the part of the path behind a
// route that ends in a slash, still encoded. odd reports that the path is not in its canonical form: its
// letter case differs, or it has a slash at the end.
func (s *Server) findRoute(path []byte) (r *route, rest []byte, odd bool) {
	for _, r := range s.routes {
		// newRoutes has put the longest first, so that the first that fits is the most specific.
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

// answerRoute answers a request to a route. ok is false if there is none for the path.
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
		// This may be the browser's preflight, an OPTIONS before a script of an allowed origin sends JSON.
		if s.allowedOrigin(from) != "" {
			ctx.Response.Header.Set(fasthttp.HeaderAccessControlAllowHeaders, fasthttp.HeaderContentType)
		}
		s.rejectRequest(ctx, from, p)
	case !isPageVisit(&ctx.Request.Header, from) && !s.checkOrigin(ctx, from):
	case !s.checkRoute(ctx, r, name, from):
	default:
		allowOrigin(&ctx.Response, s.allowedOrigin(from))
		s.callRoute(ctx, r.methods[string(ctx.Method())], name, from)
		restrictPage(&ctx.Response)
	}
	return true
}

// readName checks the method of a request, and decodes the name that its path ends in.
func (r *route) readName(method, rest []byte) (name string, p *rejection) {
	// OPTIONS is never in methods; wrongMethod answers it.
	if r.methods[string(method)] == nil {
		return "", wrongMethod(method, r.allow)
	}
	text, ok := decodePercent(rest, false)
	if !ok {
		return "", badEscape("name", rest)
	}
	return string(text), nil
}

// redirectTo redirects to the canonical form of a path: with 301, or with 308 for a POST, which stays a POST.
func redirectTo(method []byte, location string) *rejection {
	// The library writes the header as it is, so a line feed would begin a header of the client's.
	if strings.ContainsFunc(location, unicode.IsControl) {
		return badRequest("request target has a control character, want it percent-encoded")
	}
	status := fasthttp.StatusMovedPermanently
	if string(method) == fasthttp.MethodPost {
		status = fasthttp.StatusPermanentRedirect
	}
	return &rejection{status: status, location: location}
}

// isPageVisit reports whether a browser will show the answer as a page of its own, because its user followed
// a link. That is allowed from other sites: a GET of a route has no effects, and no page of another site can
// read what is shown in this way. A browser without Sec-Fetch headers may show it in a frame; restrictPage
// forbids that.
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

// callRoute lets a route answer. If the route panics, the answer is 500.
func (s *Server) callRoute(ctx *fasthttp.RequestCtx, answer routeHandler, name string, from *sender) {
	defer s.finishPage(ctx, from)
	var err error
	// A GET is a page, which costs much to make. A POST is a call, as short as a decision.
	if !ctx.IsPost() {
		s.answerInTurn(ctx, s.config.Budget.Page, from, func() { err = answer(ctx, name) })
	} else {
		err = answer(ctx, name)
	}
	if err == nil {
		s.chargeAnswer(ctx, from, s.config.Budget.Take)
		return
	}
	if s.config.Users != nil && access.IsRefusal(err) {
		s.refuseRoute(ctx, from, err)
		return
	}
	f := errorRejection(err)
	if status := ctx.Response.StatusCode(); status >= fasthttp.StatusBadRequest {
		f.status = status
		f.code = "" // writeTo takes the one of the status
	}
	f.writeTo(&ctx.Response, from.wantsJSON)
}

// finishPage counts the answer of a page or a route. It must be deferred: it turns a panic into a 500,
// because a request must not end the server.
func (s *Server) finishPage(ctx *fasthttp.RequestCtx, from *sender) {
	if broken := recover(); broken != nil {
		// With an id the client can name the line in the log.
		if len(from.requestID) == 0 {
			from.requestID = newRequestID()
			setHeader(&ctx.Response, headerRequestID, from.requestID)
		}
		s.log.Error("handling a request failed", "request", string(from.requestID),
			"target", params.Quote(ctx.Request.Header.RequestURI()), "panic", broken,
			"stack", string(debug.Stack()))
		ctx.Response.ResetBody()
		writeProblem(&ctx.Response, fasthttp.StatusInternalServerError, "the server failed at this",
			from.wantsJSON)
	}
	s.metrics.countResponse(ctx.Response.StatusCode())
	s.closeIfStopping(ctx)
}
