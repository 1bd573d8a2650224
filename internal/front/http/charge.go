package http

import (
	"context"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/valyala/fasthttp"
)

// chargeAnswer takes an answer from the budget of the server, until it is written. When that is used up, the
// answer is 503 instead. What is sent from memory that all answers share must not be charged.
func (s *Server) chargeAnswer(ctx *fasthttp.RequestCtx, from *sender) {
	s.chargeAnswerBy(ctx, from, s.config.Budget.Take)
}

// chargeAnswerBy is charge with what takes so many bytes from the budget.
func (s *Server) chargeAnswerBy(ctx *fasthttp.RequestCtx, from *sender, take func(bytes int) bool) {
	c := pacedConnOf(ctx.Conn())
	size := len(ctx.Response.Body())
	if c == nil || size <= budget.Tiny {
		return
	}
	c.releaseCharged() // an earlier answer of the same pipeline
	if !take(size) {
		s.writeOverloaded(&ctx.Response, from.wantsJSON)
		return
	}
	c.charged.Store(int64(size))
}

// writeOverloaded answers 503 in place of an answer that there is no room for.
func (s *Server) writeOverloaded(resp *fasthttp.Response, json bool) {
	resp.ResetBody()
	resp.Header.Del(fasthttp.HeaderContentEncoding)
	writeProblem(resp, fasthttp.StatusServiceUnavailable, errBufferedTooMuch.Error(), json)
}

// releaseCharged gives back what the last large answer took from the budget.
func (c *pacedConn) releaseCharged() {
	if size := c.charged.Swap(0); size > 0 {
		c.server.config.Budget.Release(int(size))
	}
}

// answerInTurn makes an answer while no other of its sort is made. It is not made for a client that has left
// meanwhile, and not if the turn does not come.
func (s *Server) answerInTurn(ctx *fasthttp.RequestCtx, turn budget.Turn, from *sender, answer func()) {
	patience, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
	defer cancel()
	if !turn.Begin(patience) {
		writeProblem(&ctx.Response, fasthttp.StatusServiceUnavailable,
			"server makes one such answer at a time, and others came first; try again soon", from.wantsJSON)
		return
	}
	defer turn.End()
	if clientGone(ctx.Conn()) {
		s.abandonConn(ctx)
		return
	}
	answer()
}
