package cas

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// cacheParts is how many locks the names are spread over.
const cacheParts = 64

// A cache remembers the last known records, and is where commands for one key meet. Each part of it has two
// generations: what was used since the young one was begun is in it, and when that is full, the old one is
// forgotten. So a name that is used is kept, without a list of who was used last.
type cache struct {
	most  int // names, in all
	once  sync.Once
	seed  maphash.Seed
	parts [cacheParts]cachePart
}

// A cachePart is some of the names under one lock.
type cachePart struct {
	mu         sync.Mutex
	young, old map[gatehouse.Key]*entry
}

func (c *cache) partOf(key gatehouse.Key) *cachePart {
	c.once.Do(func() { c.seed = maphash.MakeSeed() })
	h := maphash.String(c.seed, key.Name) + uint64(key.Kind)
	return &c.parts[h%cacheParts]
}

// entryFor returns what is known of a name.
func (c *cache) entryFor(key gatehouse.Key) *entry {
	p := c.partOf(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if e := p.young[key]; e != nil {
		return e
	}
	e := p.old[key]
	if e == nil {
		e = &entry{key: key, known: knownRecord{kind: key.Kind}}
	}
	// The young generation is full: it becomes the old one, and what was not used since the last such turn
	// is forgotten.
	if p.young == nil || len(p.young) >= max(1, c.most/cacheParts) {
		p.old, p.young = p.young, make(map[gatehouse.Key]*entry)
	}
	p.young[key] = e
	delete(p.old, key)
	return e
}

// markStale has a name read again before it is decided on; the zero key means all names.
func (c *cache) markStale(key gatehouse.Key) {
	if key != (gatehouse.Key{}) {
		p := c.partOf(key)
		p.mu.Lock()
		e := p.young[key]
		if e == nil {
			// It is not moved to the young generation: a wake is no use of the name.
			e = p.old[key]
		}
		p.mu.Unlock()
		if e != nil {
			e.stale.Store(true)
		}
		return
	}
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		for _, e := range p.young {
			e.stale.Store(true)
		}
		for _, e := range p.old {
			e.stale.Store(true)
		}
		p.mu.Unlock()
	}
}

func (c *cache) countNames() (n int) {
	for i := range c.parts {
		p := &c.parts[i]
		p.mu.Lock()
		n += len(p.young) + len(p.old)
		p.mu.Unlock()
	}
	return n
}

// An entry is what is known of one name.
type entry struct {
	key gatehouse.Key

	calls callQueue

	// The rest is touched only by the call that leads.
	known      knownRecord
	unstored   unstoredRefusals
	contention contention

	stale atomic.Bool // the record has changed since
}

// A contention is how this server fares against others that change the same record.
type contention struct {
	conflicts int           // since its last grant
	roundTrip time.Duration // how long the last answer took
	repliedAt int64         // when that was, by the clock
}

// A knownRecord is what is known of one record, by the last answer of the store.
type knownRecord struct {
	kind       gatehouse.Kind
	current    bool   // it is what the store has, as of that answer; otherwise it was more recently
	version    uint64 // 0 when there is none
	record     storedRecord
	state      control.State  // nil when there is none, or when it has to be decoded from the record
	seen       int64          // when the store had it last, by its time; 0 if it did not
	keptUntil  int64          // when the store forgets it, at the earliest, by its time; 0 if not known
	minFence   uint64         // of that answer
	endedHolds []control.Hold // that the backend has ended, and the record has not
}

// assumeAbsent takes it that there is no record, which most likely is so if none is known.
func (k *knownRecord) assumeAbsent() { *k = knownRecord{kind: k.kind, minFence: k.minFence} }

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
	k.version, k.record, k.state, k.keptUntil = reply.Version, u.next, u.state, u.keptUntil
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
