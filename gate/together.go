package gate

import (
	"cmp"
	"sync"

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
) (err error) {
	if g.line(key) != nil {
		return g.throughAll(key, cmds, decisions)
	}
	q := g.queues.Get().(*queue)
	defer g.queues.Put(q)
	for i := range cmds {
		q[i] = control.Turn{Command: &cmds[i]}
	}
	err = g.store.Apply(g.ctx, key, q[:len(cmds)])
	for i := range cmds {
		if err == nil {
			err = q[i].Err
		}
		decisions[i], q[i] = q[i].Decision, control.Turn{}
	}
	if l := g.line(key); l != nil { // somebody has begun to wait meanwhile
		l.serve()
	}
	return err
}

// throughAll takes commands that do not wait through the line of those who do, all of them at once.
func (g *Gate) throughAll(
	key gatehouse.Key, cmds []gatehouse.Command, decisions []gatehouse.Decision,
) error {
	var all sync.WaitGroup
	errs := make([]error, len(cmds))
	all.Add(len(cmds))
	for i := range cmds {
		g.join(key, &ticket{cmd: cmds[i], done: func(d gatehouse.Decision, err error) {
			decisions[i], errs[i] = d, err
			all.Done()
		}})
	}
	all.Wait()
	return cmp.Or(errs...)
}
