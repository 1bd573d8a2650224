package cas

import (
	"sync"
	"time"
)

// A storeClock estimates the time of the store from its answers: an answer that says t was made after the
// question was sent and before it was received. The estimate is never ahead of the store's time by more than
// this machine's clock drifts between two answers, so that nothing ends early by it.
type storeClock struct {
	start time.Time // of this clock, by the monotonic clock

	mu     sync.Mutex
	known  bool
	offset int64 // of the store's Unix ns to the ns since start, at least
	most   int64 // and at most
	asOf   int64 // when the last answer was received, in ns since start
}

// elapsedTime is the monotonic time.
func (c *storeClock) elapsedTime() int64 { return int64(time.Since(c.start)) }

// storeTime is the store's time in Unix ns, if it has answered before.
func (c *storeClock) storeTime() (now int64, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.elapsedTime() + c.offset, c.known
}

// maxDrift is how much apart two clocks run at most, as a divisor: one part in a thousand. Clocks that are
// being set right run up to half of that too fast or too slowly.
const maxDrift = 1000

// latestTime is the store's time or later, in Unix ns, as long as its clock has not been set forward since
// the last answer.
func (c *storeClock) latestTime() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.elapsedTime()
	return now + c.most + (now-c.asOf)/maxDrift
}

// leastStep is what counts as a step of the clock. Less may be two nodes of one store whose clocks differ.
const leastStep = int64(time.Second)

// noteReply learns from an answer, and returns by how much the store's clock was set since the one before, at
// least; 0 if it was not. The most rests on the last answer alone: by an earlier one it might be less, and
// wrong, as the clock may have been set since.
func (c *storeClock) noteReply(now time.Time, sent, received int64) (step time.Duration) {
	// The reply was made between sent and received, so the offset lies between these two.
	least, most := now.UnixNano()-received, now.UnixNano()-sent
	c.mu.Lock()
	defer c.mu.Unlock()
	drift := max(0, received-c.asOf) / maxDrift
	switch forward, back := least-c.most-drift, c.offset-most-drift; {
	case !c.known:
	case forward >= leastStep:
		step = time.Duration(forward)
	case back >= leastStep:
		step = time.Duration(-back)
	}
	// An offset that the reply contradicts moves to the least, which is never ahead of the store.
	if !c.known || c.offset < least || c.offset > most {
		c.known, c.offset = true, least
	}
	if received >= c.asOf {
		c.most, c.asOf = most, received
	}
	return step
}
