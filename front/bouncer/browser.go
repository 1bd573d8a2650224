package bouncer

import (
	"bytes"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// A GET has effects here, and a browser is no client: it fetches in advance, and it sends what any
// page it shows asks for. So what a browser asks on behalf of another site is refused, unless that
// site's origin is allowed by configuration.

// fromHere refuses requests that a browser makes in advance, or for a page of another site.
func (s *Server) fromHere(ctx *fasthttp.RequestCtx) bool {
	h := &ctx.Request.Header
	switch {
	case isPrefetch(h):
		s.refuse(ctx, &problem{
			status: fasthttp.StatusForbidden,
			detail: "request is a browser's prefetch, which would take effect here; make it in earnest",
		})
		return false
	case s.origin(h) != "" || !isCrossSite(h):
		return true
	}
	s.refuse(ctx, &problem{
		status: fasthttp.StatusForbidden,
		detail: "request comes from a web page of another site, Origin " +
			quote(h.Peek(fasthttp.HeaderOrigin)) + "; start the server with --cors ORIGIN to allow it",
	})
	return false
}

func isPrefetch(h *fasthttp.RequestHeader) bool {
	return bytes.Contains(h.Peek("Sec-Purpose"), []byte("prefetch")) ||
		string(h.Peek("Purpose")) == "prefetch" || string(h.Peek("X-Moz")) == "prefetch"
}

// isCrossSite goes by Sec-Fetch-Site, and by the Origin where a browser does not send that because
// the server is reached by plain HTTP under a name other than localhost.
func isCrossSite(h *fasthttp.RequestHeader) bool {
	if site := h.Peek("Sec-Fetch-Site"); len(site) > 0 {
		return string(site) == "cross-site"
	}
	origin := h.Peek(fasthttp.HeaderOrigin)
	if len(origin) == 0 {
		return false
	}
	_, host, _ := strings.Cut(string(origin), "://")
	return !strings.EqualFold(host, string(h.Host()))
}

// origin returns the origin of the request if it is one that is allowed, "" otherwise.
func (s *Server) origin(h *fasthttp.RequestHeader) string {
	if len(s.config.CORS) == 0 {
		return ""
	}
	origin := string(h.Peek(fasthttp.HeaderOrigin))
	if slices.Contains(s.config.CORS, origin) || slices.Contains(s.config.CORS, "*") {
		return origin
	}
	return ""
}

// allowOrigin lets pages of an origin read the answer, and make requests other than GET.
func allowOrigin(resp *fasthttp.Response, origin string) {
	if origin == "" {
		return
	}
	resp.Header.Set(fasthttp.HeaderAccessControlAllowOrigin, origin)
	resp.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderOrigin)
	resp.Header.Set(fasthttp.HeaderAccessControlAllowMethods, "GET, DELETE")
	resp.Header.Set(fasthttp.HeaderAccessControlExposeHeaders,
		"RateLimit, RateLimit-Policy, Retry-After, "+headerFence+", "+headerMessage)
}
