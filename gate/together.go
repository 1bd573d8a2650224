package gate

import (
	"cmp"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// MaxTogether is the most commands TryAll takes.
const MaxTogether = 16

// A queue is what commands that come together are passed to the store in, kept for the next ones.
type queue [MaxTogether]control.Turn

// TryAll answers commands for one key as one change to the store, none of which may wait: their MaxWait
// is 0, they have passed Check, and none deletes. decisions has room for as many. It costs little more
// than one command, where many come together for one key, as in a pipeline. On an error nothing is known
// of what took effect.
func (g *Gate) TryAll(
	key gatehouse.Key, cmds []gatehouse.Command, decisions []gatehouse.Decision,
) error {
	q := g.queues.Get().(*queue)
	defer g.queues.Put(q)
	turns := q[:len(cmds)]
	for i := range cmds {
		turns[i].Command = &cmds[i]
	}
	g.applyAll(key, turns)
	err := hand(turns, decisions)
	clear(turns)
	return err
}

// hand hands decisions out, and returns the first error.
func hand(turns []control.Turn, decisions []gatehouse.Decision) (err error) {
	for i := range turns {
		decisions[i], err = turns[i].Decision, cmp.Or(err, turns[i].Err)
	}
	return err
}

// applyAll puts commands that do not wait to the store, as one change, or through the line when there is one.
func (g *Gate) applyAll(key gatehouse.Key, turns []control.Turn) {
	if g.line(key) != nil {
		g.through(key, turns)
		return
	}
	fail(turns, g.store.Apply(g.ctx, key, turns))
	if l := g.line(key); l != nil { // somebody has begun to wait meanwhile
		l.serve()
	}
	g.addWaitingAll(key, turns)
}

// through is joinAll, and waits for the answers.
func (g *Gate) through(key gatehouse.Key, turns []control.Turn) {
	answered := make(chan struct{})
	g.joinAll(key, turns, func() { close(answered) })
	<-answered
}

// fail notes an error that all have in common, if there is one.
func fail(turns []control.Turn, err error) {
	for i := range turns {
		if err != nil {
			turns[i].Err = err
		}
	}
}

// joinAll takes commands that do not wait through the line of those who do, all of them at once, and calls
// done when they are answered.
func (g *Gate) joinAll(key gatehouse.Key, turns []control.Turn, done func()) {
	if len(turns) == 0 {
		done()
	}
	var left atomic.Int64
	left.Store(int64(len(turns)))
	for i := range turns {
		turn := &turns[i]
		g.join(key, &ticket{cmd: *turn.Command, done: func(d gatehouse.Decision, err error) {
			turn.Decision, turn.Err = d, err
			if left.Add(-1) == 0 {
				g.addWaitingAll(key, turns)
				done()
			}
		}})
	}
}

// addWaitingAll adds to statistics how many wait.
func (g *Gate) addWaitingAll(key gatehouse.Key, turns []control.Turn) {
	for i := range turns {
		if turn := &turns[i]; turn.Command.Op == gatehouse.OpStats && turn.Err == nil {
			g.addWaiting(key, &turn.Decision)
		}
	}
}
