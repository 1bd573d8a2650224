//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// storeTime is how long a server waits for its store unless it is told otherwise.
const storeTime = 500 * time.Millisecond

// inTime is how long an answer may take.
func (c *config) inTime(q *call) time.Duration { return q.maxWait + storeTime + c.slack }

// A client calls, one call after the other, and writes down what it is told. When a server fails it goes to
// another one.
type client struct {
	run    *run
	number int
	random *rand.Rand
	ctx    context.Context // that of work, or of the last look
	at     int             // the server it talks to
	wires  []*wire         // one for each server
	serial int
	calls  []*call

	kept, dropped []call // acquires of holds that stay, and of those that were given back
}

func newClient(r *run, number int) *client {
	return &client{
		run: r, number: number, random: rand.New(rand.NewPCG(r.config.seed, uint64(number)+1)),
		at: number % len(r.stage.servers), wires: make([]*wire, len(r.stage.servers)),
	}
}

// work calls until ctx ends.
func (c *client) work(ctx context.Context) {
	c.ctx = ctx
	for ctx.Err() == nil {
		c.step()
		if c.chance(20) {
			c.at = c.random.IntN(len(c.wires))
		}
		sleep(ctx, c.upTo(2*c.run.config.pause))
	}
}

func (c *client) close() {
	for i := range c.wires {
		c.hangUp(i)
	}
}

// chance is true once in n times.
func (c *client) chance(n int) bool { return c.random.IntN(n) == 0 }

// upTo is a time below the longest.
func (c *client) upTo(longest time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(longest) + 1))
}

// name is one that nobody else uses.
func (c *client) name() string {
	c.serial++
	return strconv.Itoa(c.number) + "-" + strconv.Itoa(c.serial)
}

// haste is of how many acquires one is given up early by its client, which then asks again: the server may do
// it all the same, now or when it goes on after it was frozen.
const haste = 8

// patient is how much longer than it may take a client waits for an answer.
const patient = 500 * time.Millisecond

// ask puts a call to the server of the moment.
func (c *client) ask(q call) *call {
	s := c.run.stage.servers[c.at]
	q.client, q.server = c.number, s.label
	c.calls = append(c.calls, &q)
	q.start = c.run.now()
	w, err := c.wire()
	if err != nil {
		q.outcome, q.text, q.end = unsent, err.Error(), c.run.now()
		c.goElsewhere()
		return &q
	}
	q.linked, q.start = w.linked, c.run.now()
	wait := c.run.config.inTime(&q) + patient
	if q.op == "acquire" && !q.final && c.chance(haste) {
		q.hasty = c.upTo(q.maxWait + 200*time.Millisecond)
		if c.chance(2) {
			q.hasty = c.upTo(5 * time.Millisecond) // about when it is granted
		}
		q.hasty++
		wait = q.hasty
	}
	_ = w.conn.SetDeadline(time.Now().Add(wait)) // open connections take it
	err = w.ask(w, &q)
	q.end = c.run.now()
	if q.outcome == "" {
		q.outcome, q.text = cut, fmt.Sprint(err)
	}
	if err != nil {
		c.hangUp(c.at)
	}
	if q.maybe() {
		c.goElsewhere()
	}
	return &q
}

// wire is the connection to the server of the moment. Clients with even numbers speak HTTP, the others RESP.
func (c *client) wire() (*wire, error) {
	if w := c.wires[c.at]; w != nil {
		return w, nil
	}
	s := c.run.stage.servers[c.at]
	linked := c.run.now()
	address, ask := s.http, askHTTP
	if c.number%2 == 1 {
		address, ask = s.resp, askRESP
	}
	w, err := dial(address, ask)
	if err != nil {
		return nil, err
	}
	w.linked = linked
	c.wires[c.at] = w
	return w, nil
}

func (c *client) hangUp(server int) {
	if w := c.wires[server]; w != nil {
		_ = w.conn.Close()
		c.wires[server] = nil
	}
}

// goElsewhere turns to the next server, after a moment.
func (c *client) goElsewhere() {
	c.at = (c.at + 1) % len(c.wires)
	sleep(c.ctx, 5*time.Millisecond+c.upTo(20*time.Millisecond))
}

// insist asks until there is a decision, some times.
func (c *client) insist(q call, times int) *call {
	for {
		answer := c.ask(q)
		times--
		if answer.decided() || answer.outcome == faulty || times == 0 || c.ctx.Err() != nil {
			return answer
		}
	}
}
