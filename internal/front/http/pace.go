package http

import (
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// A pace tells what a connection is doing, and for how long. A timer that is set for every request costs more
// than the decision does. Instead the loop notes what the connection is doing in one atomic word, and a timer
// looks four times per ReadTimeout whether it is still at the same activity. So a slow client is cut up to
// half of ReadTimeout late.
//
//	         first byte           it is whole
//	fresh -------------> receiving ----------> working
//	                         ^                    |
//	              first byte |                    | answer was written
//	                        idle <----------------'
//
// While a request waits, its connection has no timer.
type pace struct {
	// activity holds what the connection is doing in its last two bits, and above them how often that has
	// changed. Only the loop writes it.
	activity atomic.Uint32

	mu           sync.Mutex
	timer        *time.Timer // nil while the connection waits or is closed
	lastActivity uint32      // activity at the last check
	checks       uint32      // how many checks in a row have seen lastActivity
}

// The activities of a connection.
const (
	fresh     = iota // nothing has come yet
	receiving        // a request
	idle             // between two requests
	working          // on an answer, or writing it, which have limits of their own

	activityBits = 2
)

// begin notes that an activity begins. The count makes it differ from an earlier one of the same sort, so
// that a busy connection whose checks always find it receiving is not cut.
func (p *pace) begin(what uint32) {
	p.activity.Store((p.activity.Load()>>activityBits+1)<<activityBits | what)
}

// now returns the activity without the count.
func (p *pace) now() uint32 { return p.activity.Load() & (1<<activityBits - 1) }

// isQuiet reports whether no request has begun.
func (p *pace) isQuiet() bool { return p.now() == idle || p.now() == fresh }

// start begins the checks of a connection.
func (p *pace) start(c *httpConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil {
		p.timer = time.AfterFunc(checkInterval(c), func() { p.check(c) })
	}
}

// stop ends the checks: the connection waits or is closed.
func (p *pace) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
}

// checkInterval is the time between two checks.
func checkInterval(c *httpConn) time.Duration { return max(1, c.server.config.ReadTimeout/4) }

// check has the connection cut if the same activity has lasted for too long. The timer calls it.
func (p *pace) check(c *httpConn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.timer == nil { // stop came too late to keep this call back
		return
	}
	doing := p.activity.Load()
	if doing != p.lastActivity {
		p.lastActivity = doing
		p.checks = 0
	}
	p.checks++
	config := &c.server.config
	allowed := [...]time.Duration{
		fresh: config.ReadTimeout, receiving: config.ReadTimeout, idle: config.IdleTimeout,
	}
	// The activity began somewhere before its first check. Only the intervals since then are known to have
	// passed, so the first check does not count: a client is cut late and never early.
	if what := p.now(); what != working && time.Duration(p.checks-1)*checkInterval(c) >= allowed[what] {
		c.addTask(func() { c.cutSlow(doing) })
	}
	p.timer.Reset(checkInterval(c))
}

// cutSlow ends the connection if it is still at an activity that has lasted for too long. If part of a
// request has come, that is answered with 408.
func (c *httpConn) cutSlow(doing uint32) {
	switch {
	// The timer has looked from its own goroutine: a byte may have come, or an answer begun, since then.
	case c.pace.activity.Load() != doing || !c.isFree():
	case c.pace.now() == receiving && !c.framing.isEmpty():
		c.refuse(c.input, os.ErrDeadlineExceeded)
	case !c.hasInput() || c.framing.isEmpty() && c.pace.now() == receiving:
		c.closing = true
	}
}
