package resp

import (
	"net"
	"slices"
	"testing"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// A hold whose answer cannot be written is taken back, and so are those before it in a pipeline.
func TestHoldWhoseAnswerIsNotWritten(t *testing.T) {
	acquire := func(lock string) string {
		return wire("GH.ACQUIRE", "lock/"+lock, "KEY", "gone", "EXPIRES", "0")
	}
	for name, commands := range map[string]string{
		"alone":       acquire("left"),
		"in a row":    acquire("other") + acquire("left") + acquire("third"),
		"half behind": acquire("other") + acquire("left") + "*1\r\n$4\r\nPI",
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.NewLeftStore()
			d := openStore(t, Config{}, s)
			gone, left := d.dial(t), make(chan struct{})
			s.Leave <- func() {
				defer close(left)
				d.awaitReset(t, gone.Conn.(*net.TCPConn))
			}
			gone.send(commands)
			<-left
			for _, lock := range []string{"left", "other", "third"} {
				d.dial(t).want("GH.ACQUIRE lock/"+lock+" KEY next MAXWAIT 20000", "next")
			}
		})
	}
}

// awaitReset resets a connection of a client, and waits until the server sees that.
func (s *Server) awaitReset(t *testing.T, conn *net.TCPConn) {
	t.Helper()
	_ = conn.SetLinger(0)
	_ = conn.Close()
	until(t, "a client is seen to be gone", func() bool {
		return slices.ContainsFunc(s.allSessions(), (*session).hungUp)
	})
}

// A slowerGate returns from Submit once it has decided on far, and the client has left.
type slowerGate struct {
	*gate.Gate
	leave chan func() // with room for one
}

// Submit implements Gate.
func (g *slowerGate) Submit(requests ...*gate.Request) {
	if requests[0].Key.Name != "far" {
		g.Gate.Submit(requests...)
		return
	}
	tell, decided := requests[0].Decided, make(chan struct{})
	requests[0].Decided = func(r *gate.Request) {
		tell(r)
		close(decided)
	}
	g.Gate.Submit(requests...)
	<-decided
	select {
	case leave := <-g.leave:
		leave()
	default: // it has left
	}
}

// The same with TLS, where the end cannot be told to a client that is gone.
func TestHoldWhoseAnswerIsNotWrittenWithTLS(t *testing.T) {
	s := newFar()
	g := &slowerGate{gate.New(s, gate.Config{}), make(chan func(), 1)}
	d := openTLSStore(t, Config{Gate: g}, s)
	gone := d.dialTLS(t, 0)
	g.leave <- func() { d.awaitReset(t, gone.tcp()) }
	gone.send(wire("GH.ACQUIRE", "lock/near", "KEY", "gone", "EXPIRES", "0") +
		wire("GH.ACQUIRE", "lock/far", "KEY", "gone", "EXPIRES", "0", "MAXWAIT", "0"))
	until(t, "it has come and gone", func() bool { return d.last.Load() == 1 && d.open.Load() == 0 })
	d.dialTLS(t, 0).want("GH.ACQUIRE lock/near KEY next MAXWAIT 20000", "next")
	d.dialTLS(t, 0).want("GH.ACQUIRE lock/far KEY next MAXWAIT 20000", "next")
}

// A client that was answered, and then resets its connection, keeps what it has.
func TestHoldWhoseAnswerIsWritten(t *testing.T) {
	d := open(t, Config{})
	c := d.dial(t)
	c.want("GH.ACQUIRE lock/l KEY me EXPIRES 0", "me")
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	until(t, "the connection has ended", func() bool { return d.open.Load() == 0 })
	d.dial(t).want("GH.ACQUIRE lock/l KEY next MAXWAIT 0", "null")
}
