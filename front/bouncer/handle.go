package bouncer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/valyala/fasthttp"
)

// handle answers one request, or parks its connection.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	from := readSender(&ctx.Request.Header)
	if !wellFramed(&ctx.Request.Header, &from) {
		s.refuse(ctx, malformedRequest())
		ctx.SetConnectionClose()
		return
	}
	if from.close {
		ctx.Request.SetConnectionClose()
		ctx.SetConnectionClose()
	}
	r := s.requests.Get().(*request)
	path, query := split(ctx.Request.Header.RequestURI())
	page, p := r.read(ctx.Method(), path, query)
	switch {
	case p != nil && p.status == fasthttp.StatusNotFound && s.route(ctx, path, query, &from):
	case p != nil:
		s.refuse(ctx, p)
	case page != "" && page != pageList:
		s.page(ctx, page)
	case !s.fromHere(ctx, &from):
	case page == pageList:
		s.list(ctx, r.key.Kind, &from)
	default:
		s.decide(ctx, r, &from)
	}
	s.requests.Put(r)
}

// decide puts the request to its controller. A semaphore or a lock is not given to a client that has left.
func (s *Server) decide(ctx *fasthttp.RequestCtx, r *request, from *sender) {
	r.cmd.Keep = s.config.Keep
	if r.holds() && hungUp(ctx.Conn()) {
		s.abandon(ctx)
		return
	}
	if s.config.Gate.Slow(r.key) {
		s.waitSlow(ctx, r, from)
		return
	}
	d, settled, err := s.config.Gate.Try(r.key, &r.cmd)
	if !settled {
		s.wait(ctx, r, from)
		return
	}
	if r.holds() && err == nil && d.Outcome == gatehouse.Granted {
		key, cmd, granted := r.key, r.cmd, d // which the request does not keep
		takeBackUnsent(ctx.Conn(), func() { s.config.Gate.TakeBack(key, cmd, granted) })
	}
	reply := s.reply(ctx, r, from)
	reply.scratch = r.scratch[:]
	s.finish(ctx, &reply, &d, err)
}

// abandon ends the connection of a client that has left, without an answer to its request or to those behind
// it. Answers to earlier requests are sent first.
func (s *Server) abandon(ctx *fasthttp.RequestCtx) {
	s.metrics.hangups.Inc()
	conn := ctx.Conn()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) { _ = conn.Close() })
}

// finish answers a request whose connection was not parked.
func (s *Server) finish(
	ctx *fasthttp.RequestCtx, reply *reply, d *gatehouse.Decision, err error,
) {
	reply.answer(&ctx.Response, d, err)
	s.count(reply, ctx.Response.StatusCode())
	s.last(ctx)
}

// count notes an answer in the metrics, and on the log when that is wanted.
func (s *Server) count(reply *reply, status int) {
	s.metrics.count(reply.key.Kind, reply.op, status)
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("answered", "kind", reply.key.Kind, "name", reply.key.Name, "op", reply.op,
			"status", status)
	}
}

// last makes this the last answer on its connection when the server is stopping.
func (s *Server) last(ctx *fasthttp.RequestCtx) {
	if s.stopping.Load() {
		ctx.SetConnectionClose()
	}
}

// refuse answers a request that is not put to a controller.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, p *problem) {
	s.metrics.count(0, 0, p.status)
	from := readSender(&ctx.Request.Header)
	allowOrigin(&ctx.Response, s.origin(&from))
	if p.allow != "" {
		ctx.Response.Header.Set(fasthttp.HeaderAllow, p.allow)
	}
	if p.location != "" {
		ctx.Response.Header.Set(fasthttp.HeaderLocation, p.location)
	}
	ctx.SetStatusCode(p.status)
	if p.detail != "" {
		refuse(&ctx.Response, p.status, p.detail, from.json)
	}
	s.last(ctx)
}

// split takes a request target apart, which may also be a whole URL.
func split(uri []byte) (path, query []byte) {
	path, query, _ = bytes.Cut(uri, []byte{'?'})
	if len(path) == 0 || path[0] == '/' {
		return path, query
	}
	if i := bytes.Index(path, []byte("://")); i > 0 {
		path = path[i+3:]
		if i = bytes.IndexByte(path, '/'); i < 0 {
			return []byte{'/'}, query
		}
		path = path[i:]
	}
	return path, query
}

// wellFramed refuses what others may take for something else than this server does: a protocol of
// another version, not one Host, a body whose end is given in two ways. It looks at the raw lines,
// because the HTTP library has made one of several.
func wellFramed(h *fasthttp.RequestHeader, from *sender) bool {
	hosts, ends, chunked := 0, 0, false
	for line := range bytes.Lines(h.RawHeaders()) {
		switch line[0] | 0x20 { // in lower case
		case 'h':
			hosts += count(hasName(line, "host:"))
		case 'c':
			ends += count(hasName(line, "content-length:"))
		case 't':
			if hasName(line, "transfer-encoding:") {
				chunked = true
				ends++
			}
		}
	}
	if from.spaced || ends > 1 || hosts > 1 {
		return false
	}
	if h.IsHTTP11() {
		return hosts == 1
	}
	return bytes.HasPrefix(h.Protocol(), []byte("HTTP/1.")) && !chunked
}

// hasName reports whether a header line begins with a name, in any letter case.
func hasName(line []byte, name string) bool {
	return len(line) >= len(name) && strings.EqualFold(string(line[:len(name)]), name)
}

func count(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

func malformedRequest() *problem {
	return bad("request is malformed: want an HTTP/1.1 request line and headers")
}

// malformed answers what is not a request. The connection ends with the answer.
func (s *Server) malformed(ctx *fasthttp.RequestCtx, err error) {
	p := malformedRequest()
	var timeout net.Error
	var tooLong *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &tooLong):
		p.status = fasthttp.StatusRequestHeaderFieldsTooLarge
		p.detail = fmt.Sprintf("request line and headers are longer than %d bytes", maxHeader)
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		p.status = fasthttp.StatusRequestEntityTooLarge
		p.detail = fmt.Sprintf("body is longer than %d bytes", maxBody)
	case errors.As(err, &timeout) && timeout.Timeout():
		p.status = fasthttp.StatusRequestTimeout
		p.detail = fmt.Sprintf("request did not arrive within %s", s.config.ReadTimeout)
	}
	s.refuse(ctx, p)
}

// debugLogger takes what the HTTP library says of connections that went wrong.
type debugLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l debugLogger) Printf(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("http", "message", fmt.Sprintf(format, args...))
	}
}
