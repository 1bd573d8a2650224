package http

import (
	"bytes"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A GET has effects here, and a browser is no client: it fetches in advance, and it sends what any
// page it shows asks for. So what a browser asks on behalf of another site is refused, unless that
// site's origin is allowed by configuration.

// A sender is what the headers say of who sends a request. It is good while the request is handled.
type sender struct {
	host, origin, site []byte // Host, Origin, Sec-Fetch-Site
	accept, referer    []byte
	hasSecFetch        bool // it has any Sec-Fetch header
	browserAgent       bool // its User-Agent is a browser's, or poses as one
	prefetch           bool
	wantsJSON          bool // it wants refusals as application/problem+json
	wantsClose         bool // it asks for the connection to be closed, in other words than the usual

	began time.Duration // when the request had been read, by the clock of the metrics
}

// readSender looks at every header once.
func readSender(h *fasthttp.RequestHeader) (from sender) {
	for key, value := range h.All() {
		switch string(key) {
		case fasthttp.HeaderHost:
			from.host = value
		case fasthttp.HeaderOrigin:
			from.origin = value
		case "Sec-Fetch-Site":
			from.site, from.hasSecFetch = value, true
		case "Sec-Fetch-Mode", "Sec-Fetch-Dest", "Sec-Fetch-User":
			from.hasSecFetch = true
		case fasthttp.HeaderUserAgent:
			from.browserAgent = bytes.HasPrefix(value, []byte("Mozilla/"))
		case fasthttp.HeaderReferer:
			from.referer = value
		case "Sec-Purpose", "Purpose", "X-Moz":
			from.prefetch = from.prefetch || bytes.Contains(value, []byte("prefetch"))
		case fasthttp.HeaderAccept:
			from.accept = value
			from.wantsJSON = bytes.Contains(value, []byte("application/json")) ||
				bytes.Contains(value, []byte("application/problem+json"))
		case fasthttp.HeaderConnection:
			from.wantsClose = bytes.Contains(bytes.ToLower(value), []byte("close"))
		}
	}
	return from
}

// checkOrigin refuses requests that a browser makes in advance, or for a page of another site.
func (s *Server) checkOrigin(ctx *fasthttp.RequestCtx, from *sender) bool {
	switch {
	case from.prefetch:
		s.rejectRequest(ctx, from, &rejection{
			status: fasthttp.StatusForbidden,
			detail: "request is a browser's prefetch, which would take effect here; make it in earnest",
		})
		return false
	case !from.isCrossSite() || s.allowedOrigin(from) != "" || slices.Contains(s.config.CORS, "*"):
		return true
	}
	s.rejectRequest(ctx, from, &rejection{
		status: fasthttp.StatusForbidden,
		detail: "request comes from a web page of another site, " + from.refusedPage(),
	})
	return false
}

// refusedPage says which page of another site a request comes from, and what would allow it. A list of
// origins allows nothing that comes without one.
func (from *sender) refusedPage() string {
	switch {
	case len(from.origin) > 0:
		return "Origin " + params.Quote(from.origin) + "; start the server with --cors ORIGIN to allow it"
	case len(from.referer) > 0:
		return "Referer " + params.Quote(from.referer) + ", without an Origin; only --cors '*' allows that"
	}
	return "without an Origin; only --cors '*' allows that"
}

// isCrossSite goes by Sec-Fetch-Site. A page at another port of the same host is another site as well,
// because whoever runs it need not be who runs this server. Browsers do not send that header where the
// server is reached by plain HTTP under a name other than localhost; then Origin tells, which comes with
// the requests of scripts, and what comes with the others: no page here has images, and a Referer is the
// page that asks.
func (from *sender) isCrossSite() bool {
	if len(from.site) > 0 {
		return string(from.site) != "same-origin" && string(from.site) != "none"
	}
	switch {
	case len(from.origin) > 0:
		return !from.isSameHost(from.origin)
	case !from.browserAgent:
		return false
	case bytes.HasPrefix(from.accept, []byte("image/")):
		return true
	}
	return len(from.referer) > 0 && !from.isSameHost(from.referer)
}

// isSameHost reports whether the URL of a page, or its origin, is of the host that the request is for.
func (from *sender) isSameHost(page []byte) bool {
	return bytes.EqualFold(urlAuthority(page), from.host)
}

// allowedOrigin returns the origin of the request if it is one that is allowed, "" otherwise.
func (s *Server) allowedOrigin(from *sender) string {
	if len(s.config.CORS) == 0 {
		return ""
	}
	origin := string(from.origin)
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
	resp.Header.Set(fasthttp.HeaderAccessControlAllowMethods, "GET, POST, DELETE")
	resp.Header.Set(fasthttp.HeaderAccessControlExposeHeaders,
		"RateLimit, RateLimit-Policy, Retry-After, "+headerFence+", "+headerExpires+", "+headerMessage)
}

// defaultContentPolicy is that of pages that bring none of their own. No page may be shown in a frame, where
// a click that was meant for another site could be led to it.
const defaultContentPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// restrictPage tells a browser what a page may do, and that it is what it is said to be.
func restrictPage(resp *fasthttp.Response) {
	h := &resp.Header
	if len(h.Peek(fasthttp.HeaderContentSecurityPolicy)) == 0 {
		h.Set(fasthttp.HeaderContentSecurityPolicy, defaultContentPolicy)
	}
	h.Set(headerNoSniff, "nosniff")
}
