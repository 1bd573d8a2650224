package cas

import (
	"slices"
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
	waiting []*request

	// The rest is touched only by the request that leads.
	known    bool // what the store has, as of the last answer
	version  uint64
	record   record
	seen     int64         // when the store had it last, by its time; 0 if it did not
	state    control.State // nil when there is none, or when it has to be decoded from the record
	minFence uint64
	untold   untold
	races    int            // that were lost since this server's last grant
	trip     time.Duration  // how long the last answer took
	heard    int64          // when that was, by the clock
	gone     []control.Hold // holds that the backend has ended, and the record has not

	doubtful atomic.Bool // it has changed since
}

// enter reports whether a request leads. If it does not, it is told by and by.
func (e *entry) enter(r *request) (leads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.busy {
		r.alone[0] = r
		e.busy, r.batch = true, r.alone[:]
		return true
	}
	if r.done == nil {
		r.turn = make(chan bool, 1)
	}
	e.waiting = append(e.waiting, r)
	return false
}

// take notes the present record.
func (e *entry) take(reply *Reply) error {
	e.known, e.version, e.minFence = true, reply.Version, reply.MinFence
	e.record, e.state, e.gone, e.seen = record{}, nil, nil, 0
	if reply.Record == nil {
		return nil
	}
	var err error
	e.record, err = decodeRecord(reply.Record)
	if err == nil {
		err = e.decode()
	}
	if err != nil {
		e.known = false
		return err
	}
	e.seen = reply.Now.UnixNano()
	e.noteEnded(reply.Live)
	return nil
}

// decode makes the state of the record, when what was made of it has been decided on in vain.
func (e *entry) decode() (err error) {
	e.state = nil
	if e.record.form != nil {
		e.state, err = control.Decode(e.key.Kind, e.record.form)
	}
	return err
}

// noteEnded notes which holds the backend has ended.
func (e *entry) noteEnded(live map[uint64]bool) {
	e.gone = nil
	semaphore, ok := e.state.(*control.Semaphore)
	if live == nil || !ok {
		return
	}
	for _, h := range semaphore.Holds() {
		if !live[h.Fence] {
			e.gone = append(e.gone, h)
		}
	}
}

// adopt takes over what a change has made of the record.
func (e *entry) adopt(f *flight, reply *Reply) error {
	e.known = true
	if reply.MinFence != 0 {
		e.minFence = reply.MinFence
	}
	e.seen = reply.Now.UnixNano()
	if f.change.Read {
		// What was decided stands. The state counted refusals that were not stored.
		if err := e.decode(); err != nil {
			return err
		}
		e.noteEnded(reply.Live)
		return nil
	}
	e.version, e.record, e.state = reply.Version, f.next, f.state
	e.untold.count = 0
	if f.granted() {
		e.races = 0
	}
	e.noteEnded(reply.Live)
	return nil
}

// granted reports whether any command was.
func (f *flight) granted() bool {
	return slices.ContainsFunc(f.turns, func(turn control.Turn) bool {
		return turn.Decision.Outcome == gatehouse.Granted
	})
}

// fences are the fencing tokens of the holds in the record.
func (e *entry) fences() map[uint64]bool {
	if e.record.form == nil {
		return nil
	}
	state, _ := control.Decode(e.key.Kind, e.record.form) // it was decoded before
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
