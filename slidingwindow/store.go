package slidingwindow

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Datastore keeps the counts that several limiters share. It may be called by several goroutines at
// once. A count is named by its key and by the start of its window in Unix nanoseconds, and is of no
// use two windows after that.
//
// An error says that nothing was added. A store that cannot promise that, because an answer may get
// lost, counts twice what is sent again; an Exchanger need not.
type Datastore interface {
	// Add adds delta to a count, as one atomic change, and returns the new count. A count that is not
	// there is 0. Only a StrictWindow adds less than 0.
	Add(key string, start, delta int64) (int64, error)

	// Get returns a count.
	Get(key string, start int64) (int64, error)
}

// An Exchanger is a Datastore that exchanges many counts in one round trip.
type Exchanger interface {
	Datastore

	// Exchange carries out all pushes, in any order, and sets the Total or the Err of each. Those with a
	// Delta of 0 only read. It must return once ctx has ended.
	Exchange(ctx context.Context, pushes []Push)
}

// A Push sends an Exchanger what one source has counted in one window, and returns what all have.
type Push struct {
	Key   string
	Start int64 // of the window, in Unix nanoseconds

	// Sum is all that Source, a random number, has counted in this window, and Delta is the part of it
	// that the store has not confirmed yet. A store that remembers the last Sum of every source adds
	// what is new in this one, and so counts nothing twice when a push whose answer was lost is sent
	// again. If it has lost the count, it adds all of Sum.
	Source     uint64
	Sum, Delta int64

	// Keep is for how long from now the count is needed; 0 if that is not known.
	Keep time.Duration

	// Total is the count after the push.
	Total int64
	// Err says that the push was not carried out, or that it is not known whether it was.
	Err error
}

// storeTimeout is how long a store has for an exchange. Callers that wait for one wait no longer.
const storeTimeout = time.Second

// maxBatch is how many pushes go into one round trip: about 100 KiB of Redis commands.
const maxBatch = 1024

var (
	errLate         = fmt.Errorf("slidingwindow: the store has not responded within %v", storeTimeout)
	errStillWaiting = errors.New("slidingwindow: an earlier call of the store has not returned yet")
)

// A participant takes part in an exchange.
type participant interface {
	// onReply applies the replies to its pushes. Those that were not tried have an error.
	onReply(pushes []Push)
	// onLate is called when the replies are late.
	onLate()
}

// A storeRequest is what one participant wants from a store.
type storeRequest struct {
	participant participant
	pushes      []Push
}

// runRequests sends requests and passes the replies on.
func (s *syncGroup) runRequests(requests []storeRequest) {
	if s.batch == nil {
		for i := range requests {
			s.runOne(&requests[i])
		}
		return
	}
	// As many whole requests as fit into one round trip, and at least one: pushes of one window stay
	// together.
	for len(requests) > 0 {
		n, size := 0, 0
		for n < len(requests) && (n == 0 || size+len(requests[n].pushes) <= maxBatch) {
			size += len(requests[n].pushes)
			n++
		}
		late := s.runBatch(requests[:n], size)
		requests = requests[n:]
		if late {
			failRequests(requests, errLate) // they would be late as well
			return
		}
	}
}

// runOne calls a plain store. It does not go on after an error: the next call would most likely fail as well.
func (s *syncGroup) runOne(e *storeRequest) {
	var err error
	for i := range e.pushes {
		p := &e.pushes[i]
		switch {
		case err != nil:
		case p.Delta != 0:
			p.Total, err = s.store.Add(p.Key, p.Start, p.Delta)
		default:
			p.Total, err = s.store.Get(p.Key, p.Start)
		}
		p.Err = err
	}
	e.participant.onReply(e.pushes)
}

// runBatch puts the pushes of all requests into one round trip, and reports whether it took too long.
func (s *syncGroup) runBatch(requests []storeRequest, size int) (late bool) {
	pushes := make([]Push, 0, size)
	for i := range requests {
		pushes = append(pushes, requests[i].pushes...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	s.batch.Exchange(ctx, pushes)
	for i := range requests {
		// The capacity is cut as well: a participant must not append over the next one's pushes.
		n := len(requests[i].pushes)
		requests[i].participant.onReply(pushes[:n:n])
		pushes = pushes[n:]
	}
	return ctx.Err() != nil
}

// failRequests fails requests that are not tried.
func failRequests(requests []storeRequest, err error) {
	for i := range requests {
		for j := range requests[i].pushes {
			requests[i].pushes[j].Err = err
		}
		requests[i].participant.onReply(requests[i].pushes)
	}
}
