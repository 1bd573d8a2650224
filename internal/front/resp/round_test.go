package resp

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/panjf2000/gnet/v2"
)

// A costlyGate lets time pass at each decision that is not for a rate.
type costlyGate struct {
	*gate.Gate
	passed time.Duration
	cost   time.Duration
	count  int
}

func newCostlyGate(cost time.Duration) *costlyGate {
	return &costlyGate{Gate: gate.New(memory.New(memory.Config{}), gate.Config{}), cost: cost}
}

func (g *costlyGate) now() time.Duration { return time.Second + g.passed }

// Submit implements Gate.
func (g *costlyGate) Submit(requests ...*gate.Request) {
	for _, r := range requests {
		if r.Key.Kind != gatehouse.GCRA {
			g.passed += g.cost
			g.count++
		}
	}
	g.Gate.Submit(requests...)
}

// A sentConn has something to read, and notes what is answered. It is woken without a word.
type sentConn struct {
	gnet.Conn
	context any
	in, out []byte
}

func (c *sentConn) Context() any                  { return c.context }
func (c *sentConn) Peek(n int) ([]byte, error)    { return c.in[:n], nil }
func (c *sentConn) InboundBuffered() int          { return len(c.in) }
func (c *sentConn) OutboundBuffered() int         { return 0 }
func (c *sentConn) Wake(gnet.AsyncCallback) error { return nil }
func (c *sentConn) Write(b []byte) (int, error)   { c.out = append(c.out, b...); return len(b), nil }
func (c *sentConn) Discard(n int) (int, error)    { c.in = c.in[n:]; return n, nil }
func (c *sentConn) answers() int                  { return bytes.Count(c.out, []byte("\r\n")) }

// serve has the event loop look at a connection.
func (c *sentConn) serve(t *testing.T, h *gnetHandler) {
	t.Helper()
	if h.OnTraffic(c) != gnet.None {
		t.Fatal("the connection was closed")
	}
}

// newRound returns connections of one event loop that have all sent the same, at decisions of that cost.
func newRound(g *costlyGate, n int, line string) (*gnetHandler, []*sentConn) {
	first := newPiped(&pipe{})
	first.server.config.Gate, first.server.config.Now = g, g.now
	first.server.config.Budget, first.server.config.ReadTimeout = budget.New(1<<30), time.Minute
	all := make([]*sentConn, n)
	for i := range all {
		all[i] = &sentConn{in: []byte(line)}
		all[i].context = &session{server: first.server, conn: all[i], loop: first.loop}
	}
	return &gnetHandler{server: first.server}, all
}

const costly = "GH.ACQUIRE counter/x MAXWAIT 0\r\n"

// The time of a share runs from before its first command, and is looked at behind each costly one.
func TestShareEndsWithACostlyCommand(t *testing.T) {
	g := newCostlyGate(2 * shareTime)
	h, all := newRound(g, 1, strings.Repeat(costly, 100))
	all[0].serve(t, h)
	if g.count != 1 {
		t.Errorf("a share had %d commands of two shares each, want 1", g.count)
	}
}

// However many connections have sent costly commands at the same time, the loop looks for others soon. Cheap
// commands are answered all the same, and each connection has its turn.
func TestRoundIsBounded(t *testing.T) {
	g := newCostlyGate(2 * shareTime)
	const each = 3
	h, all := newRound(g, 600, strings.Repeat(costly, each))
	_, cheap := newRound(g, 2, "PING\r\nCL.THROTTLE x 15 30 60\r\n")
	line := &all[0].context.(*session).loop.wakeQueue
	for _, c := range all {
		c.serve(t, h)
	}
	if most := 3; g.count > most { // of 2 ms each
		t.Errorf("600 connections had %d costly commands in one round, want at most %d", g.count, most)
	}
	for _, c := range cheap {
		s := c.context.(*session)
		s.server, s.loop = h.server, all[0].context.(*session).loop
		c.serve(t, h)
		if want := "+PONG\r\n*5\r\n"; !strings.HasPrefix(string(c.out), want) || len(c.in) > 0 {
			t.Errorf("behind them %q was answered, want %q and so on", c.out, want)
		}
	}
	for turns := 0; line.next != nil; turns++ {
		if turns > (each+1)*len(all) { // with one that finds nothing left
			t.Fatalf("%d turns have not been enough", turns)
		}
		line.next.came.Store(true)
		line.next.session.conn.(*sentConn).serve(t, h)
	}
	for i, c := range all {
		if c.answers() != each {
			t.Fatalf("connection %d has %d answers, want %d", i, c.answers(), each)
		}
	}
}

// A connection whose commands wait for its turn is not cut for sending too slowly.
func TestWaitingForATurnIsNotSlow(t *testing.T) {
	h, all := newRound(newCostlyGate(2*roundTime), 2, costly)
	for _, c := range all {
		c.serve(t, h)
	}
	late := all[1].context.(*session)
	late.due.Store(late.round) // the time for a command to arrive is over
	all[1].serve(t, h)
}
