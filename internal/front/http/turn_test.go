package http

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/valyala/fasthttp"
)

// A page and a scrape are made one at a time; who does not get the turn in time is told to come again.
func TestPagesHaveTurns(t *testing.T) {
	b := budget.New(0)
	r := newRig(t, Config{Budget: b, Routes: guests(), WriteTimeout: 50 * time.Millisecond})
	c := r.dial(t)
	for _, turn := range []struct {
		of   budget.Mutex
		path string
	}{{b.Page, "/guest"}, {b.Scrape, "/metrics"}} {
		if !turn.of.Begin(t.Context()) {
			t.Fatal("the turn was not to be had")
		}
		c.send(turn.path)
		header := c.want(503, "server makes one such answer at a time, and others came first; try again soon")
		if got := header.Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After = %q, want 1", got)
		}
		turn.of.End()
	}
	c.send("/guest")
	c.want(200, "all guests")
}

// A page that panics is answered for, as a route is.
func TestPageThatPanics(t *testing.T) {
	r := newRig(t, Config{Store: func() string { panic("no store") }})
	c := r.dial(t)
	c.send("/healthz", "/v1/counter/c/count")
	c.want(500, "the server failed at this")
	c.want(200, "1")
}

// A scrape at the address for health alone waits for its turn, and keeps no event loop from its other
// connections meanwhile.
func TestTurnOfAScrapeAlone(t *testing.T) {
	b := budget.New(0)
	r := newRig(t, Config{Budget: b, WriteTimeout: time.Hour})
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = r.ServeHealth(listener) }() // ends with Shutdown
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	handle := r.handle
	r.handle = func(ctx *fasthttp.RequestCtx, mayBlock bool) bool {
		begin()
		return handle(ctx, mayBlock)
	}
	r.conns.forEach(func(*httpConn) {}) // its lock passes the handler on to the loops
	if !b.Scrape.Begin(t.Context()) {
		t.Fatal("the turn was not to be had")
	}
	defer b.Scrape.End()
	health := &rig{Server: r.Server, address: listener.Addr().String()}
	health.dial(t).send("/metrics")
	<-begun
	done := make(chan struct{})
	r.conns.forEach(func(c *httpConn) { c.addTask(func() { close(done) }) })
	select {
	case <-done:
	case <-time.After(await.Patience):
		t.Error("the loop waits for the turn of a scrape")
	}
}
