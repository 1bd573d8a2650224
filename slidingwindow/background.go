package slidingwindow

import (
	"reflect"
	"slices"
	"sync"
	"time"
)

// processSyncer is the background syncer of this process.
var processSyncer backgroundSyncer

// A backgroundSyncer makes the exchanges that no caller waits for, of all windows of a process: those of
// NonblockingSynchronizers, and those of windows that are not called.
//
// It is one goroutine, which lives only while there is something to exchange; in between there is a timer.
// Requests that come during a round trip go into the next one, all together if the store is an Exchanger. If
// a store does not answer, another goroutine takes over from the one that waits, and that store gets no
// further calls until it has answered.
//
//	          submitJobs             queue empty
//	no goroutine -----> running ------------------> no goroutine
//	                       |
//	                       | store late: replaceRunner
//	                       v
//	         a new goroutine runs the queue; the old one ends after its call
type backgroundSyncer struct {
	mu        sync.Mutex
	queue     []syncJob
	runner    int  // the number of the goroutine that runs the queue
	running   bool // there is one
	lateCalls []*storeCall

	intervals map[time.Duration]*intervalWindows
	timer     *time.Timer // for the round that is next; nil if there is none
}

// A syncJob is a request and the group whose store it is for.
type syncJob struct {
	group   *syncGroup
	request storeRequest
}

// A storeCall is a call of a store that is not batched, and so has no deadline of its own.
type storeCall struct {
	store      Datastore
	requests   []storeRequest // that it is made for
	late, done bool
}

// submitJobs has requests sent in the background.
func (c *backgroundSyncer) submitJobs(deliveries ...syncJob) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queue = append(c.queue, deliveries...)
	if !c.running {
		c.running = true
		go c.runJobs(c.runner) // ends when the queue is empty
	}
}

// runJobs sends what is in the queue until it is empty, or another goroutine has taken over.
func (c *backgroundSyncer) runJobs(number int) {
	for {
		group, requests := c.takeJobs(number)
		if group == nil {
			return
		}
		c.callStore(number, group, requests)
	}
}

// takeJobs takes the first request out of the queue, and all others that can go with it. group is nil if the
// goroutine with that number has nothing more to do.
func (c *backgroundSyncer) takeJobs(number int) (group *syncGroup, requests []storeRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// This goroutine was replaced while it waited, and ends.
	if c.runner != number {
		return nil, nil
	}
	// Under the lock: a job submitted after this starts a new goroutine.
	if len(c.queue) == 0 {
		c.queue, c.running = nil, false
		return nil, nil
	}
	// The oldest request decides which store is called, so none waits behind requests of a busier store.
	first := c.queue[0]
	group, requests = first.group, []storeRequest{first.request}
	// A plain store is called once per count, so nothing is gained by collecting.
	if group.batch == nil {
		c.queue = c.queue[1:]
		return group, requests
	}
	size := len(first.request.pushes)
	// Only requests for the same store fit into one round trip. The others keep their order.
	rest := c.queue[:0]
	for _, d := range c.queue[1:] {
		if size+len(d.request.pushes) <= maxBatch && sameStore(d.group.store, group.store) {
			requests = append(requests, d.request)
			size += len(d.request.pushes)
		} else {
			rest = append(rest, d)
		}
	}
	c.queue = rest
	return group, requests
}

// callStore sends requests to one store.
func (c *backgroundSyncer) callStore(number int, s *syncGroup, requests []storeRequest) {
	call, ok := c.beginCall(s.store, requests)
	if !ok {
		failRequests(requests, errStillWaiting)
		return
	}
	limit := storeTimeout
	if s.batch != nil {
		limit *= 2 // it keeps the time itself; this is for one that does not
	}
	// The call itself cannot be stopped. When the limit passes, another goroutine takes over the queue, so
	// that one dead store does not hold up the windows of the others.
	timer := time.AfterFunc(limit, func() { c.replaceRunner(number, call) })
	s.runRequests(requests)
	timer.Stop()
	c.finishCall(call)
}

// replaceRunner starts another goroutine in place of one that waits for a store.
func (c *backgroundSyncer) replaceRunner(number int, call *storeCall) {
	if !c.markLate(call) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runner == number {
		// The old goroutine sees from its number that it was replaced.
		c.runner++
		go c.runJobs(c.runner) // ends when the queue is empty
	}
}

// beginCall begins a call of a store, unless a late call of that store is still unanswered. So at most one
// goroutine waits for each store.
func (c *backgroundSyncer) beginCall(store Datastore, requests []storeRequest) (call *storeCall, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.ContainsFunc(c.lateCalls, func(late *storeCall) bool { return sameStore(late.store, store) }) {
		return nil, false
	}
	return &storeCall{store: store, requests: requests}, true
}

// markLate notes that a call has not been answered in time, and reports whether that is so.
func (c *backgroundSyncer) markLate(call *storeCall) bool {
	c.mu.Lock()
	// The timer may fire just when the store has answered.
	if call.done || call.late {
		c.mu.Unlock()
		return false
	}
	call.late = true
	c.lateCalls = append(c.lateCalls, call)
	c.mu.Unlock()
	// Participants have locks of their own, which must not be taken under this one.
	for _, e := range call.requests {
		e.participant.onLate()
	}
	return true
}

// finishCall notes that a call has been answered.
func (c *backgroundSyncer) finishCall(call *storeCall) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.done = true
	// In time it was never put on the list.
	if call.late {
		c.lateCalls = slices.DeleteFunc(c.lateCalls, func(late *storeCall) bool { return late == call })
	}
}

// sameStore reports whether two stores are one. Stores that cannot be compared never are.
func sameStore(a, b Datastore) bool {
	// To compare two interface values that hold an incomparable type would panic.
	v := reflect.ValueOf(a)
	return v.IsValid() && v.Comparable() && a == b
}

// callInTime calls a store in a goroutine that lives until the store answers, and waits for it for
// storeTimeout at most. It reports false, and calls nothing, if an earlier call of the store is still
// unanswered.
func callInTime(store Datastore, requests []storeRequest, do func()) bool {
	call, ok := processSyncer.beginCall(store, requests)
	if !ok {
		return false
	}
	done := make(chan struct{})
	go func() { // ends when the store has answered
		defer close(done)
		do()
		processSyncer.finishCall(call)
	}()
	// The goroutine goes on after that, and passes the replies on when they come.
	if !closesWithin(done, storeTimeout) {
		processSyncer.markLate(call)
	}
	return true
}

// closesWithin waits until a channel is closed, and reports false if that takes longer than patience.
func closesWithin(channel <-chan struct{}, patience time.Duration) bool {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-channel:
		return true
	case <-timer.C:
		return false
	}
}
