package http

import (
	"context"

	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/valyala/fasthttp"
)

// charge takes an answer from the budget of the server, until it is written. When that is used up, the
// answer is 503 instead. What is sent from memory that all answers share must not be charged.
func (s *Server) charge(ctx *fasthttp.RequestCtx, from *sender) {
	s.chargeBy(ctx, from, s.config.Budget.Take)
}

// chargeBy is charge with what takes so many bytes from the budget.
func (s *Server) chargeBy(ctx *fasthttp.RequestCtx, from *sender, take func(bytes int) bool) {
	c := paced(ctx.Conn())
	size := len(ctx.Response.Body())
	if c == nil || size <= budget.Tiny {
		return
	}
	c.written() // an earlier answer of the same pipeline
	if !take(size) {
		s.overloaded(&ctx.Response, from.json)
		return
	}
	c.charged.Store(int64(size))
}

// overloaded answers 503 in place of an answer that there is no room for.
func (s *Server) overloaded(resp *fasthttp.Response, json bool) {
	resp.ResetBody()
	resp.Header.Del(fasthttp.HeaderContentEncoding)
	refuse(resp, fasthttp.StatusServiceUnavailable, errBufferedTooMuch.Error(), json)
}

// written gives back what the last large answer took from the budget.
func (c *pacedConn) written() {
	if size := c.charged.Swap(0); size > 0 {
		c.server.config.Budget.Release(int(size))
	}
}

// inTurn makes an answer while no other of its sort is made. It is not made for a client that has left
// meanwhile, and not if the turn does not come.
func (s *Server) inTurn(ctx *fasthttp.RequestCtx, turn budget.Turn, from *sender, answer func()) {
	patience, cancel := context.WithTimeout(context.Background(), s.config.WriteTimeout)
	defer cancel()
	if !turn.Begin(patience) {
		refuse(&ctx.Response, fasthttp.StatusServiceUnavailable,
			"server makes one such answer at a time, and others came first; try again soon", from.json)
		return
	}
	defer turn.End()
	if hungUp(ctx.Conn()) {
		s.abandon(ctx)
		return
	}
	answer()
}
