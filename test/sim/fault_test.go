package sim_test

import (
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas/castest"
)

// A mishap is one thing that goes wrong, apart from what happens to single messages.
type mishap struct {
	name  string
	lossy bool // it only happens where data may be lost
	do    func(c *cluster)
}

// mishaps are those that come one after the other while there is trouble.
var mishaps = []mishap{
	{"nothing", false, func(*cluster) {}},
	{"the store stands still", false, func(c *cluster) {
		c.store.Pause()
		pause(c.some(2 * time.Second))
		c.store.Resume()
	}},
	{"a server is cut off", false, func(c *cluster) {
		if s := c.any(c.fate); s != nil {
			s.backend.Cut(true)
			pause(c.some(5 * time.Second))
			s.backend.Cut(false)
		}
	}},
	{"the store is away", false, func(c *cluster) {
		c.store.Set(castest.Faults{Unsent: 1})
		pause(c.some(3 * time.Second))
	}},
	{"all connections break", false, func(c *cluster) { c.store.Restart(0) }},
	{"the clock is set a little", false, func(c *cluster) {
		if c.setup.store == "lazy" {
			return // the oracle counts what is let through there by its own clock
		}
		least := -1500 * time.Millisecond
		if c.lossy {
			least = 0 // a clock set back over what was lost takes the fencing tokens with it
		}
		c.store.Jump(least + c.some(2*time.Second))
	}},
	{"a server dies", false, func(c *cluster) { c.reboot(true) }},
	{"a server is restarted", false, func(c *cluster) { c.reboot(false) }},
	{"a stale replica takes over", true, func(c *cluster) { c.lose(c.some(time.Second)) }},
	{"a restart empty", true, func(c *cluster) { c.lose(gatehouse.Forever) }},
	{"the clock is set far", true, func(c *cluster) {
		c.store.Set(castest.Faults{Unsent: 1}) // a change under way could find its record gone by that
		pause(failover)
		c.lost() // as all holds may have ended
		c.store.Jump(c.some(2 * time.Minute))
	}},
}

// some is a random part of a time.
func (c *cluster) some(most time.Duration) time.Duration {
	return time.Duration(c.fate.Int64N(int64(most)))
}

// reboot ends a server and starts another in its place.
func (c *cluster) reboot(dies bool) {
	place := c.fate.IntN(len(c.servers))
	c.stop(place, dies)
	pause(c.some(3 * time.Second))
	c.boot(place)
}

// failover is how long it takes until another process answers in the store's place. By then nothing that was
// sent to the old one is under way.
const failover = 3500 * time.Millisecond

// lose has the store forget what it was given last.
func (c *cluster) lose(last time.Duration) {
	c.store.Set(castest.Faults{Unsent: 1})
	pause(failover)
	if last != gatehouse.Forever {
		last += failover
	}
	c.lost()
	c.store.Restart(last)
}

// trouble makes things go wrong until its time is over.
func (c *cluster) trouble() {
	chance := func() float64 { return c.fate.Float64() * c.fate.Float64() * 0.3 }
	for end := time.Now().Add(c.length); time.Now().Before(end); {
		if c.store == nil {
			pause(c.some(time.Minute))
			c.reboot(true)
			continue
		}
		faults := castest.Faults{
			Latency: time.Millisecond + c.some(60*time.Millisecond),
			Unsent:  chance(), LostRequest: chance(), LostAnswer: chance(), Late: chance(), Twice: chance(),
			LostWake: 3 * chance(), TwiceWoken: chance(),
		}
		c.store.Set(faults)
		c.noted("%+v", faults)
		pause(c.some(8 * time.Second))
		m := mishaps[c.fate.IntN(len(mishaps))]
		if m.lossy && (!c.lossy || c.fate.IntN(2) == 0) {
			continue
		}
		c.noted("%s", m.name)
		m.do(c)
	}
	c.peace()
}

// peace is a store that works, after what was under way in the trouble is over.
func (c *cluster) peace() {
	if c.store != nil {
		c.store.Set(castest.Faults{Latency: time.Millisecond})
	}
	pause(5 * time.Second)
	c.noted("peace")
}
