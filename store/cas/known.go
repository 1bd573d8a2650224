package cas

import (
	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A knownRecord is what is known of one record, by the last answer of the store.
type knownRecord struct {
	kind       gatehouse.Kind
	current    bool   // it is what the store has, as of that answer; otherwise it was more recently
	version    uint64 // 0 when there is none
	record     storedRecord
	state      control.State  // nil when there is none, or when it has to be decoded from the record
	seen       int64          // when the store had it last, by its time; 0 if it did not
	minFence   uint64         // of that answer
	endedHolds []control.Hold // that the backend has ended, and the record has not
}

// loadReply notes the present record.
func (k *knownRecord) loadReply(reply *Reply) error {
	// Everything that was derived from the former record goes with it.
	*k = knownRecord{kind: k.kind, current: true, version: reply.Version, minFence: reply.MinFence}
	if reply.Record == nil {
		return nil
	}
	var err error
	k.record, err = decodeRecord(reply.Record)
	if err == nil {
		err = k.decodeState()
	}
	if err != nil {
		// A record that cannot be read is asked for again by the next transaction.
		k.current = false
		return err
	}
	k.noteSeen(reply)
	return nil
}

// assumeAbsent takes it that there is no record.
func (k *knownRecord) assumeAbsent() {
	k.version, k.record, k.state, k.endedHolds = 0, storedRecord{}, nil, nil
}

// decodeState makes the state of the record, when what was made of it has been decided on in vain.
func (k *knownRecord) decodeState() (err error) {
	k.state = nil
	if k.record.encodedState != nil {
		k.state, err = control.Decode(k.kind, k.record.encodedState)
	}
	return err
}

// confirm notes that the store still has the record. What was decided on it stands, but the state has counted
// refusals that were not stored.
func (k *knownRecord) confirm(reply *Reply) error {
	k.noteFence(reply)
	err := k.decodeState()
	if err == nil {
		k.noteSeen(reply)
	}
	return err
}

// adoptUpdate notes that the store has made an update of the record.
func (k *knownRecord) adoptUpdate(u *recordUpdate, reply *Reply) {
	k.noteFence(reply)
	k.version, k.record, k.state = reply.Version, u.next, u.state
	k.noteSeen(reply)
}

func (k *knownRecord) noteFence(reply *Reply) {
	k.current = true
	if reply.MinFence != 0 {
		k.minFence = reply.MinFence
	}
}

// noteSeen notes when the store had the record, and which holds it has ended.
func (k *knownRecord) noteSeen(reply *Reply) {
	k.seen, k.endedHolds = reply.Now.UnixNano(), nil
	semaphore, ok := k.state.(*control.Semaphore)
	// nil: the backend does not end holds, and the state itself tells their ends.
	if reply.Live == nil || !ok {
		return
	}
	for _, h := range semaphore.Holds() {
		if !reply.Live[h.Fence] {
			k.endedHolds = append(k.endedHolds, h)
		}
	}
}

// holdFences are the fencing tokens of the holds in the record.
func (k *knownRecord) holdFences() map[uint64]bool {
	if k.record.encodedState == nil {
		return nil
	}
	state, _ := control.Decode(k.kind, k.record.encodedState) // it was decoded before
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
