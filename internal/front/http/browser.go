package http

import (
	"bytes"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// A GET has effects here, and a browser sends one for any page that asks for it, or in advance. So a request
// that a browser makes for a page of another site is refused, unless the configuration allows the origin of
// that page.

// A sender is what the headers of a request say about its client. Its slices are valid until the handler
// returns.
type sender struct {
	host, origin, site []byte // Host, Origin, Sec-Fetch-Site
	accept, referer    []byte
	authorization      []byte
	user               *access.User // nil if rights are off
	login              *access.Login

	requestID, traceparent, tracestate []byte

	hasSecFetch  bool // it has any Sec-Fetch header
	browserAgent bool // its User-Agent is a browser's, or poses as one
	prefetch     bool
	wantsJSON    bool // it wants refusals as application/problem+json
	wantsClose   bool // it asks for the connection to be closed, in other words than the usual

	began time.Duration // when the request had been read, by the clock of the metrics
}

// readSender returns what the headers say, in one pass over them.
func readSender(h *fasthttp.RequestHeader) (from sender) {
	// To look up each header by itself would search all of them ten times. The library has brought the letter
	// case of their names into one form.
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
		case headerRequestID:
			if isRequestID(value) {
				from.requestID = value
			}
		case "Traceparent":
			from.traceparent = value
		case "Tracestate":
			from.tracestate = value
		case fasthttp.HeaderAuthorization:
			from.authorization = value
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

// checkOrigin rejects a request that a browser makes in advance, or for a page of another site. It reports
// whether the request may go on.
func (s *Server) checkOrigin(ctx *fasthttp.RequestCtx, from *sender) bool {
	// A prefetch comes first: one for a page of this server would take effect as well, before its user asked
	// for anything.
	switch {
	case from.prefetch:
		s.rejectRequest(ctx, from, reject(fasthttp.StatusForbidden,
			"request is a browser's prefetch, which would take effect here; make it in earnest"))
		return false
	case !from.isCrossSite() || s.allowedOrigin(from) != "" || slices.Contains(s.config.CORS, "*"):
		return true
	}
	s.rejectRequest(ctx, from, reject(fasthttp.StatusForbidden,
		"request comes from a web page of another site, %s", from.refusedPage()))
	return false
}

// refusedPage says which page of another site a request comes from, and which setting would allow it. A
// request without an Origin is allowed by no list of origins.
func (from *sender) refusedPage() string {
	switch {
	case len(from.origin) > 0:
		return "Origin " + params.Quote(from.origin) + "; start the server with --cors ORIGIN to allow it"
	case len(from.referer) > 0:
		return "Referer " + params.Quote(from.referer) + ", without an Origin; only --cors '*' allows that"
	}
	return "without an Origin; only --cors '*' allows that"
}

// isCrossSite reports whether a browser makes the request for a page of another site. A page at another port
// of the same host, or below the same domain, counts as another site: it may belong to another owner.
func (from *sender) isCrossSite() bool {
	if len(from.site) > 0 {
		return string(from.site) != "same-origin" && string(from.site) != "none"
	}
	// Over plain HTTP, to names other than localhost, a browser leaves out Sec-Fetch-Site. Then a script
	// still sends an Origin, and other requests may have the Referer of the page that asks. An image never
	// comes from a page of this server, which has none.
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

// isSameHost reports whether the URL of a page, or its origin, has the host that the request is sent to.
func (from *sender) isSameHost(page []byte) bool {
	return bytes.EqualFold(urlAuthority(page), from.host)
}

// allowedOrigin returns the origin of the request if the configuration allows it, "" otherwise.
func (s *Server) allowedOrigin(from *sender) string {
	if len(s.config.CORS) == 0 {
		return ""
	}
	// Where the star allows every origin, the answer names the one that asks as well.
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
		"RateLimit, RateLimit-Policy, Retry-After, "+headerFence+", "+headerExpires+", "+headerMessage+
			", "+headerDecision)
}

// defaultContentPolicy is the Content-Security-Policy of pages that set none. No page may be shown in a
// frame, where a click that was meant for another site could land on it.
const defaultContentPolicy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// restrictPage makes a browser keep to the policy of a page, and to its Content-Type.
func restrictPage(resp *fasthttp.Response) {
	h := &resp.Header
	if len(h.Peek(fasthttp.HeaderContentSecurityPolicy)) == 0 {
		h.Set(fasthttp.HeaderContentSecurityPolicy, defaultContentPolicy)
	}
	h.Set(headerNoSniff, "nosniff")
}
