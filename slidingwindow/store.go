package slidingwindow

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// A Datastore keeps the counts that several limiters share. It may be called by several goroutines at
// once. A count is named by its key and by the start of its window in Unix nanoseconds, and is worth
// nothing any more two windows after that.
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

	// Exchange carries out all pushes, in any order, and fills in the Total or the Err of each. Those
	// with a Delta of 0 only read. It returns once ctx has ended.
	Exchange(ctx context.Context, pushes []Push)
}

// A Push tells an Exchanger what one source has counted in one window, and learns what all have.
type Push struct {
	Key   string
	Start int64 // of the window, in Unix nanoseconds

	// Sum is all that Source, a random number, has counted in this window, and Delta is the part of it
	// that the store has not confirmed yet. A store that remembers the last Sum of every source adds
	// what is new in this one, and so counts nothing twice when a push whose answer was lost is sent
	// again. If it has lost the count, it adds all of Sum.
	Source     uint64
	Sum, Delta int64

	// Keep is for how long from now the count is worth something; 0 if that is not known.
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
	errLate         = fmt.Errorf("slidingwindow: the store has not answered within %v", storeTimeout)
	errStillWaiting = errors.New("slidingwindow: the store still owes the answer to an earlier call")
)

// A participant takes part in an exchange.
type participant interface {
	// onReply takes the answers to its pushes. Those that were not tried have an error.
	onReply(pushes []Push)
	// onLate tells it that the answers are late.
	onLate()
}

// An storeRequest is what one party wants from a store.
type storeRequest struct {
	participant participant
	pushes      []Push
}

// runRequests carries out errands and settles them.
func (s *syncGroup) runRequests(errands []storeRequest) {
	if s.batch == nil {
		for i := range errands {
			s.runOne(&errands[i])
		}
		return
	}
	for len(errands) > 0 {
		n, size := 0, 0
		for n < len(errands) && (n == 0 || size+len(errands[n].pushes) <= maxBatch) {
			size += len(errands[n].pushes)
			n++
		}
		late := s.runBatch(errands[:n], size)
		errands = errands[n:]
		if late {
			failRequests(errands, errLate) // they would be, too
			return
		}
	}
}

// runOne calls a plain store, and does not go on after an error: it would most likely get another.
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

// runBatch puts the pushes of all errands into one round trip, and reports whether it took too long.
func (s *syncGroup) runBatch(errands []storeRequest, size int) (late bool) {
	pushes := make([]Push, 0, size)
	for i := range errands {
		pushes = append(pushes, errands[i].pushes...)
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeTimeout)
	defer cancel()
	s.batch.Exchange(ctx, pushes)
	for i := range errands {
		n := len(errands[i].pushes)
		errands[i].participant.onReply(pushes[:n:n])
		pushes = pushes[n:]
	}
	return ctx.Err() != nil
}

// failRequests settles errands that are not even tried.
func failRequests(errands []storeRequest, err error) {
	for i := range errands {
		for j := range errands[i].pushes {
			errands[i].pushes[j].Err = err
		}
		errands[i].participant.onReply(errands[i].pushes)
	}
}
