package http

import (
	"context"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/valyala/fasthttp"
)

// chargeAnswer takes an answer from the budget of the server until it is written. If the budget is used up,
// the answer becomes 503. An answer whose bytes are shared by all requests must not be charged.
func (s *Server) chargeAnswer(ctx *fasthttp.RequestCtx, from *sender) {
	s.chargeAnswerBy(ctx, from, s.config.Budget.Take)
}

// chargeAnswerBy is chargeAnswer with a take that says which part of the budget may be used. It reports false
// if there is no room for that many bytes.
func (s *Server) chargeAnswerBy(ctx *fasthttp.RequestCtx, from *sender, take func(bytes int) bool) {
	c := pacedConnOf(ctx.Conn())
	size := len(ctx.Response.Body())
	if c == nil || size <= budget.Tiny {
		return
	}
	// The connection has one counter. An earlier answer of the same pipeline gives its bytes back first.
	c.releaseCharged()
	if !take(size) {
		s.writeOverloaded(&ctx.Response, from.wantsJSON)
		return
	}
	c.charged.Store(int64(size))
}

// writeOverloaded replaces an answer for which the budget has no room by 503.
func (s *Server) writeOverloaded(resp *fasthttp.Response, json bool) {
	resp.ResetBody()
	resp.Header.Del(fasthttp.HeaderContentEncoding)
	writeProblem(resp, fasthttp.StatusServiceUnavailable, errBufferedTooMuch.Error(), json)
}

// releaseCharged gives the bytes of the last large answer back to the budget.
func (c *pacedConn) releaseCharged() {
	if size := c.charged.Swap(0); size > 0 {
		c.server.config.Budget.Release(int(size))
	}
}

// answerInTurn calls answer while no other answer of its sort is made. It answers 503 if the turn does not
// come within WriteTimeout, and does nothing for a client that has left in the meantime.
func (s *Server) answerInTurn(ctx *fasthttp.RequestCtx, turn budget.Mutex, from *sender, answer func()) {
	patience, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
	defer cancel()
	if !turn.Begin(patience) {
		writeProblem(&ctx.Response, fasthttp.StatusServiceUnavailable,
			"server makes one such answer at a time, and others came first; try again soon", from.wantsJSON)
		return
	}
	defer turn.End()
	// A client that gave up waiting must not cost the others an answer that it will not read.
	if clientGone(ctx.Conn()) {
		s.abandonConn(ctx)
		return
	}
	answer()
}
