package gate

import (
	"cmp"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// MaxTogether is the most commands TryAll takes.
const MaxTogether = 16

// A turnBatch is the queue of the commands of one TryAll. Gates pool them.
type turnBatch [MaxTogether]control.Turn

// TryAll answers commands for one key as one change to the store. No command may wait: MaxWait is 0, each
// has passed Check, and none deletes. decisions must be as long as cmds. TryAll costs little more than one
// command, which helps pipelines with many commands for one key. On an error it is not known what took
// effect.
func (g *Gate) TryAll(
	key gatehouse.Key, cmds []gatehouse.Command, decisions []gatehouse.Decision,
) error {
	q := g.turnBatches.Get().(*turnBatch)
	defer g.turnBatches.Put(q)
	turns := q[:len(cmds)]
	for i := range cmds {
		turns[i].Command = &cmds[i]
	}
	g.applyBatch(key, turns)
	err := copyDecisions(turns, decisions)
	clear(turns)
	return err
}

// copyDecisions copies the decisions of turns, and returns the first error.
func copyDecisions(turns []control.Turn, decisions []gatehouse.Decision) (err error) {
	for i := range turns {
		decisions[i], err = turns[i].Decision, cmp.Or(err, turns[i].Err)
	}
	return err
}

// applyBatch applies commands that do not wait as one change, or through the line if there is one.
func (g *Gate) applyBatch(key gatehouse.Key, turns []control.Turn) {
	if g.lineOf(key) != nil {
		g.applyThroughLine(key, turns)
		return
	}
	setErrors(turns, g.store.Apply(g.ctx, key, turns))
	// A ticket may have joined while the commands were in the store, and wait for what they released.
	if l := g.lineOf(key); l != nil {
		l.serveLine()
	}
	g.addWaitingAll(key, turns)
}

// applyThroughLine joins the line with turns, and waits for the answers.
func (g *Gate) applyThroughLine(key gatehouse.Key, turns []control.Turn) {
	answered := make(chan struct{})
	g.joinLineTogether(key, turns, func() { close(answered) })
	<-answered
}

// setErrors gives every turn the error of the whole change, if there is one.
func setErrors(turns []control.Turn, err error) {
	for i := range turns {
		if err != nil {
			turns[i].Err = err
		}
	}
}

// joinLineTogether sends commands that do not wait through the line, each with a ticket of its own. It calls
// done when all of them are answered.
func (g *Gate) joinLineTogether(key gatehouse.Key, turns []control.Turn, done func()) {
	if len(turns) == 0 {
		done()
	}
	var left atomic.Int64
	left.Store(int64(len(turns)))
	for i := range turns {
		turn := &turns[i]
		g.joinLine(key, &ticket{cmd: *turn.Command, done: func(d gatehouse.Decision, err error) {
			// The tickets may be answered in several batches. The last one completes the call.
			turn.Decision, turn.Err = d, err
			if left.Add(-1) == 0 {
				g.addWaitingAll(key, turns)
				done()
			}
		}})
	}
}

// addWaitingAll adds the number of waiting commands to each statistics decision.
func (g *Gate) addWaitingAll(key gatehouse.Key, turns []control.Turn) {
	for i := range turns {
		if turn := &turns[i]; turn.Op == gatehouse.OpStats && turn.Err == nil {
			g.addWaiting(key, &turn.Decision)
		}
	}
}
