package resp

import (
	"context"
	"runtime"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A longGate has so many names that a list takes as long as it is made to.
type longGate struct {
	*gate.Gate
	began, hold chan struct{}
}

// Names implements Gate.
func (g *longGate) Names(
	ctx context.Context, kind gatehouse.Kind, after string, most int,
) ([]string, error) {
	g.began <- struct{}{}
	<-g.hold
	return g.Gate.Names(ctx, kind, after, most)
}

// A list blocks its own connection and no other, and a client that goes away does not hold up the rest.
func TestListBlocksItsConnectionAlone(t *testing.T) {
	g := &longGate{
		gate.New(memory.New(memory.Config{}), gate.Config{}), make(chan struct{}, 3), make(chan struct{}),
	}
	d := open(t, Config{Gate: g})
	c, gone := d.dial(t), d.dial(t)
	c.want("GH.COUNT counter/a", "1")
	c.send(wire("GH.LIST", "counter") + wire("PING"))
	<-g.began
	gone.send(wire("GH.LIST", "counter"))
	for range 2 * runtime.GOMAXPROCS(0) { // some at each event loop
		d.dial(t).want("PING", "PONG")
	}
	_ = gone.Close()
	close(g.hold)
	for _, want := range []string{"[a]", "PONG"} {
		if got := c.answer(); got != want {
			t.Errorf("answer = %s, want %s", got, want)
		}
	}
	c.want("GH.LIST counter AFTER a", "[]")
}
