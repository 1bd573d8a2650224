package slidingwindow

import (
	"reflect"
	"sync"
	"time"
)

// process is the courier of this process.
var process courier

// A courier makes the exchanges that no caller waits for, of all windows of a process: those of
// NonblockingSynchronizers, and those of windows that nobody calls.
//
// It is one goroutine, which lives only while there is something to exchange; between that there is a
// timer. What becomes due while a round trip is under way goes into the next one, all together if the
// store is an Exchanger. When a store does not answer, another goroutine takes over from the one that
// is stuck, and that store is left alone until it has answered.
type courier struct {
	mu      sync.Mutex
	queue   []delivery
	runner  int  // the number of the goroutine at work
	running bool // there is one
	owing   []*call

	rounds map[time.Duration]*round
	timer  *time.Timer // for the round that is next; nil if there is none
}

// A delivery is an errand and where it leads to.
type delivery struct {
	share  *sharing
	errand errand
}

// A call is a call of a store that is not batched, and so cannot be told when to give up.
type call struct {
	store      Datastore
	errands    []errand // that it is made for
	late, done bool
}

// submit has errands carried out in the background.
func (c *courier) submit(deliveries ...delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, deliveries...)
	if !c.running {
		c.running = true
		go c.run(c.runner) // ends when the queue is empty
	}
}

// run carries out what is in the queue until nothing is, or another goroutine has taken over.
func (c *courier) run(number int) {
	for {
		share, errands := c.take(number)
		if share == nil {
			return
		}
		c.carry(number, share, errands)
	}
}

// take takes the first errand out of the queue, and all others that can go with it. There is no share
// when the goroutine with that number has nothing more to do.
func (c *courier) take(number int) (share *sharing, errands []errand) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runner != number {
		return nil, nil
	}
	if len(c.queue) == 0 {
		c.queue, c.running = nil, false
		return nil, nil
	}
	first := c.queue[0]
	share, errands = first.share, []errand{first.errand}
	if share.batch == nil {
		c.queue = c.queue[1:]
		return share, errands
	}
	size := len(first.errand.pushes)
	rest := c.queue[:0]
	for _, d := range c.queue[1:] {
		if size+len(d.errand.pushes) <= maxBatch && same(d.share.store, share.store) {
			errands = append(errands, d.errand)
			size += len(d.errand.pushes)
		} else {
			rest = append(rest, d)
		}
	}
	c.queue = rest
	return share, errands
}

// carry carries out errands at one store.
func (c *courier) carry(number int, s *sharing, errands []errand) {
	owed, ok := c.begin(s.store, errands)
	if !ok {
		fail(errands, errOwing)
		return
	}
	limit := storeTimeout
	if s.batch != nil {
		limit *= 2 // it keeps the time itself; this is for one that does not
	}
	timer := time.AfterFunc(limit, func() { c.replace(number, owed) })
	s.run(errands)
	timer.Stop()
	c.finish(owed)
}

// replace starts another goroutine in the place of one that waits for a store.
func (c *courier) replace(number int, owed *call) {
	if !c.overdue(owed) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runner == number {
		c.runner++
		go c.run(c.runner) // ends when the queue is empty
	}
}

// begin begins a call of a store, unless that store still owes an answer that is late.
func (c *courier) begin(store Datastore, errands []errand) (owed *call, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, late := range c.owing {
		if same(late.store, store) {
			return nil, false
		}
	}
	return &call{store: store, errands: errands}, true
}

// overdue notes that a call has not been answered in time, and reports whether that is so.
func (c *courier) overdue(owed *call) bool {
	c.mu.Lock()
	if owed.done || owed.late {
		c.mu.Unlock()
		return false
	}
	owed.late = true
	c.owing = append(c.owing, owed)
	c.mu.Unlock()
	for _, e := range owed.errands {
		e.party.owed()
	}
	return true
}

// finish notes that a call has been answered.
func (c *courier) finish(owed *call) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owed.done = true
	if !owed.late {
		return
	}
	for i, late := range c.owing {
		if late == owed {
			c.owing = append(c.owing[:i], c.owing[i+1:]...)
			return
		}
	}
}

// same reports whether two stores are one. Those that cannot be compared never are.
func same(a, b Datastore) bool {
	v := reflect.ValueOf(a)
	return v.IsValid() && v.Comparable() && a == b
}

// inTime calls a store in a goroutine that lives as long as that takes, and waits for it, but not for
// longer than storeTimeout. It reports false, and calls nothing, if the store still owes an answer.
func inTime(store Datastore, errands []errand, do func()) bool {
	owed, ok := process.begin(store, errands)
	if !ok {
		return false
	}
	done := make(chan struct{})
	go func() { // ends when the store has answered
		defer close(done)
		do()
		process.finish(owed)
	}()
	timer := time.NewTimer(storeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		process.overdue(owed)
	}
	return true
}
