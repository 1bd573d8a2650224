package cas

import (
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse/control"
)

// An applyCall is one queue that is to be applied.
type applyCall struct {
	queue      []control.Turn
	view       func(now time.Time, state control.State)
	err        error
	batch      []*applyCall // that this one leads
	batchOfOne [1]*applyCall

	flushing bool // it has refusals stored that were not, and has no command

	pendingUndos []*undo     // one for each turn, if the call takes back what failed calls have left
	ownUndos     []undo      // of its undos, in their order, once it was in a transaction
	done         func(error) // is called with err, once
}

// A callQueue is where the calls for one key meet. While a transaction is under way, those that come wait for
// the next one, which serves them together:
//
//	idle ── the first call leads ──► busy ── others come ──► busy, some wait
//	 ▲                                │                          │
//	 └────── it ends, none waits ─────┘        it ends: the next batch begins, led by its first
type callQueue struct {
	mu      sync.Mutex
	busy    bool // a transaction is under way
	waiting []*applyCall
}

// maxTurns is the most commands in one round trip.
const maxTurns = 4096

// beginOrJoin begins a transaction for a call if none is under way, and reports so. Otherwise it joins the
// queue.
func (q *callQueue) beginOrJoin(r *applyCall) (leads bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.busy {
		r.batchOfOne[0] = r
		q.busy, r.batch = true, r.batchOfOne[:]
		return true
	}
	q.waiting = append(q.waiting, r)
	return false
}

// takeBatch ends a transaction, and returns the calls of the next one. It is over if there are none.
func (q *callQueue) takeBatch() (batch []*applyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for turns := 0; n < len(q.waiting) && (n == 0 || turns < maxTurns); n++ {
		// The last call may pass the limit, as no call is split.
		turns += len(q.waiting[n].queue)
	}
	q.busy = n > 0
	if n > 0 {
		batch = q.waiting[:n]
		// Copied, so that nothing of the batch is kept.
		q.waiting = append([]*applyCall(nil), q.waiting[n:]...)
	}
	return batch
}

// takeAll ends a transaction that no other one is to follow, and returns all who wait.
func (q *callQueue) takeAll() (all []*applyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, q.waiting, q.busy = q.waiting, nil, false
	return all
}

// takeMatching returns the calls at the front that match, for the transaction under way.
func (q *callQueue) takeMatching(match func(*applyCall) bool) (front []*applyCall) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := 0
	for n < min(len(q.waiting), maxTurns) && match(q.waiting[n]) {
		n++
	}
	front = slices.Clone(q.waiting[:n])
	q.waiting = append([]*applyCall(nil), q.waiting[n:]...)
	return front
}
