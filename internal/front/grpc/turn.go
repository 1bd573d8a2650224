package grpc

import (
	"context"
	"runtime"

	"github.com/gatehousehq/gatehouse"
)

// A message of many resources takes ten times its size in memory once it is read. Thousands of them may be
// there at once, within the budget, and wait for the one lock under which all are decided. So only a few are
// read at a time. The others stay the bytes that they came as, which the budget counts.

// largeMessage is how many bytes a message may have that is read without a turn: up to 70 resources, which
// take about as much as the rest of a call.
const largeMessage = 1 << 10

// turns are how many large messages may be read and decided at a time.
type turns chan struct{}

// newTurns returns a turn for each processor. More would only wait for each other.
func newTurns() turns { return make(turns, runtime.GOMAXPROCS(0)) }

// A turn is what a large message needs to be read. It is for one call.
type turn struct {
	of    turns
	taken bool
}

// begin waits for the turn of a message of that size. It returns an error if the call ends first, which was
// given up by its client, or has had its time.
func (t *turn) begin(ctx context.Context, size int) error {
	select {
	case t.of <- struct{}{}:
		t.taken = true
		return nil
	case <-ctx.Done():
		return gatehouse.Errorf(gatehouse.CodeTimeout,
			"message of %d bytes was not read before its call ended: %w", size, ctx.Err())
	}
}

// end lets the next message have the turn.
func (t *turn) end() {
	if t.taken {
		<-t.of
		t.taken = false
	}
}
