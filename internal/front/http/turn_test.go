package http

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/budget"
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
