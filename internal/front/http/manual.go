package http

import (
	"github.com/gatehousehq/gatehouse/internal/manual"
	"github.com/valyala/fasthttp"
)

// manualContentPolicy is what the pages of documentation may do: everything they need comes from this server,
// and no other page may show them in a frame, where a click could be led to "Send".
const manualContentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; " +
	"img-src 'self' data:; " +
	"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// manualPage is the page of documentation at a path below /docs/. The manual is embedded and its pages are
// tested, so what fails here is a fault of the program, and is answered as a panic.
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

// writeManualPage sends a page of documentation. Its bytes are kept once: every answer sends from the same
// slices, so that a client that does not read costs no memory for the body.
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
	resp.Header.Set(fasthttp.HeaderCacheControl, "no-cache") // the next version has others
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
