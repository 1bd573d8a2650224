package cas

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// An entry is what is known of one name.
type entry struct {
	key gatehouse.Key

	mu      sync.Mutex
	busy    bool // a request leads
	waiting []*applyCall

	// The rest is touched only by the request that leads.
	known      bool // what the store has, as of the last answer
	version    uint64
	record     storedRecord
	seen       int64         // when the store had it last, by its time; 0 if it did not
	state      control.State // nil when there is none, or when it has to be decoded from the record
	minFence   uint64
	unstored   unstoredRefusals
	conflicts  int            // that were lost since this server's last grant
	roundTrip  time.Duration  // how long the last answer took
	repliedAt  int64          // when that was, by the clock
	endedHolds []control.Hold // holds that the backend has ended, and the record has not

	stale atomic.Bool // it has changed since
}

// beginOrJoin begins a transaction for a call if none is under way, and reports so. Otherwise it joins the
// queue, and handover says what comes.
func (e *entry) beginOrJoin(r *applyCall) (leads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.busy {
		r.batchOfOne[0] = r
		e.busy, r.batch = true, r.batchOfOne[:]
		return true
	}
	if r.done == nil {
		// One slot, so that the transaction before never waits for this caller.
		r.handover = make(chan bool, 1)
	}
	e.waiting = append(e.waiting, r)
	return false
}

// loadReply notes the present record.
func (e *entry) loadReply(reply *Reply) error {
	// Everything that was derived from the former record goes with it.
	e.known, e.version, e.minFence = true, reply.Version, reply.MinFence
	e.record, e.state, e.endedHolds, e.seen = storedRecord{}, nil, nil, 0
	if reply.Record == nil {
		return nil
	}
	var err error
	e.record, err = decodeRecord(reply.Record)
	if err == nil {
		err = e.decodeState()
	}
	if err != nil {
		// A record that cannot be read is asked for again by the next transaction.
		e.known = false
		return err
	}
	e.seen = reply.Now.UnixNano()
	e.noteEndedHolds(reply.Live)
	return nil
}

// decodeState makes the state of the record, when what was made of it has been decided on in vain.
func (e *entry) decodeState() (err error) {
	e.state = nil
	if e.record.encodedState != nil {
		e.state, err = control.Decode(e.key.Kind, e.record.encodedState)
	}
	return err
}

// noteEndedHolds notes which holds the backend has ended.
func (e *entry) noteEndedHolds(live map[uint64]bool) {
	e.endedHolds = nil
	semaphore, ok := e.state.(*control.Semaphore)
	// nil: the backend does not end holds, and the state itself tells their ends.
	if live == nil || !ok {
		return
	}
	for _, h := range semaphore.Holds() {
		if !live[h.Fence] {
			e.endedHolds = append(e.endedHolds, h)
		}
	}
}

// adoptChange takes over what a change has made of the record.
func (e *entry) adoptChange(t *transaction, reply *Reply) error {
	e.known = true
	if reply.MinFence != 0 {
		e.minFence = reply.MinFence
	}
	e.seen = reply.Now.UnixNano()
	if t.change.Read {
		// What was decided stands. The state counted refusals that were not stored.
		if err := e.decodeState(); err != nil {
			return err
		}
		e.noteEndedHolds(reply.Live)
		return nil
	}
	e.version, e.record, e.state = reply.Version, t.update.next, t.update.state
	e.unstored.count = 0
	// A grant shows that this server keeps up; it needs no claim for room.
	if t.update.grantedAny() {
		e.conflicts = 0
	}
	e.noteEndedHolds(reply.Live)
	return nil
}

// holdFences are the fencing tokens of the holds in the record.
func (e *entry) holdFences() map[uint64]bool {
	if e.record.encodedState == nil {
		return nil
	}
	state, _ := control.Decode(e.key.Kind, e.record.encodedState) // it was decoded before
	semaphore, ok := state.(*control.Semaphore)
	if !ok {
		return nil
	}
	fences := make(map[uint64]bool)
	for _, h := range semaphore.Holds() {
		fences[h.Fence] = true
	}
	return fences
}
