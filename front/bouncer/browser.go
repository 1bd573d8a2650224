package bouncer

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/form"
	"github.com/valyala/fasthttp"
)

// A GET has effects here, and a browser is no client: it fetches in advance, and it sends what any
// page it shows asks for. So what a browser asks on behalf of another site is refused, unless that
// site's origin is allowed by configuration.

// A sender is what the headers say of who sends a request. It is good while the request is handled.
type sender struct {
	host, origin, site []byte // Host, Origin, Sec-Fetch-Site
	prefetch           bool
	json               bool // it wants refusals as application/problem+json
	close              bool // it asks for the connection to be closed, in other words than the usual
	spaced             bool // a header's name has a space in it, which others may read over
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
			from.site = value
		case "Sec-Purpose", "Purpose", "X-Moz":
			from.prefetch = from.prefetch || bytes.Contains(value, []byte("prefetch"))
		case fasthttp.HeaderAccept:
			from.json = bytes.Contains(value, []byte("application/json")) ||
				bytes.Contains(value, []byte("application/problem+json"))
		case fasthttp.HeaderConnection:
			from.close = bytes.Contains(bytes.ToLower(value), []byte("close"))
		default:
			from.spaced = from.spaced || bytes.IndexByte(key, ' ') >= 0
		}
	}
	return from
}

// fromHere refuses requests that a browser makes in advance, or for a page of another site.
func (s *Server) fromHere(ctx *fasthttp.RequestCtx, from *sender) bool {
	switch {
	case from.prefetch:
		s.refuse(ctx, &problem{
			status: fasthttp.StatusForbidden,
			detail: "request is a browser's prefetch, which would take effect here; make it in earnest",
		})
		return false
	case !from.crossSite() || s.origin(from) != "" || slices.Contains(s.config.CORS, "*"):
		return true
	}
	s.refuse(ctx, &problem{
		status: fasthttp.StatusForbidden,
		detail: "request comes from a web page of another site, Origin " + form.Quote(from.origin) +
			"; start the server with --cors ORIGIN to allow it",
	})
	return false
}

// crossSite goes by Sec-Fetch-Site, and by the Origin where a browser does not send that because the
// server is reached by plain HTTP under a name other than localhost.
func (from *sender) crossSite() bool {
	if len(from.site) > 0 {
		return string(from.site) == "cross-site"
	}
	if len(from.origin) == 0 {
		return false
	}
	_, host, _ := strings.Cut(string(from.origin), "://")
	return !strings.EqualFold(host, string(from.host))
}

// origin returns the origin of the request if it is one that is allowed, "" otherwise.
func (s *Server) origin(from *sender) string {
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
		"RateLimit, RateLimit-Policy, Retry-After, "+headerFence+", "+headerMessage)
}
