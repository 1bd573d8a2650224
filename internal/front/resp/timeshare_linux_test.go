package resp

import (
	"io"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"golang.org/x/sys/unix"
)

// A countingGate counts the decisions about a name, and what there were when others were asked for. The first
// is held until the test says so.
type countingGate struct {
	*gate.Gate
	busy        atomic.Int64
	began, hold chan struct{}
	seen        chan int64
}

func newCountingGate(probes int) *countingGate {
	return &countingGate{
		Gate:  gate.New(memory.New(memory.Config{}), gate.Config{}),
		began: make(chan struct{}), hold: make(chan struct{}), seen: make(chan int64, probes),
	}
}

// Submit implements Gate.
func (g *countingGate) Submit(requests ...*gate.Request) {
	switch {
	case requests[0].Key.Name == "probe":
		g.seen <- g.busy.Load()
	case g.busy.Add(1) == 1:
		close(g.began)
		<-g.hold
	}
	g.Gate.Submit(requests...)
}

// What one connection has sent is worked off in shares: the others of its event loop are looked at between
// them. All that they asked for is there before the first share is over, so they are answered behind it.
func TestShares(t *testing.T) {
	var passed atomic.Int64
	// A quarter of a share passes at each reading.
	clock := func() time.Duration { return time.Duration(passed.Add(int64(shareTime) / 4)) }
	peek := wire("GH.PEEK", "gcra/busy")
	for _, c := range []struct {
		fact, pipeline string
		now            func() time.Duration
		most           int64 // decisions before all others are answered
	}{
		{"decisions of 125 µs each", strings.Repeat(peek, 600), clock, 100},
		{"commands that ask for no decision",
			strings.Repeat(peek+strings.Repeat("PING\r\n", 62), 40), nil, 5},
	} {
		probes := 4 * runtime.GOMAXPROCS(0)
		g := newCountingGate(probes)
		d := open(t, Config{Gate: g, Now: c.now})
		busy := d.dial(t)
		busy.want("PING", "PONG")
		others := make([]*client, probes)
		for i := range others {
			others[i] = d.dial(t)
			others[i].want("PING", "PONG")
		}
		go func() { _, _ = io.Copy(io.Discard, busy) }()
		busy.send(c.pipeline)
		<-g.began
		for _, other := range others {
			other.send(wire("GH.PEEK", "gcra/probe"))
		}
		until(t, "the system has what they sent", func() bool { return d.arrived()+len(g.seen) == probes })
		close(g.hold)
		for range others {
			if seen := <-g.seen; seen > c.most {
				t.Errorf("%s: one connection had %d of them before another was looked at, want at most %d",
					c.fact, seen, c.most)
			}
		}
		d.shut(t)
	}
}

// arrived is how many connections but the first have something to read.
func (d *door) arrived() (n int) {
	for _, s := range d.allSessions() {
		waits, err := unix.IoctlGetInt(s.conn.Fd(), unix.TIOCINQ)
		if err == nil && waits > 0 && s.number > 1 {
			n++
		}
	}
	return n
}
