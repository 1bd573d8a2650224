package http

import (
	"github.com/gatehousehq/gatehouse/internal/manual"
	"github.com/valyala/fasthttp"
)

// manualContentPolicy is the Content-Security-Policy of the documentation: all that its pages need comes from
// this server, and no other page may show them in a frame, where a click could land on "Send".
const manualContentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// manualPage returns the page of documentation at a path below /docs/. It panics on an error: the manual is
// embedded and all its pages are tested, so that is a bug.
func (s *Server) manualPage(path string) (page manual.Page, ok bool) {
	pages, err := s.manual()
	if err == nil {
		page, ok, err = pages.Page(path)
	}
	if err != nil {
		panic("bouncer: " + err.Error())
	}
	return page, ok
}

// writeManualPage answers with a page of documentation. All answers send from the same bytes, so a client
// that does not read costs no memory for the body.
func writeManualPage(ctx *fasthttp.RequestCtx, page *manual.Page) {
	resp := &ctx.Response
	resp.Header.Set("Content-Security-Policy", manualContentPolicy)
	resp.Header.Set(headerNoSniff, "nosniff")
	resp.Header.Set("Referrer-Policy", "no-referrer")
	if page.Location != "" {
		resp.Header.Set(fasthttp.HeaderLocation, page.Location)
		resp.SetStatusCode(fasthttp.StatusFound)
		return
	}
	resp.Header.SetContentType(page.Type)
	resp.Header.Set(fasthttp.HeaderETag, page.Tag)
	// Browsers may keep it, but must ask: the next version of the program has other pages.
	resp.Header.Set(fasthttp.HeaderCacheControl, "no-cache")
	resp.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderAcceptEncoding)
	switch {
	case string(ctx.Request.Header.Peek(fasthttp.HeaderIfNoneMatch)) == page.Tag:
		resp.SetStatusCode(fasthttp.StatusNotModified)
	case ctx.Request.Header.HasAcceptEncoding("gzip"):
		resp.Header.SetContentEncoding("gzip")
		resp.SetBodyRaw(page.Gzipped)
	default:
		resp.SetBodyRaw(page.Body)
	}
}
