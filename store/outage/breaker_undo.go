package outage

import (
	"context"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// maxDebts is how many are remembered. More end when what they would take back expires.
const maxDebts = 10_000

// A debt is what is to be taken back at the store once that answers, because a command that was to do so, or
// has left something behind, did not get to it.
type debt struct {
	key gatehouse.Key
	cmd gatehouse.Command
}

// owe notes what a queue that does not get to the store leaves behind there: grants that were to be taken
// back, and those at a barrier who will not wait any more and still count. It reports false, and notes
// nothing, if the store has come back: then the queue is to go there.
func (b *Breaker) owe(key gatehouse.Key, queue []control.Turn) (away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.away.Load() == nil {
		return false
	}
	for i := range queue {
		cmd := *queue[i].Command
		arrived := key.Kind == gatehouse.Barrier && cmd.Ticket != 0
		switch {
		case len(b.owed) == maxDebts:
		case cmd.Op == gatehouse.OpUndo && cmd.Granted != nil:
			b.owed = append(b.owed, debt{key, cmd})
		case arrived && (cmd.Op == gatehouse.OpWait || cmd.Op == gatehouse.OpUndo):
			cmd.Op, cmd.Granted, cmd.MaxWait = gatehouse.OpUndo, nil, 0
			b.owed = append(b.owed, debt{key, cmd})
		}
	}
	return true
}

// pay puts to the store what is owed, until that is away again. What fails then is the store's to remember:
// it knows what took effect.
func (b *Breaker) pay() {
	for {
		b.mu.Lock()
		if len(b.owed) == 0 || b.closed || b.away.Load() != nil {
			b.mu.Unlock()
			return
		}
		one := b.owed[0]
		b.owed = b.owed[1:]
		b.mu.Unlock()
		_ = b.call(func() error {
			return b.ProbedStore.Apply(context.Background(), one.key, []control.Turn{{Command: &one.cmd}})
		})
	}
}
