package slidingwindow

import (
	"reflect"
	"sync"
	"time"
)

// processSyncer is the courier of this process.
var processSyncer backgroundSyncer

// A backgroundSyncer makes the exchanges that no caller waits for, of all windows of a process: those of
// NonblockingSynchronizers, and those of windows that nobody calls.
//
// It is one goroutine, which lives only while there is something to exchange; between that there is a
// timer. What becomes due while a round trip is under way goes into the next one, all together if the
// store is an Exchanger. When a store does not answer, another goroutine takes over from the one that
// is stuck, and that store is left alone until it has answered.
type backgroundSyncer struct {
	mu        sync.Mutex
	queue     []syncJob
	runner    int  // the number of the goroutine at work
	running   bool // there is one
	lateCalls []*storeCall

	intervals map[time.Duration]*intervalWindows
	timer     *time.Timer // for the round that is next; nil if there is none
}

// A syncJob is an errand and where it leads to.
type syncJob struct {
	group   *syncGroup
	request storeRequest
}

// A storeCall is a call of a store that is not batched, and so cannot be told when to give up.
type storeCall struct {
	store      Datastore
	requests   []storeRequest // that it is made for
	late, done bool
}

// submitJobs has errands carried out in the background.
func (c *backgroundSyncer) submitJobs(deliveries ...syncJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, deliveries...)
	if !c.running {
		c.running = true
		go c.runJobs(c.runner) // ends when the queue is empty
	}
}

// runJobs carries out what is in the queue until nothing is, or another goroutine has taken over.
func (c *backgroundSyncer) runJobs(number int) {
	for {
		share, errands := c.takeJobs(number)
		if share == nil {
			return
		}
		c.callStore(number, share, errands)
	}
}

// takeJobs takes the first errand out of the queue, and all others that can go with it. There is no share
// when the goroutine with that number has nothing more to do.
func (c *backgroundSyncer) takeJobs(number int) (share *syncGroup, errands []storeRequest) {
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
	share, errands = first.group, []storeRequest{first.request}
	if share.batch == nil {
		c.queue = c.queue[1:]
		return share, errands
	}
	size := len(first.request.pushes)
	rest := c.queue[:0]
	for _, d := range c.queue[1:] {
		if size+len(d.request.pushes) <= maxBatch && sameStore(d.group.store, share.store) {
			errands = append(errands, d.request)
			size += len(d.request.pushes)
		} else {
			rest = append(rest, d)
		}
	}
	c.queue = rest
	return share, errands
}

// callStore carries out errands at one store.
func (c *backgroundSyncer) callStore(number int, s *syncGroup, errands []storeRequest) {
	owed, ok := c.beginCall(s.store, errands)
	if !ok {
		failRequests(errands, errStillWaiting)
		return
	}
	limit := storeTimeout
	if s.batch != nil {
		limit *= 2 // it keeps the time itself; this is for one that does not
	}
	timer := time.AfterFunc(limit, func() { c.replaceRunner(number, owed) })
	s.runRequests(errands)
	timer.Stop()
	c.finishCall(owed)
}

// replaceRunner starts another goroutine in the place of one that waits for a store.
func (c *backgroundSyncer) replaceRunner(number int, owed *storeCall) {
	if !c.markLate(owed) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runner == number {
		c.runner++
		go c.runJobs(c.runner) // ends when the queue is empty
	}
}

// beginCall begins a call of a store, unless that store still owes an answer that is late.
func (c *backgroundSyncer) beginCall(store Datastore, errands []storeRequest) (owed *storeCall, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, late := range c.lateCalls {
		if sameStore(late.store, store) {
			return nil, false
		}
	}
	return &storeCall{store: store, requests: errands}, true
}

// markLate notes that a call has not been answered in time, and reports whether that is so.
func (c *backgroundSyncer) markLate(owed *storeCall) bool {
	c.mu.Lock()
	if owed.done || owed.late {
		c.mu.Unlock()
		return false
	}
	owed.late = true
	c.lateCalls = append(c.lateCalls, owed)
	c.mu.Unlock()
	for _, e := range owed.requests {
		e.participant.onLate()
	}
	return true
}

// finishCall notes that a call has been answered.
func (c *backgroundSyncer) finishCall(owed *storeCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	owed.done = true
	if !owed.late {
		return
	}
	for i, late := range c.lateCalls {
		if late == owed {
			c.lateCalls = append(c.lateCalls[:i], c.lateCalls[i+1:]...)
			return
		}
	}
}

// sameStore reports whether two stores are one. Those that cannot be compared never are.
func sameStore(a, b Datastore) bool {
	v := reflect.ValueOf(a)
	return v.IsValid() && v.Comparable() && a == b
}

// callInTime calls a store in a goroutine that lives as long as that takes, and waits for it, but not for
// longer than storeTimeout. It reports false, and calls nothing, if the store still owes an answer.
func callInTime(store Datastore, errands []storeRequest, do func()) bool {
	owed, ok := processSyncer.beginCall(store, errands)
	if !ok {
		return false
	}
	done := make(chan struct{})
	go func() { // ends when the store has answered
		defer close(done)
		do()
		processSyncer.finishCall(owed)
	}()
	timer := time.NewTimer(storeTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		processSyncer.markLate(owed)
	}
	return true
}
