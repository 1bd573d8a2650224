package http

import (
	"bytes"
	"net/http"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/valyala/fasthttp"
)

// newPages returns the handlers of the pages that belong to no controller.
func (s *Server) newPages() map[string]fasthttp.RequestHandler {
	scrape := promhttp.HandlerFor(s.metrics.registry, promhttp.HandlerOpts{})
	return map[string]fasthttp.RequestHandler{
		"/":                  redirect(docsPath),
		"/docs":              redirect(docsPath),
		"/healthz":           func(ctx *fasthttp.RequestCtx) { text(&ctx.Response, "ok\n"+s.store()) },
		"/readyz":            s.ready("ready\n", s.store),
		"/.well-known/ready": s.ready("I'm ready!\n", func() string { return "" }),
		"/metrics":           func(ctx *fasthttp.RequestCtx) { s.scrape(ctx, scrape) },
	}
}

// A pageWriter is an [http.ResponseWriter] that keeps what is written.
type pageWriter struct {
	bytes.Buffer
	header http.Header
	status int
}

// Header implements [http.ResponseWriter].
func (w *pageWriter) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter].
func (w *pageWriter) WriteHeader(status int) { w.status = status }

// scrape answers with the metrics, one scrape at a time.
func (s *Server) scrape(ctx *fasthttp.RequestCtx, handler http.Handler) {
	asks := &http.Request{Method: http.MethodGet, Header: make(http.Header)}
	for _, name := range []string{fasthttp.HeaderAccept, fasthttp.HeaderAcceptEncoding} {
		asks.Header.Set(name, string(ctx.Request.Header.Peek(name)))
	}
	from := readSender(&ctx.Request.Header)
	s.inTurn(ctx, s.config.Budget.Scrape, &from, func() {
		out := pageWriter{header: make(http.Header), status: http.StatusOK}
		handler.ServeHTTP(&out, asks)
		for name := range out.header {
			ctx.Response.Header.Set(name, out.header.Get(name))
		}
		ctx.SetStatusCode(out.status)
		ctx.Response.SetBodyRaw(out.Bytes())
	})
}

// page serves a page, or an asset of the documentation. One that panics is answered for.
func (s *Server) page(ctx *fasthttp.RequestCtx, page string) {
	from := readSender(&ctx.Request.Header)
	defer s.answered(ctx, &from)
	if serve := s.pages[page]; serve != nil {
		serve(ctx)
		s.chargeBy(ctx, &from, s.config.Budget.TakeLast) // of these, only the metrics are as large
		return
	}
	path, ok := unescape([]byte(page), false)
	if !ok {
		refuse(&ctx.Response, fasthttp.StatusBadRequest, badEscape("path", []byte(page)).detail, from.json)
		return
	}
	found, ok := s.manualPage(strings.TrimPrefix(string(path), docsPath))
	if !ok {
		refuse(&ctx.Response, fasthttp.StatusNotFound, notFound([]byte(page)).detail, from.json)
		return
	}
	answerPage(ctx, &found)
}

func redirect(to string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		ctx.Response.Header.Set(fasthttp.HeaderLocation, to)
		ctx.SetStatusCode(fasthttp.StatusFound)
	}
}

// store is the line about the store.
func (s *Server) store() string {
	if s.config.Store == nil {
		return ""
	}
	return s.config.Store()
}

// ready answers whether new requests should be sent here.
func (s *Server) ready(yes string, more func() string) fasthttp.RequestHandler {
	return func(ctx *fasthttp.RequestCtx) {
		if s.stopping.Load() {
			from := readSender(&ctx.Request.Header)
			refuse(&ctx.Response, fasthttp.StatusServiceUnavailable, "server is stopping", from.json)
			return
		}
		text(&ctx.Response, yes+more())
	}
}
