package swap

import (
	"context"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

const (
	// maxAmends is how many grants may await being taken back. More end when they expire.
	maxAmends = 10_000
	// amendAfter is the time between two tries to reach the store for it.
	amendAfter = time.Second
)

// amends are the holds that may have been granted to calls that failed. They are taken back, by their
// fencing tokens, once the store answers again: if they were granted, and to nobody else.
type amends struct {
	store  *Store
	mu     sync.Mutex
	owed   []owed
	timer  *time.Timer
	closed bool
	work   sync.WaitGroup
}

// An owed is one undo.
type owed struct {
	key gatehouse.Key
	cmd gatehouse.Command
}

// add notes what a failed flight may have been granted, and what those who wait no more because of it may
// have left behind.
func (a *amends) add(key gatehouse.Key, f *flight) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, try := range f.open {
		for i := range try.decisions {
			d := &try.decisions[i]
			if d.Outcome == gatehouse.Granted && d.Fence != 0 && !try.held[d.Fence] {
				a.owe(key, f.turns[i].Command, d)
			}
		}
	}
	if key.Kind == gatehouse.Barrier {
		for i := range f.turns {
			a.owe(key, f.turns[i].Command, nil)
		}
	}
	a.arm()
}

// owe notes one command that is to be undone.
func (a *amends) owe(key gatehouse.Key, cmd *gatehouse.Command, granted *gatehouse.Decision) {
	if !cmd.Op.Waits() || len(a.owed) >= maxAmends || a.closed {
		return
	}
	undo := *cmd
	undo.Op, undo.Granted, undo.MaxWait = gatehouse.OpUndo, granted, 0
	a.owed = append(a.owed, owed{key, undo})
}

func (a *amends) arm() {
	if len(a.owed) > 0 && a.timer == nil && !a.closed {
		a.work.Add(1)
		a.timer = time.AfterFunc(jittered(amendAfter), func() {
			defer a.work.Done()
			a.pay()
		})
	}
}

// pay takes back what can be, and tries the rest later.
func (a *amends) pay() {
	a.mu.Lock()
	owed := a.owed
	a.owed = nil
	a.mu.Unlock()
	paid := 0
	for i := range owed {
		turn := []control.Turn{{Command: &owed[i].cmd}}
		if err := a.store.Apply(context.Background(), owed[i].key, turn); err != nil {
			break
		}
		paid++
	}
	a.store.figures.amended.Add(uint64(paid)) // #nosec G115 -- from 0
	a.mu.Lock()
	defer a.mu.Unlock()
	a.owed = append(owed[paid:], a.owed...)
	a.timer = nil
	a.arm()
}

// close gives up what is still owed.
func (a *amends) close() {
	a.mu.Lock()
	a.closed = true
	if a.timer != nil && a.timer.Stop() {
		a.work.Done()
	}
	a.mu.Unlock()
	a.work.Wait()
}
