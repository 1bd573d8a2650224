package sim_test

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// end looks at what is left when everybody has gone, and ends the fleet.
func (c *cluster) end() {
	c.closing.Wait()
	pause(lasting + 10*time.Second)
	for _, key := range c.barriers() { // who has died is forgotten at the next look
		stats := gatehouse.Command{Op: gatehouse.OpStats}
		c.ask(c.servers[0], request{client: "end", key: key, cmd: stats, patience: gatehouse.Forever})
	}
	for _, s := range c.servers {
		if n := s.gate.Waiting(); n > 0 {
			c.violated("left", gatehouse.Key{}, "%d wait at server %d", n, s.number)
		}
		if s.swap != nil && s.swap.PendingUndos() > 0 {
			c.violated("left", gatehouse.Key{}, "server %d still owes %d undos",
				s.number, s.swap.PendingUndos())
		}
	}
	c.records(c.left)
	for place := range c.servers {
		c.stop(place, false)
	}
	c.closing.Wait()
	pause(2 * time.Second) // the HTTP library looks once in a second whether it has ended
	c.lasted = c.now()
}

func (c *cluster) barriers() (keys []gatehouse.Key) {
	c.records(func(key gatehouse.Key, _ control.State, _ int) {
		if key.Kind == gatehouse.Barrier {
			keys = append(keys, key)
		}
	})
	return keys
}

// left looks at one controller that nobody uses any more.
func (c *cluster) left(key gatehouse.Key, state control.State, heads int) {
	if heads > 0 {
		c.violated("left", key, "%d servers wait", heads)
	}
	if state == nil || key.Name[0] == '!' {
		return
	}
	turn := control.Turn{Command: &gatehouse.Command{Op: gatehouse.OpStats}}
	state.Step(c.store.Now(), &turn)
	d := turn.Decision
	switch key.Kind {
	case gatehouse.Lock, gatehouse.Semaphore:
		live := c.store.Live(key)
		for _, hold := range state.(*control.Semaphore).Holds() {
			if c.setup.store != "etcd" || live[hold.Fence] {
				c.violated("left", key, "%+v is still held", hold)
			}
		}
	case gatehouse.Barrier:
		if d.Remaining > 0 && d.Remaining < d.Limit {
			c.violated("left", key, "%d arrivals of nobody count", d.Limit-d.Remaining)
		}
	}
}
