//go:build linux || darwin

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"
)

// storeTimeout is how long a server waits for its store by default.
const storeTimeout = 500 * time.Millisecond

// answerLimit is how long an answer may take.
func (c *chaosConfig) answerLimit(q *recordedCall) time.Duration {
	return q.maxWait + storeTimeout + c.slack
}

// A loadClient makes one call after the other, and records the answers. When a server fails it goes
// to another one.
type loadClient struct {
	run           *chaosRun
	number        int
	random        *rand.Rand
	ctx           context.Context // that of work, or of the last look
	currentServer int             // the server it talks to
	conns         []*clientConn   // one for each server
	serial        int
	calls         []*recordedCall

	kept, dropped []recordedCall // acquires of holds that stay, and of those that were given back
}

func newClient(r *chaosRun, number int) *loadClient {
	// Stream 0 of the seed draws the faults, so clients begin at 1. They begin at different servers.
	return &loadClient{
		run: r, number: number, random: rand.New(rand.NewPCG(r.config.seed, uint64(number)+1)),
		currentServer: number % len(r.cluster.servers), conns: make([]*clientConn, len(r.cluster.servers)),
	}
}

// callUntil calls until ctx ends.
func (c *loadClient) callUntil(ctx context.Context) {
	c.ctx = ctx
	for ctx.Err() == nil {
		c.makeCall()
		// Also without a failure: one server must know what another one granted.
		if c.oneIn(20) {
			c.currentServer = c.random.IntN(len(c.conns))
		}
		// Evenly up to twice the pause, which is the pause on average.
		sleepFor(ctx, c.randomTime(2*c.run.config.pause))
	}
}

func (c *loadClient) closeConns() {
	for i := range c.conns {
		c.hangUp(i)
	}
}

// oneIn is true once in n times.
func (c *loadClient) oneIn(n int) bool { return c.random.IntN(n) == 0 }

// randomTime is a time below the longest.
func (c *loadClient) randomTime(longest time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(longest) + 1))
}

// uniqueName returns a name that no other client uses.
func (c *loadClient) uniqueName() string {
	c.serial++
	return strconv.Itoa(c.number) + "-" + strconv.Itoa(c.serial)
}

// hangUpOneIn is of how many acquires one is given up early by its client, which then asks again: the server
// may do it all the same, now or when it goes on after it was frozen.
const hangUpOneIn = 8

// extraPatience is how much longer than it may take a client waits for an answer.
const extraPatience = 500 * time.Millisecond

// sendCall puts a call to the server of the moment.
func (c *loadClient) sendCall(q recordedCall) *recordedCall {
	s := c.run.cluster.servers[c.currentServer]
	q.client, q.server = c.number, s.label
	// Recorded before it is sent: a call without an answer is judged too.
	c.calls = append(c.calls, &q)
	q.start = c.run.sinceBegin()
	w, err := c.currentConn()
	if err != nil {
		q.outcome, q.text, q.end = unsent, err.Error(), c.run.sinceBegin()
		c.goElsewhere()
		return &q
	}
	// The start is set again: the time that a server has for its answer does not include dialing.
	q.connOpened, q.start = w.opened, c.run.sinceBegin()
	wait := c.run.config.answerLimit(&q) + extraPatience
	// Some clients hang up early. The server may have granted the acquire all the same, or do so when it goes
	// on after a freeze.
	if q.op == "acquire" && !q.final && c.oneIn(hangUpOneIn) {
		q.hangsUpAfter = c.randomTime(q.maxWait + 200*time.Millisecond)
		if c.oneIn(2) {
			q.hangsUpAfter = c.randomTime(5 * time.Millisecond) // about when it is granted
		}
		q.hangsUpAfter++
		wait = q.hangsUpAfter
	}
	_ = w.conn.SetDeadline(time.Now().Add(wait)) // open connections take it
	err = w.send(w, &q)
	q.end = c.run.sinceBegin()
	// There is no outcome unless an answer was read to its end.
	if q.outcome == "" {
		q.outcome, q.text = cut, fmt.Sprint(err)
	}
	// Also after a whole answer, when it was the last one on its connection.
	if err != nil {
		c.hangUp(c.currentServer)
	}
	// The next call goes to another server, which must know what this one granted.
	if q.isUncertain() {
		c.goElsewhere()
	}
	return &q
}

// currentConn is the connection to the server of the moment. Clients with even numbers speak HTTP, the others
// RESP.
func (c *loadClient) currentConn() (*clientConn, error) {
	if w := c.conns[c.currentServer]; w != nil {
		return w, nil
	}
	s := c.run.cluster.servers[c.currentServer]
	// The time before dialing: a fault while it dials may be the one that cuts the connection later.
	linked := c.run.sinceBegin()
	address, ask := s.http, sendHTTP
	if c.number%2 == 1 {
		address, ask = s.resp, sendRESP
	}
	w, err := dialServer(address, ask)
	if err != nil {
		return nil, err
	}
	w.opened = linked
	c.conns[c.currentServer] = w
	return w, nil
}

func (c *loadClient) hangUp(server int) {
	if w := c.conns[server]; w != nil {
		_ = w.conn.Close()
		c.conns[server] = nil
	}
}

// goElsewhere turns to the next server, after a moment.
func (c *loadClient) goElsewhere() {
	c.currentServer = (c.currentServer + 1) % len(c.conns)
	// Without a pause, clients of a killed server would dial all the time.
	sleepFor(c.ctx, 5*time.Millisecond+c.randomTime(20*time.Millisecond))
}

// retryCall asks until there is a decision, some times.
func (c *loadClient) retryCall(q recordedCall, times int) *recordedCall {
	for {
		answer := c.sendCall(q)
		times--
		// A faulty answer is a breach already. Another try would only repeat it.
		if answer.isDecided() || answer.outcome == faulty || times == 0 || c.ctx.Err() != nil {
			return answer
		}
	}
}
