package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/valyala/fasthttp"
)

// handleRequest answers one request, or has its connection wait. On the loop it reports false where the
// answer may take long: then it is called again, with mayBlock, by a goroutine.
func (s *Server) handleRequest(ctx *fasthttp.RequestCtx, mayBlock bool) (done bool) {
	forbidStoring(&ctx.Response)
	from := readSender(&ctx.Request.Header)
	nameRequest(ctx, &from)
	// The library knows "close" only as the whole value of Connection, and not in a list.
	if from.wantsClose {
		ctx.Request.SetConnectionClose()
	}
	path, query := splitURI(ctx.Request.Header.RequestURI())
	if !s.admitRequest(ctx, path, &from) {
		return true
	}
	if isHealthAlone(ctx) {
		// The metrics wait for their turn, as they do elsewhere.
		if mayBlock {
			s.answerHealthAlone(ctx, path, &from)
		}
		return mayBlock
	}
	// Much takes long to read, and to do.
	if !mayBlock && len(ctx.Request.Body()) > eventloop.ReadSize {
		return false
	}
	// Grants and batches have paths that neither a kind nor a route can have.
	if s.answerSeveral(ctx, path, query, &from) {
		return true
	}
	began := s.metrics.Now()
	// Requests are pooled, as a request that is decided at once allocates nothing. Whatever outlives this
	// function copies what it needs.
	r := s.requestPool.Get().(*httpRequest)
	page, p := r.readPath(ctx.Method(), path, query)
	r.stream = false
	if p == nil && page == "" {
		p = r.readFormAndQuery(ctx, query, &from)
		if p == nil && len(from.accept) > 0 {
			p = r.checkStream(ctx, &from)
		}
	}
	// The path of a route is unknown to the controllers, so these are tried on 404. The paths of controllers
	// come first; newRoutes refuses a route that another path would hide.
	done = true
	switch {
	case !mayBlock && s.takesLong(r, p, page, path):
		done = false
	case p != nil && p.status == fasthttp.StatusNotFound && s.answerRoute(ctx, path, query, &from):
	case p != nil:
		if r.Command.Op != 0 {
			s.metrics.countMalformed(r.Key.Kind, r.Command.Op, began)
		}
		s.rejectRequest(ctx, &from, p)
	case page != "" && page != listPage:
		if s.mayOpen(ctx, page, &from) {
			s.answerPage(ctx, page)
			restrictPage(&ctx.Response)
		}
	case !s.checkOrigin(ctx, &from):
	case page == listPage && r.Command.Op == gatehouse.OpDelete:
		s.deletePrefix(ctx, r.Key.Kind, &from)
	case page == listPage:
		s.answerList(ctx, r.Key.Kind, &from)
	default:
		from.began = began
		s.decideRequest(ctx, r, &from)
	}
	s.requestPool.Put(r)
	return done
}

// takesLong reports whether a request is for a page, a route, or to delete many names: the loop must not wait
// for those.
func (s *Server) takesLong(r *httpRequest, p *rejection, page string, path []byte) bool {
	switch {
	case p != nil:
		found, _, _ := s.findRoute(path)
		return p.status == fasthttp.StatusNotFound && found != nil
	case page == listPage:
		return r.Command.Op == gatehouse.OpDelete
	}
	return page != ""
}

// admitRequest rejects a request that is for another host, or from a sender that is not known, and reports
// whether it may go on. Nothing of its body is read before: large ones take room from others.
func (s *Server) admitRequest(ctx *fasthttp.RequestCtx, path []byte, from *sender) bool {
	return s.checkHost(ctx, path, from) &&
		(s.config.Users == nil || isHealthAlone(ctx) || s.identify(ctx, path, from))
}

// isHealthAlone reports whether a request came to a listener of ServeHealth.
func isHealthAlone(ctx *fasthttp.RequestCtx) bool {
	return connectionOf(ctx).origin.healthAlone
}

// readFormAndQuery fills in the command's parameters from the query and the body, and notes in from how the
// sender wants to be answered.
func (r *httpRequest) readFormAndQuery(ctx *fasthttp.RequestCtx, query []byte, from *sender) *rejection {
	body, p := readForm(ctx)
	if p == nil {
		p = r.readParams(query, body)
	}
	from.wantsJSON = from.wantsJSON || r.details || p != nil && wantsDetails(query, body)
	return p
}

// decideRequest puts the request to its controller. A client that has left gets no semaphore and no lock.
func (s *Server) decideRequest(ctx *fasthttp.RequestCtx, r *httpRequest, from *sender) {
	r.Command.Keep = s.config.Keep
	r.Command.Explain = explains(r, from)
	r.Command.Origin = s.noteOrigin(from)
	// This is asked before the store is, so that an acquire whose client has left changes nothing there. It
	// costs a system call, which only a hold is worth.
	if params.TakesForClient(r.Command.Op, r.Key.Kind, false) && clientGone(ctx) {
		s.abandonConn(ctx)
		return
	}
	if r.parents != nil {
		s.decideLevels(ctx, r, from)
		return
	}
	w := s.waiterPool.Get().(*waiter)
	w.prepare(ctx, r, from)
	if !w.enterUser(ctx, from) {
		w.recycle()
		return
	}
	s.config.Gate.Submit(w.alone[:]...)
	w.answerOrWait(ctx, from)
}

// abandonConn ends the connection of a client that has left, without an answer to its request or to those
// behind it. Answers to earlier requests are sent first.
func (s *Server) abandonConn(ctx *fasthttp.RequestCtx) {
	s.metrics.Hangups.Inc()
	// Answers to earlier requests of a pipeline are written before the connection is closed.
	connectionOf(ctx).abandoned = true
}

// countReply counts a response in the metrics, and writes it to the log at level debug.
func (s *Server) countReply(reply *responder, outcome telemetry.RequestOutcome, status int) {
	s.metrics.requests.Of(reply.key.Kind, reply.op).Count(outcome, 1, s.metrics.Now()-reply.began)
	// Apart from the kinds: this one counts answers that no controller gave, too.
	s.metrics.countResponse(status)
	// Asked first, because the arguments alone would allocate.
	if s.logsRequests {
		s.log.Debug("answered", "kind", reply.key.Kind.String(), "name", reply.key.Name,
			"op", reply.op.String(), "outcome", outcome.String(), "status", status,
			"request", reply.requestID)
	}
}

// closeIfStopping makes this answer the last on its connection if the server is stopping.
func (s *Server) closeIfStopping(ctx *fasthttp.RequestCtx) {
	if s.stopping.Load() {
		ctx.SetConnectionClose()
	}
}

// rejectRequest answers a request that is put to no controller.
func (s *Server) rejectRequest(ctx *fasthttp.RequestCtx, from *sender, p *rejection) {
	s.metrics.countResponse(p.status)
	// A page of an allowed origin is to read why it was refused.
	allowOrigin(&ctx.Response, s.allowedOrigin(from))
	for _, header := range [...][2]string{
		{fasthttp.HeaderAllow, p.allow}, {fasthttp.HeaderLocation, p.location},
		{fasthttp.HeaderAccept, p.accept}, {fasthttp.HeaderWWWAuthenticate, p.authenticate},
	} {
		if header[1] != "" {
			ctx.Response.Header.Set(header[0], header[1])
		}
	}
	s.allowHeaders(ctx, from)
	ctx.SetStatusCode(p.status)
	if p.detail != "" {
		p.writeTo(&ctx.Response, from.wantsJSON)
	}
	s.closeIfStopping(ctx)
}

// splitURI splits a request target, a path or a whole URL, into its path and its query. Neither is decoded.
func splitURI(uri []byte) (path, query []byte) {
	path, query, _ = bytes.Cut(uri, []byte{'?'})
	if len(path) == 0 || path[0] == '/' {
		return path, query
	}
	// A client that takes this server for a proxy sends the whole URL (RFC 9112, section 3.2.2).
	scheme := bytes.Index(path, []byte("://"))
	if scheme <= 0 {
		return path, query
	}
	path = path[scheme+len("://"):]
	// The host in the URL is not looked at here: only the path chooses the controller.
	slash := bytes.IndexByte(path, '/')
	if slash < 0 {
		return []byte{'/'}, query
	}
	return path[slash:], query
}

// answerMalformed answers bytes that are no request, or whose body could not be read. The connection ends
// with the answer.
func (s *Server) answerMalformed(ctx *fasthttp.RequestCtx, err error) {
	// What is not recognized below is a fault of the syntax.
	p := badRequest("request is malformed: want an HTTP/1.1 request line and headers")
	const tooLarge = fasthttp.StatusRequestHeaderFieldsTooLarge
	var tooLong *fasthttp.ErrSmallBuffer
	switch {
	case errors.As(err, &tooLong):
		p = reject(tooLarge, "request line and headers are longer than %d bytes", maxHeader)
	case hasTooManyFields(connectionOf(ctx)):
		p = reject(tooLarge, "request has more than %d header fields", maxFields)
	case errors.Is(err, fasthttp.ErrBodyTooLarge):
		p = reject(fasthttp.StatusRequestEntityTooLarge, "body is longer than %d bytes",
			bodyLimit(ctx.Request.Header.RequestURI()))
	case errors.Is(err, errBufferedTooMuch):
		p = reject(fasthttp.StatusServiceUnavailable, "%s", err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		p = reject(fasthttp.StatusRequestTimeout, "request did not arrive within %s", s.config.ReadTimeout)
	}
	forbidStoring(&ctx.Response)
	from := readSender(&ctx.Request.Header)
	path, _ := splitURI(ctx.Request.Header.RequestURI())
	_, several := readSeveral(path)
	from.wantsJSON = from.wantsJSON || several
	s.rejectRequest(ctx, &from, p)
}

// hasTooManyFields reports whether a connection was found malformed for the number of a request's fields.
func hasTooManyFields(c *httpConn) bool {
	return c.framing.at == atMalformed && c.framing.fields == maxFields
}

// A libraryLogger writes what the HTTP library reports about connections to the log, at level debug: a client
// that breaks off is no fault of the server.
type libraryLogger struct{ log *slog.Logger }

// Printf implements fasthttp.Logger.
func (l libraryLogger) Printf(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("http", "message", fmt.Sprintf(format, args...))
	}
}
