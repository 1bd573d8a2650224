package http

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/manual"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/timeslice"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
)

// noLine is the line about a store of which there is nothing to say.
func noLine() string { return "" }

// newPages returns the handlers of the pages that belong to no controller.
func (s *Server) newPages() map[string]fasthttp.RequestHandler {
	scrape := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
	return map[string]fasthttp.RequestHandler{
		"/":                  s.answerRoot,
		"/docs":              redirectHandler(docsPath),
		"/healthz":           s.answerHealth,
		"/readyz":            s.readinessHandler("ready\n", s.config.Store),
		"/.well-known/ready": s.readinessHandler("I'm ready!\n", noLine),
		cyclesPath:           s.answerCycles,
		topPath:              s.answerTop,
		whoamiPath:           s.answerWhoami,
		"/metrics":           func(ctx *fasthttp.RequestCtx) { s.answerMetrics(ctx, scrape) },
	}
}

// A pageWriter is an [http.ResponseWriter] that keeps what is written.
type pageWriter struct {
	body   []byte
	header http.Header
	status int
	work   timeslice.Work
}

// Write implements [http.ResponseWriter]. It is called for each few KiB.
func (w *pageWriter) Write(part []byte) (int, error) {
	w.work.Yield()
	w.body = append(w.body, part...)
	return len(part), nil
}

// Header implements [http.ResponseWriter].
func (w *pageWriter) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *pageWriter) WriteHeader(status int) { w.status = status }

// answerMetrics answers with the metrics. One scrape is made at a time.
func (s *Server) answerMetrics(ctx *fasthttp.RequestCtx, handler http.Handler) {
	asks := &http.Request{Method: http.MethodGet, Header: make(http.Header)}
	for _, name := range []string{fasthttp.HeaderAccept, fasthttp.HeaderAcceptEncoding} {
		asks.Header.Set(name, string(ctx.Request.Header.Peek(name)))
	}
	// The handler is net/http's. It is given the two headers that it looks at, and writes into memory.
	from := readSender(&ctx.Request.Header)
	s.answerInTurn(ctx, s.config.Budget.Scrape, &from, func() {
		out := pageWriter{header: make(http.Header), status: http.StatusOK}
		handler.ServeHTTP(&out, asks)
		for name := range out.header {
			ctx.Response.Header.Set(name, out.header.Get(name))
		}
		ctx.SetStatusCode(out.status)
		ctx.Response.SetBodyRaw(out.body)
	})
}

// answerPage answers with a page, or an asset of the documentation. If the page panics, the answer is 500.
func (s *Server) answerPage(ctx *fasthttp.RequestCtx, page string) {
	from := readSender(&ctx.Request.Header)
	defer s.finishPage(ctx, &from)
	if serve := s.pages[page]; serve != nil {
		serve(ctx)
		// Of these pages only the metrics are large. They may use the last part of the budget, as they are
		// needed most while it is used up.
		s.chargeAnswer(ctx, &from, s.config.Budget.TakeLast)
		return
	}
	if strings.HasPrefix(page, decisionsPath) {
		s.answerDecision(ctx, &from, page)
		s.chargeAnswer(ctx, &from, s.config.Budget.Take)
		return
	}
	if asset, is := strings.CutPrefix(page, assetsPath); is && asset != "" {
		if found, ok := s.page(asset); ok {
			writeManualPage(ctx, &found)
			return
		}
	}
	path, ok := decodePercent([]byte(page), false)
	if !ok {
		badEscape("path", []byte(page)).writeTo(&ctx.Response, from.wantsJSON)
		return
	}
	found, ok := s.manualPage(strings.TrimPrefix(string(path), docsPath))
	if !ok {
		notFound([]byte(page)).writeTo(&ctx.Response, from.wantsJSON)
		return
	}
	writeManualPage(ctx, &found)
}

// answerRoot answers a browser with the page of what goes on, and any other program with where the
// documentation is.
func (s *Server) answerRoot(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderAccept)
	accept := ctx.Request.Header.Peek(fasthttp.HeaderAccept)
	if s.config.Activity == nil || !bytes.Contains(accept, []byte("text/html")) {
		redirectHandler(docsPath)(ctx)
		return
	}
	found, _ := s.page("")
	writeManualPage(ctx, &found)
	ctx.Response.Header.Set(fasthttp.HeaderVary, fasthttp.HeaderAccept+", "+fasthttp.HeaderAcceptEncoding)
}

func redirectHandler(to string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set(fasthttp.HeaderLocation, to)
		ctx.SetStatusCode(fasthttp.StatusFound)
	}
}

// healthPages are those of a listener of ServeHealth.
var healthPages = []string{"/healthz", "/readyz", "/.well-known/ready", "/metrics"}

// answerHealthAlone answers a request on a listener of ServeHealth.
func (s *Server) answerHealthAlone(ctx *fasthttp.RequestCtx, path []byte, from *sender) {
	if !slices.Contains(healthPages, string(path)) {
		s.rejectRequest(ctx, from, reject(fasthttp.StatusNotFound,
			"path %s is not here: this address has /healthz, /readyz and /metrics alone", params.Quote(path)))
		return
	}
	s.answerPage(ctx, string(path))
	restrictPage(&ctx.Response)
}

// answerHealth answers 200 as long as the process answers at all: see Config.Store.
func (s *Server) answerHealth(ctx *fasthttp.RequestCtx) {
	writeText(&ctx.Response, "ok\n"+s.config.Store())
}

// readinessHandler answers whether new requests should be sent to this server.
func (s *Server) readinessHandler(yes string, more func() string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		// A load balancer is to send nothing new here, while requests that have arrived are still answered.
		if s.stopping.Load() {
			from := readSender(&ctx.Request.Header)
			writeProblem(&ctx.Response, fasthttp.StatusServiceUnavailable, "server is stopping",
				from.wantsJSON)
			return
		}
		writeText(&ctx.Response, yes+more())
	}
}

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

// chargeAnswer takes an answer from the budget of the server until it is written. If take finds no room for
// it, the answer becomes 503. An answer whose bytes are shared by all requests must not be charged.
func (s *Server) chargeAnswer(ctx *fasthttp.RequestCtx, from *sender, take func(bytes int) bool) {
	c := connectionOf(ctx)
	size := len(ctx.Response.Body())
	if size <= budget.Tiny {
		return
	}
	if !take(size) {
		s.writeOverloaded(&ctx.Response, from.wantsJSON)
		return
	}
	c.answerBytes = size
}

// chargeTask is chargeAnswer for the result of a waiter's task.
func (s *Server) chargeTask(ctx *fasthttp.RequestCtx, w *waiter) {
	c := connectionOf(ctx)
	size := len(ctx.Response.Body())
	if size <= budget.Tiny && w.charged == 0 {
		return
	}
	// A batch has taken room in advance.
	if more := size - w.charged; more > 0 && s.config.Budget.Take(more) {
		w.charged = size
	}
	c.answerBytes = w.charged
	if size > w.charged {
		ctx.Response.ResetBody()
		w.task.writeShort(&ctx.Response, &w.responder)
	}
}

// writeOverloaded replaces an answer for which the budget has no room by 503.
func (s *Server) writeOverloaded(resp *fasthttp.Response, json bool) {
	resp.ResetBody()
	resp.Header.Del(fasthttp.HeaderContentEncoding)
	writeProblem(resp, fasthttp.StatusServiceUnavailable, errBufferedTooMuch.Error(), json)
}

// noteCharged notes how many bytes of the budget an answer has that is to be written next. Those of an
// earlier answer of the same pipeline are given back before, unless a goroutine still sends it.
func (c *httpConn) noteCharged(size int) {
	if size > 0 {
		c.writeEarlier()
		c.answerCharged += size
	}
}

// releaseCharged gives the bytes of what was written back to the budget.
func (c *httpConn) releaseCharged() {
	if c.answerCharged > 0 {
		c.server.config.Budget.Release(c.answerCharged)
		c.answerCharged = 0
	}
}

// answerInTurn calls answer while no other answer of its sort is made. It answers 503 if the turn does not
// come within WriteTimeout.
func (s *Server) answerInTurn(ctx *fasthttp.RequestCtx, turn budget.Mutex, from *sender, answer func()) {
	if !turn.BeginWithin(context.Background(), s.config.WriteTimeout) {
		writeProblem(&ctx.Response, fasthttp.StatusServiceUnavailable,
			"server makes one such answer at a time, and others came first; try again soon", from.wantsJSON)
		return
	}
	defer turn.End()
	answer()
}
