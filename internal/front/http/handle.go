package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// handle answers one request, or parks its connection.
func (s *Server) handle(ctx *fasthttp.RequestCtx) {
	forbidStoring(&ctx.Response)
	from := readSender(&ctx.Request.Header)
	if from.close {
		ctx.Request.SetConnectionClose()
		ctx.SetConnectionClose()
	}
	path, query := split(ctx.Request.Header.RequestURI())
	if ctx.Request.IsBodyStream() {
		body, ok := s.takeBody(ctx, s.readsBody(ctx, path))
		if !ok {
			return
		}
		defer body.release()
	}
	if !s.rightHost(ctx, path, &from) {
		return
	}
	began := s.metrics.Now()
	r := s.requests.Get().(*request)
	page, p := r.readPath(ctx.Method(), path, query)
	if p == nil && page == "" {
		p = r.readCommand(ctx, query, &from)
	}
	switch {
	case p != nil && p.status == fasthttp.StatusNotFound && s.route(ctx, path, query, &from):
	case p != nil:
		if r.cmd.Op != 0 {
			s.metrics.malformed(r.key.Kind, r.cmd.Op, began)
		}
		s.refuse(ctx, &from, p)
	case page != "" && page != pageList:
		s.page(ctx, page)
		guardPage(&ctx.Response)
	case !s.fromHere(ctx, &from):
	case page == pageList && r.cmd.Op == gatehouse.OpDelete:
		s.deletePrefix(ctx, r.key.Kind, &from)
	case page == pageList:
		s.list(ctx, r.key.Kind, &from)
	default:
		from.began = began
		s.decide(ctx, r, &from)
	}
	s.requests.Put(r)
}

// readCommand fills in the command's parameters from the query and the body, and notes in from how the sender
// wants to be answered.
func (r *request) readCommand(ctx *fasthttp.RequestCtx, query []byte, from *sender) *problem {
	body, p := formOf(ctx)
	if p == nil {
		p = r.readParams(query, body)
	}
	from.json = from.json || r.details || p != nil && wantsDetails(query, body)
	return p
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
	s.metrics.Hangups.Inc()
	conn := ctx.Conn()
	ctx.HijackSetNoResponse(true)
	ctx.Hijack(func(net.Conn) { _ = conn.Close() })
}

// finish answers a request whose connection was not parked.
func (s *Server) finish(
	ctx *fasthttp.RequestCtx, reply *reply, d *gatehouse.Decision, err error,
) {
	reply.answer(&ctx.Response, d, err)
	s.count(reply, telemetry.OutcomeOf(d.Outcome, err), ctx.Response.StatusCode())
	s.last(ctx)
}

// count notes a response in the metrics, and on the log when that is wanted.
func (s *Server) count(reply *reply, outcome telemetry.Outcome, status int) {
	s.metrics.requests.Of(reply.key.Kind, reply.op).Count(outcome, 1, s.metrics.Now()-reply.began)
	s.metrics.responded(status)
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("answered", "kind", reply.key.Kind.String(), "name", reply.key.Name,
			"op", reply.op.String(), "outcome", outcome.String(), "status", status)
	}
}

// last makes this the last answer on its connection when the server is stopping.
func (s *Server) last(ctx *fasthttp.RequestCtx) {
	if s.stopping.Load() {
		ctx.SetConnectionClose()
	}
}

// refuse answers a request that is not put to a controller.
func (s *Server) refuse(ctx *fasthttp.RequestCtx, from *sender, p *problem) {
	s.metrics.responded(p.status)
	allowOrigin(&ctx.Response, s.origin(from))
	for _, header := range [...][2]string{
		{fasthttp.HeaderAllow, p.allow}, {fasthttp.HeaderLocation, p.location},
		{fasthttp.HeaderAccept, p.accept},
	} {
		if header[1] != "" {
			ctx.Response.Header.Set(header[0], header[1])
		}
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
	scheme := bytes.Index(path, []byte("://"))
	if scheme <= 0 {
		return path, query
	}
	path = path[scheme+len("://"):]
	slash := bytes.IndexByte(path, '/')
	if slash < 0 {
		return []byte{'/'}, query
	}
	return path[slash:], query
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
	case errors.Is(err, errBufferedTooMuch):
		p.status = fasthttp.StatusServiceUnavailable
		p.detail = err.Error()
	case errors.As(err, &timeout) && timeout.Timeout():
		p.status = fasthttp.StatusRequestTimeout
		p.detail = fmt.Sprintf("request did not arrive within %s", s.config.ReadTimeout)
	}
	forbidStoring(&ctx.Response)
	from := readSender(&ctx.Request.Header)
	s.refuse(ctx, &from, p)
}

// debugLogger takes what the HTTP library says of connections that went wrong.
type debugLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l debugLogger) Printf(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("http", "message", fmt.Sprintf(format, args...))
	}
}
