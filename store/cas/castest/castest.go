// Package castest is a store that many servers share, in memory, in which everything goes wrong that can:
// it is slow, requests and answers are lost, requests are carried out after their callers gave up, the clock
// is set, data is lost. All of it comes from one seed. It is meant for virtual time (testing/synctest).
package castest

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// Faults say what goes wrong. The zero value is a store that answers at once and is never wrong. All but
// Latency are chances, from 0 to 1.
type Faults struct {
	// Latency is the longest time that a request, an answer or a message takes.
	Latency time.Duration
	// Unsent requests are known not to have been sent.
	Unsent float64
	// LostRequest and LostAnswer are lost on the way; Late requests are carried out after up to three
	// seconds, when their callers have given up.
	LostRequest, LostAnswer, Late float64
	// Silent losses are not noticed by the one who asked, until its time is up.
	Silent float64
	// Twice is a request that is carried out twice, and answered as the second one.
	Twice float64
	// LostWake and TwiceWoken happen to messages.
	LostWake, TwiceWoken float64
}

// A Store is the shared store. Make one with New, and a Server for each server that shares it.
type Store struct {
	// Changed is called with every new record, under the lock; nil for one that is lost. It may be nil.
	Changed func(key gatehouse.Key, record []byte)

	expiresHolds bool // it is like etcd

	mu       sync.Mutex
	rand     *rand.Rand
	faults   Faults
	start    time.Time
	offset   time.Duration // of its clock
	revision uint64
	objects  map[gatehouse.Key]storedObject
	history  []pastChange
	paused   bool
	backlog  []func() // what is to be done when it goes on
	servers  []*Server
	log      []string
}

// A storedObject is a record and the holds that the store ends.
type storedObject struct {
	record  []byte
	version uint64
	until   time.Time            // when it is forgotten, by the store's clock; zero is never
	holds   map[uint64]time.Time // when each ends; zero is never
	claim   recordClaim
}

// A recordClaim bars the changes of all servers but one.
type recordClaim struct {
	server uint32
	until  time.Time // by the store's clock
}

// remainingFor is for how much longer a claim bars a change.
func (c recordClaim) remainingFor(now time.Time, change *cas.RecordChange) time.Duration {
	if change.Read || change.Claim > 0 && change.Server == c.server {
		return 0
	}
	rest := c.until.Sub(now)
	// Like Redis: the clock was set back since the claim was made.
	if rest > cas.MaxClaim {
		return 0
	}
	return max(0, rest)
}

// A pastChange is what was there before a change.
type pastChange struct {
	at  time.Time
	key gatehouse.Key
	old storedObject
}

// New returns an empty store. One with leases is like etcd: it has no clock, ends holds, and its revision
// makes the fencing tokens. Any other is like Redis.
func New(seed uint64, expiresHolds bool) *Store {
	return &Store{
		expiresHolds: expiresHolds,
		rand:         rand.New(rand.NewPCG(seed, 0)), // it is to be the same each time
		start:        time.Now(), objects: make(map[gatehouse.Key]storedObject),
	}
}

// Set makes faults happen from now on.
func (s *Store) Set(faults Faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine("faults are %+v", faults)
	s.faults = faults
}

// Jump sets the store's clock.
func (s *Store) Jump(by time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine("the clock is set by %s", by)
	s.offset += by
}

// Pause has everything wait until Resume. Requests are carried out then, whether their callers still wait
// or not.
func (s *Store) Pause() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine("paused")
	s.paused = true
}

// Resume ends a pause.
func (s *Store) Resume() {
	s.mu.Lock()
	s.logLine("resumed")
	// Taken under the lock and run without it, as each of them locks.
	backlog := s.backlog
	s.paused, s.backlog = false, nil
	s.mu.Unlock()
	for _, work := range backlog {
		work()
	}
}

// Restart has the store forget what was changed in the last time, as a replica that had not heard of it
// would have; gatehouse.Forever forgets everything. All servers are woken, as they may have missed
// something.
func (s *Store) Restart(lose time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine("restarted, the last %s are lost", lose)
	for i, p := range slices.Backward(s.history) {
		// The history is undone from its end, up to the age that survives.
		if lose != gatehouse.Forever && time.Since(p.at) > lose {
			break
		}
		s.putObject(p.key, p.old)
		s.history = s.history[:i]
	}
	// The connections are lost with the restart.
	for _, b := range s.servers {
		s.sendWake(b, gatehouse.Key{})
	}
}

// putObject writes an object.
func (s *Store) putObject(key gatehouse.Key, o storedObject) {
	if o.record == nil {
		delete(s.objects, key)
	} else {
		s.objects[key] = o
	}
	// Under the lock, so that the observer sees the records in their order.
	if s.Changed != nil {
		s.Changed(key, o.record)
	}
}

// Records are all that is stored.
func (s *Store) Records() map[gatehouse.Key][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[gatehouse.Key][]byte)
	for key := range s.objects {
		if o := s.readObject(key); o.record != nil {
			all[key] = o.record
		}
	}
	return all
}

// Live are the fencing tokens of the holds under a name that have not ended, of a store with leases.
func (s *Store) Live(key gatehouse.Key) map[uint64]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readObject(key).liveFences()
}

// Now is the time by the store's clock.
func (s *Store) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now()
}

func (s *Store) now() time.Time { return time.Now().Add(s.offset) }

// Note writes a line of the log.
func (s *Store) Note(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine(format, args...)
}

func (s *Store) logLine(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf("%12s  ", time.Since(s.start))+fmt.Sprintf(format, args...))
}

// Log is what happened, a line each.
func (s *Store) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.log, "\n")
}

// readObject returns what is there, without what has ended.
func (s *Store) readObject(key gatehouse.Key) storedObject {
	o, there := s.objects[key]
	if !there {
		return storedObject{}
	}
	if !o.until.IsZero() && !s.now().Before(o.until) {
		// Expired by the store's clock, which tests set; the holds end by real time, as leases do.
		s.putObject(key, storedObject{})
		return storedObject{}
	}
	o.holds = maps.Clone(o.holds)
	maps.DeleteFunc(o.holds, func(_ uint64, until time.Time) bool {
		return !until.IsZero() && !time.Now().Before(until)
	})
	s.objects[key] = o
	return o
}

func (o storedObject) liveFences() map[uint64]bool {
	live := make(map[uint64]bool)
	for fence := range o.holds {
		live[fence] = true
	}
	return live
}

// applyChange does what a server asks for.
func (s *Store) applyChange(b *Server, key gatehouse.Key, c *cas.RecordChange) cas.Reply {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Compare and set under one lock: this is the promise that every backend makes.
	o := s.readObject(key)
	r := cas.Reply{Swapped: o.version == c.If, Now: s.now(), Claimed: o.claim.remainingFor(s.now(), c)}
	r.Swapped = r.Swapped && r.Claimed == 0
	switch {
	case r.Swapped && !c.Read:
		o = s.replaceRecord(key, o, c)
	case !r.Swapped:
		r.Record = slices.Clone(o.record)
		// A claim is noted together with the conflict, and only where no other claim bars it.
		if o.record != nil && r.Claimed == 0 && !c.Read && c.Claim > 0 {
			o.claim = recordClaim{c.Server, s.now().Add(c.Claim)}
			s.objects[key] = o
		}
	}
	s.logLine("%s: if %x read %t: %t, now %x, nonce %x", key, c.If, c.Read, r.Swapped, o.version, c.Nonce)
	answer := s.replyTo(b, o)
	answer.Swapped, answer.Record, answer.Claimed = r.Swapped, r.Record, r.Claimed
	return answer
}

// replyTo is what there is, for the answer to a change.
func (s *Store) replyTo(b *Server, o storedObject) cas.Reply {
	r := cas.Reply{Now: s.now(), Version: o.version}
	if s.expiresHolds {
		r.Now = r.Now.Add(b.skew)
		// Like etcd: the time is the server's own, and the revision makes the fencing tokens.
		r.MinFence, r.Live = (s.revision+1)<<16, o.liveFences()
	}
	return r
}

// replaceRecord makes a change.
func (s *Store) replaceRecord(key gatehouse.Key, o storedObject, c *cas.RecordChange) storedObject {
	// Before the change, for Restart.
	s.history = append(s.history, pastChange{time.Now(), key, o})
	s.revision++
	next := storedObject{record: c.Next, version: s.revision, holds: maps.Clone(o.holds)}
	// Like Redis, which has no versions: the nonce stands for one.
	if !s.expiresHolds {
		next.version = c.Nonce
	}
	// A deleted record has version 0, which the next change compares.
	if c.Next == nil {
		next = storedObject{}
	}
	switch {
	case c.Kept:
		next.until = o.until
	case c.Keep != gatehouse.Forever:
		next.until = s.now().Add(c.Keep)
	}
	if s.expiresHolds && c.Next != nil {
		s.updateHolds(key, &next, c)
	}
	s.putObject(key, next)
	// Only the servers that the change names are woken.
	for _, number := range c.Wake {
		for _, b := range s.servers {
			if b.number == number {
				s.sendWake(b, key)
			}
		}
	}
	return next
}

// updateHolds begins and ends holds.
func (s *Store) updateHolds(key gatehouse.Key, o *storedObject, c *cas.RecordChange) {
	if o.holds == nil {
		o.holds = make(map[uint64]time.Time)
	}
	for _, h := range c.End {
		delete(o.holds, h.Fence)
	}
	for _, h := range c.Begin {
		// A renewed hold keeps its token; its former end is replaced.
		o.holds[h.Fence] = time.Time{}
		// A hold without an end stays until a change ends it.
		if h.Expires > 0 {
			o.holds[h.Fence] = time.Now().Add(h.Expires)
			time.AfterFunc(h.Expires, func() { s.onHoldEnded(key) })
		}
	}
}

// onHoldEnded tells all servers that a hold may have ended.
func (s *Store) onHoldEnded(key gatehouse.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// An expired lease is a change of its own in etcd.
	s.revision++
	for _, b := range s.servers {
		s.sendWake(b, key)
	}
}

// sendWake sends a message, if it is not lost.
func (s *Store) sendWake(b *Server, key gatehouse.Key) {
	if s.chance(s.faults.LostWake) || b.cut {
		s.logLine("%s: a message to server %x is lost", key, b.number)
		return
	}
	time.AfterFunc(s.latency(), func() { b.wakeUp(key) })
	// The second message has a latency of its own, so it may come first.
	if s.chance(s.faults.TwiceWoken) {
		time.AfterFunc(s.latency(), func() { b.wakeUp(key) })
	}
}

func (s *Store) chance(p float64) bool { return p > 0 && s.rand.Float64() < p }

func (s *Store) latency() time.Duration {
	if s.faults.Latency == 0 {
		return 0
	}
	return time.Duration(s.rand.Int64N(int64(s.faults.Latency)))
}

// recordsAfter are those of one kind after the given one, in order.
func (s *Store) recordsAfter(kind gatehouse.Kind, after string) (names []string, records [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.objects {
		if key.Kind == kind && key.Name > after {
			names = append(names, key.Name)
		}
	}
	slices.SortFunc(names, cmp.Compare)
	for _, name := range names {
		records = append(records, s.readObject(gatehouse.Key{Kind: kind, Name: name}).record)
	}
	return names, records
}
