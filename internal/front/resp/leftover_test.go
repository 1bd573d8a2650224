package resp

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A brokenPipe takes no answers.
type brokenPipe struct{ pipe }

func (*brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

// A client that goes away in the middle of a pipeline leaves no answer behind for the next one of its
// event loop.
func TestBrokenPipelineLeavesNothing(t *testing.T) {
	next := &recorder{pipe: pipe{in: []byte("PING\r\n")}}
	s := newPiped(&next.pipe)
	s.conn = next
	broken := &brokenPipe{pipe{in: bytes.Repeat([]byte("CL.THROTTLE a 4 1 60\r\n"), 5000)}}
	gone := &session{server: s.server, conn: broken, loop: s.loop}
	if gone.serveConnection() {
		t.Error("a session that cannot write goes on")
	}
	s.serveConnection()
	if got, want := string(next.said), "+PONG\r\n"; got != want {
		t.Errorf("the next client of the loop was answered %q, want %q", got, want)
	}
}

// A slowGate takes as long to submit as it is made to while somebody waits, as one may that serves a long
// line first.
type slowGate struct {
	*gate.Gate
	hold chan struct{}
}

// Submit implements Gate.
func (g *slowGate) Submit(requests ...*gate.Request) {
	g.Gate.Submit(requests...)
	if g.Waiting() > 0 {
		<-g.hold
	}
}

// The same for one that goes away while what it waits for is decided at once.
func TestGoneClientLeavesNothing(t *testing.T) {
	g := &slowGate{gate.New(memory.New(memory.Config{}), gate.Config{}), make(chan struct{})}
	d := open(t, Config{Gate: g})
	keeper, gone := d.dial(t), d.dial(t)
	keeper.want("GH.ACQUIRE lock/a KEY keeper", "keeper")
	gone.send(wire("PING") + wire("GH.ACQUIRE", "lock/a", "KEY", "gone", "MAXWAIT", "20"))
	until(t, "it waits", func() bool { return g.Waiting() == 1 })
	_ = gone.Close()
	until(t, "it is refused", func() bool { return g.Waiting() == 0 })
	close(g.hold)
	for range 2 * len(d.eachLoop()) {
		d.dial(t).want("ECHO mine", "mine")
	}
}

// eachLoop returns the event loops that connections have come to.
func (s *Server) eachLoop() (all []*loop) {
	s.loops.Range(func(_, l any) bool {
		all = append(all, l.(*loop))
		return true
	})
	return all
}

// A lock is not given to a client that has left before its command is looked at: nobody would release it.
func TestCommandOfAClientThatLeft(t *testing.T) {
	g := &slowGate{gate.New(memory.New(memory.Config{}), gate.Config{}), make(chan struct{})}
	d := open(t, Config{Gate: g})
	loops := runtime.GOMAXPROCS(0)
	for range loops { // keep every one busy
		d.dial(t).send(wire("GH.WAIT", "event/never"))
	}
	until(t, "all loops are busy", func() bool { return g.Waiting() == loops })
	gone := d.dial(t)
	gone.send(wire("GH.ACQUIRE", "lock/a", "KEY", "gone", "EXPIRES", "0") + wire("GH.COUNT", "counter/c"))
	_ = gone.Close()
	close(g.hold)
	until(t, "it has come and gone", func() bool {
		return d.last.Load() == int64(loops)+1 && d.open.Load() == int64(loops)
	})
	c := d.dial(t)
	c.want("GH.ACQUIRE lock/a KEY next MAXWAIT 0", "next")
	c.want("GH.VALUE counter/c", "0")
	g.Close() // those who wait are sent away
}
