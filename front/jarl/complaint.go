package jarl

import (
	"sync"
	"time"
)

// A complaint goes to the log when it begins, and when it has not come up for a while; not each time.
type complaint struct {
	mu    sync.Mutex
	timer *time.Timer // fires when it is over; nil while there is none
	ended bool
}

// quiet is for how long a complaint must not come up to be over: there are at most two lines in that time.
const quiet = time.Second

// raise says that it has come up. begins is called if it was over, and ends when it is over again.
func (c *complaint) raise(begins, ends func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	if c.timer != nil {
		c.timer.Reset(quiet)
		return
	}
	begins()
	c.timer = time.AfterFunc(quiet, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer != nil {
			c.timer = nil
			ends()
		}
	})
}

// end makes it come up no more.
func (c *complaint) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}
