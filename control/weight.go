package control

import (
	"maps"
	"math/bits"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is about the memory that states take, for a store that bounds it. A weight is an estimate in
// bytes that costs no walk over what a state keeps: there are sums where there is no bound on how much that
// is.

// What parts of states take, as Go's allocator hands memory out. TestWeights compares them with the heap.
const (
	limiterWeight   = 48  // all that limiters share
	severalWeight   = 208 // a more
	limitWeight     = 24
	meterWeight     = 24 // of a meter's place in a list, and its generation
	partsWeight     = 512
	runWeight       = 16
	promiseWeight   = 48
	chunkWeight     = 24
	movesWeight     = 48
	moveWeight      = 32
	calendarWeight  = 16
	semaphoreWeight = 160
	holdWeight      = 48 // and its key
	endWeight       = 32
	holdSlotWeight  = 25 // in the map
	trackedWeight   = 256
	barrierWeight   = 96
	ticketWeight    = 17
	eventWeight     = 80
	watchdogWeight  = 96
	counterWeight   = 80
	mapWeight       = 48
	textWeight      = 8 // beside the bytes, as room comes in steps
)

// leastSlots is how many a map has room for at first.
const leastSlots = 8

// slots is how many a map has room for that had this many entries at most.
func slots(most int) int {
	if most <= leastSlots {
		return leastSlots
	}
	return 1 << bits.Len(uint(most+most/7)) // #nosec G115 -- from 0; a map is filled to 7/8
}

// Weight implements [State].
func (l *limited[M, P]) Weight() int {
	weight := limiterWeight + P(&l.first).weight()
	if l.more != nil {
		weight += l.more.weight()
	}
	return weight
}

func (m *more) weight() int {
	weight := severalWeight + cap(m.limits)*limitWeight + len(m.zone) + cap(m.meters)*meterWeight +
		cap(m.promises)*promiseWeight + m.keys + cap(m.frontier)*meterWeight + cap(m.chunks)*chunkWeight
	for _, meter := range m.meters {
		weight += meter.weight()
	}
	for _, meter := range m.frontier {
		weight += meter.weight()
	}
	return weight
}

func (b *bucket) weight() int { return 32 }

func (g *gcra) weight() int {
	if g.moves == nil {
		return 48
	}
	return 48 + movesWeight + cap(g.moves.list)*moveWeight
}

func (w *fixedWindow) weight() int {
	if w.calendar == nil {
		return 40
	}
	return 40 + calendarWeight
}

func (w *slidingWindow) weight() int {
	if w.fine == nil || !w.fine.own {
		return 48
	}
	return 48 + partsWeight
}

func (l *slidingLog) weight() int { return 80 + int(l.array)*runWeight }

func (p *pace) weight() int { return 96 + int(p.array)*runWeight }

// Weight implements [State].
func (s *Semaphore) Weight() int {
	weight := semaphoreWeight
	if s.holds != nil {
		weight += mapWeight + slots(s.most)*holdSlotWeight + len(s.holds)*holdWeight + s.keys +
			cap(s.ends.Heap)*endWeight
	}
	if s.changed != nil {
		weight += trackedWeight
	}
	return weight
}

// Weight implements [State].
func (b *Barrier) Weight() int {
	if b.arrivals == nil {
		return barrierWeight
	}
	return barrierWeight + mapWeight + slots(b.most)*ticketWeight
}

// Weight implements [State].
func (e *Event) Weight() int {
	if e.message == "" {
		return eventWeight
	}
	return eventWeight + len(e.message) + textWeight
}

// Weight implements [State].
func (w *Watchdog) Weight() int { return watchdogWeight }

// Weight implements [State].
func (c *Counter) Weight() int { return counterWeight }

// Holders is how many holders a semaphore or a lock has; other states have none.
func Holders(s State) int {
	if s, ok := s.(*Semaphore); ok {
		return len(s.holds)
	}
	return 0
}

// Expire ends the holds of a semaphore or a lock whose time is up, as its next step would.
func Expire(now time.Time, s State) {
	if s, ok := s.(*Semaphore); ok {
		s.expire(now.UnixNano())
	}
}

// A Room is how much a state may grow while a queue is served.
type Room struct {
	Bytes   int // of its weight
	Holders int
}

// The errors of turns for which there is no room. They did nothing.
var (
	ErrMemory  = gatehouse.Errorf(gatehouse.CodeExhausted, "there is no memory for what this would keep")
	ErrHolders = gatehouse.Errorf(gatehouse.CodeExhausted, "there are as many holders as there may be")
)

// Serve serves a queue as [Serve] does, but for commands that might make the state grow beyond the room there
// is: their turns get an error. What makes no state grow, such as what a limiter decides under the limits in
// force, or a release, is served however little room there is.
func (r Room) Serve(now time.Time, kind gatehouse.Kind, s State, queue []Turn) State {
	v := service{now: now, kind: kind, room: &r, holders: Holders(s)}
	if s != nil {
		v.weight = s.Weight()
	}
	return v.serve(s, queue)
}

// fits returns an error when there may be no room for what a command would keep.
func (v *service) fits(s State, cmd *gatehouse.Command) error {
	if v.room == nil {
		return nil
	}
	growing, ok := s.(interface {
		growth(now time.Time, cmd *gatehouse.Command) int
	})
	if !ok {
		return nil
	}
	if cmd.Op == gatehouse.OpAcquire {
		Expire(v.now, s) // as its step would, so that what has ended takes no room from it
	}
	more := growing.growth(v.now, cmd)
	switch {
	case more == 0:
		return nil
	case s.Weight()+more-v.weight > v.room.Bytes:
		return ErrMemory
	case cmd.Op == gatehouse.OpAcquire && Holders(s)+1-v.holders > v.room.Holders:
		if _, ok := s.(*Semaphore); ok {
			return ErrHolders
		}
	}
	return nil
}

// growth is the most by which a command may make the weight grow.
func (l *limited[M, P]) growth(now time.Time, cmd *gatehouse.Command) int {
	switch cmd.Op {
	case gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpStats, gatehouse.OpCancel, gatehouse.OpRefund,
		gatehouse.OpReset, gatehouse.OpUndo, gatehouse.OpDelete:
		return 0
	}
	first := P(&l.first)
	keeps := l.keeps(first, cmd)
	if keeps && l.more == nil && cmd.Op == gatehouse.OpAcquire {
		return takeGrowth(first, now.UnixNano(), 0)
	}
	return l.severalGrowth(first, now.UnixNano(), cmd, keeps)
}

// severalGrowth is the growth of a limiter that has several limits or reservations, or may get them.
func (l *limiter) severalGrowth(first meter, now int64, cmd *gatehouse.Command, keeps bool) int {
	more, ahead, places := severalWeight+limitWeight, false, 0
	reserves := cmd.Op != gatehouse.OpAcquire
	if reserves {
		now = noTime // it may be any time
	}
	if l.more != nil {
		more, places = 0, len(l.more.promises)
		ahead = l.more.frontier != nil
	}
	if cmd.Op == gatehouse.OpCharge {
		places += l.pieces(first, cmd, keeps)
	}
	copies := 0 // what copies of the meters weigh in which reservations are taken
	for _, m := range l.meters(first) {
		more += takeGrowth(m, now, places)
		copies += m.weight() + meterWeight
	}
	if l.more != nil {
		for _, m := range l.more.frontier {
			more += takeGrowth(m, now, places)
		}
	}
	if !keeps {
		fresh := len(limitsOf(cmd)) * (limitWeight + meterWeight + freshWeight(first, places))
		more += fresh
		copies += fresh
	}
	if !l.scheduled(first) && (reserves && !ahead || !keeps && places > 0) {
		more += copies + len(l.meters(first))*freshWeight(first, places)
	}
	if reserves {
		more += len(cmd.Holder) + textWeight + (places+1)*promiseWeight
	}
	return more
}

// keeps reports whether the limits in force are those of a command.
func (l *limiter) keeps(first meter, cmd *gatehouse.Command) bool {
	switch {
	case !cmd.HasLimit() && l.created != 0:
		return true
	case l.more != nil && (l.more.meters != nil || l.more.limits != nil):
		return l.more.says(cmd)
	}
	return plain(cmd) && first.has(cmd)
}

// takeGrowth is by how much a meter may grow when something is taken at an instant, and so many reservations
// with it.
func takeGrowth(m meter, at int64, places int) int {
	switch m := m.(type) {
	case *slidingWindow:
		if m.fine != nil && !m.fine.own && (places > 0 || m.current > 0 && at/m.parts().step() > m.start) {
			return partsWeight
		}
	case *slidingLog:
		return m.takeGrowth(places)
	case *pace:
		return m.takeGrowth(places)
	}
	return 0
}

func (l *slidingLog) takeGrowth(places int) int {
	if len(l.runs)+places < cap(l.runs) && !l.lent {
		return 0
	}
	return max(len(l.runs)+places, 1) * runWeight // an array that is full is made twice as large at most
}

// freshWeight is the most that a new meter weighs that is like another, once some reservations are taken.
func freshWeight(m meter, places int) int {
	switch m.(type) {
	case *slidingWindow:
		return 48 + partsWeight
	case *slidingLog, *pace:
		return 96 + 2*(places+1)*runWeight
	}
	return 40 + calendarWeight
}

func (s *Semaphore) growth(now time.Time, cmd *gatehouse.Command) int {
	if cmd.Op != gatehouse.OpAcquire || s.holds[cmd.Holder] != nil {
		return 0
	}
	size := s.size
	switch {
	case s.lock:
		size = 1
	case s.sized && (cmd.Again || cmd.Size == gatehouse.InForce):
	case cmd.Size == gatehouse.InForce:
		size = gatehouse.DefaultSize
	default:
		size = cmd.Size
	}
	due := len(s.ends.Heap) > 0 && s.ends.Heap[0].at <= now.UnixNano()
	if s.held+cmd.Cost > size && !due {
		return 0 // it is refused
	}
	more := holdWeight + len(cmd.Holder) + textWeight
	if s.holds == nil {
		more += mapWeight + slots(1)*holdSlotWeight
	} else {
		more += (slots(max(s.most, len(s.holds)+1)) - slots(s.most)) * holdSlotWeight
	}
	if n := len(s.ends.Heap); cmd.Expires > 0 && !cmd.Leased && n == cap(s.ends.Heap) {
		more += max(n, 1) * endWeight
	}
	return more
}

func (b *Barrier) growth(_ time.Time, cmd *gatehouse.Command) int {
	if cmd.Op != gatehouse.OpWait || cmd.Ticket == 0 || b.open {
		return 0
	}
	if b.arrivals == nil {
		return mapWeight + slots(1)*ticketWeight
	}
	return (slots(max(b.most, len(b.arrivals)+1)) - slots(b.most)) * ticketWeight
}

func (e *Event) growth(_ time.Time, cmd *gatehouse.Command) int {
	if cmd.Op != gatehouse.OpSend {
		return 0
	}
	return max(0, len(cmd.Message)+textWeight-len(e.message))
}

// trimmed returns a map without the room that it does not need any more: a Go map never gets smaller. most is
// how many entries it had at most, and is what it has when the map is replaced.
func trimmed[K comparable, V any](m map[K]V, most *int) map[K]V {
	if *most <= 8*leastSlots || len(m) > *most/8 {
		return m
	}
	small := make(map[K]V, len(m))
	maps.Copy(small, m)
	*most = len(m)
	return small
}
