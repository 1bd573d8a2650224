package peer

import (
	"log/slog"
	"sync"
	"time"
)

// A Complaint goes to the log when it begins, and when it has not come up for a while; not each time.
type Complaint struct {
	mu    sync.Mutex
	timer *time.Timer // fires when it is over; nil while there is none
	ended bool
}

// quiet is for how long a complaint must not come up to be over: there are at most two lines in that time.
const quiet = 2 * time.Second // more than any listener pauses after a failure

// Raise says that it has come up. begins is called if it was over, and ends when it is over again.
func (c *Complaint) Raise(begins, ends func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return
	}
	// It is going on: no second line, and quiet starts again.
	if c.timer != nil {
		c.timer.Reset(quiet)
		return
	}
	begins()
	// The function checks the timer again: it may have fired just before End stopped it, or twice, when it
	// fired while a Raise reset it.
	c.timer = time.AfterFunc(quiet, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.timer != nil {
			c.timer = nil
			ends()
		}
	})
}

// Unaccepted says in the log that connections cannot be accepted. A shortage of file descriptors is the
// process's: its listeners share one complaint.
func (c *Complaint) Unaccepted(log *slog.Logger, protocol string, why error) {
	c.Raise(func() {
		log.Warn("accepting a connection failed; the server continues", "protocol", protocol, "error", why)
	}, func() {
		log.Info("accepting connections again")
	})
}

// End makes it come up no more.
func (c *Complaint) End() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// A RareLine keeps lines of one sort rare in the log. It is safe for use by many goroutines.
type RareLine struct {
	mu     sync.Mutex
	next   time.Time // when there may be a line again
	silent int
}

// MayLog reports whether a line may be logged now, which is so once in each interval, and how many were not
// logged since the last that was.
func (r *RareLine) MayLog(now time.Time, interval time.Duration) (silent int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now.Before(r.next) {
		r.silent++
		return 0, false
	}
	silent = r.silent
	r.next, r.silent = now.Add(interval), 0
	return silent, true
}
