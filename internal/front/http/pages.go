package http

import (
	"net/http"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/timeslice"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
)

// newPages returns the handlers of the pages that belong to no controller.
func (s *Server) newPages() map[string]fasthttp.RequestHandler {
	scrape := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
	return map[string]fasthttp.RequestHandler{
		"/":                  redirectHandler(docsPath),
		"/docs":              redirectHandler(docsPath),
		"/healthz":           s.answerHealth,
		"/readyz":            s.readinessHandler("ready\n", s.storeLine),
		"/.well-known/ready": s.readinessHandler("I'm ready!\n", func() string { return "" }),
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
		s.chargeAnswerBy(ctx, &from, s.config.Budget.TakeLast)
		return
	}
	path, ok := decodePercent([]byte(page), false)
	if !ok {
		writeProblem(&ctx.Response, fasthttp.StatusBadRequest,
			badEscape("path", []byte(page)).detail, from.wantsJSON)
		return
	}
	found, ok := s.manualPage(strings.TrimPrefix(string(path), docsPath))
	if !ok {
		writeProblem(&ctx.Response, fasthttp.StatusNotFound, notFound([]byte(page)).detail, from.wantsJSON)
		return
	}
	writeManualPage(ctx, &found)
}

func redirectHandler(to string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set(fasthttp.HeaderLocation, to)
		ctx.SetStatusCode(fasthttp.StatusFound)
	}
}

// answerHealth answers 200 as long as the process answers at all: see Config.Store.
func (s *Server) answerHealth(ctx *fasthttp.RequestCtx) {
	writeText(&ctx.Response, "ok\n"+s.storeLine())
}

// storeLine returns the line about the store, "" if there is none.
func (s *Server) storeLine() string {
	if s.config.Store == nil {
		return ""
	}
	return s.config.Store()
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
