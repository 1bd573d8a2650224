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
	limiterWeight     = 48  // all that limiters share
	extraWeight       = 240 // a more
	meterWeight       = 16  // of a meter's place in a list
	generationsWeight = 64
	partsWeight       = 512
	runWeight         = 16
	reservationWeight = 48
	chunkWeight       = 24
	undoHistoryWeight = 48
	undoRecordWeight  = 32
	calendarWeight    = 16
	semaphoreWeight   = 208
	holdWeight        = 96 // without the name of its holder
	placeWeight       = 8
	holdSlotWeight    = 25 // in the map
	trackedWeight     = 256
	barrierWeight     = 96
	ticketWeight      = 17
	eventWeight       = 80
	watchdogWeight    = 96
	counterWeight     = 80
	shareListWeight   = 64
	shareWeight       = 112
	takeWeight        = 48
	windowResetWeight = 32
	debtSpanWeight    = 16
	recordWeight      = 288 // of a grant
	memberWeight      = 168 // with the instant of its settle
	limitTextWeight   = 17  // of a limit in a list
	mapWeight         = 48
	textWeight        = 8 // beside the bytes, as room comes in steps
)

// leastSlots is how many a map has room for at first.
const leastSlots = 8

// mapSlots is how many a map has room for that had this many entries at most.
func mapSlots(most int) int {
	// A small map has one group of slots.
	if most <= leastSlots {
		return leastSlots
	}
	return 1 << bits.Len(uint(most+most/7)) // from 0; a map is filled to 7/8
}

// Weight implements [State].
func (l *limiterState[M, P]) Weight() int {
	weight := limiterWeight + P(&l.meter).memoryWeight()
	if l.extra != nil {
		weight += l.extra.memoryWeight()
	}
	return weight
}

func (m *limiterExtra) memoryWeight() int {
	// By capacity and not by length, since that is what is allocated.
	weight := extraWeight + len(m.rule.Zone) + cap(m.meters)*meterWeight +
		cap(m.reservations)*reservationWeight + m.holderBytes + cap(m.projected)*meterWeight +
		cap(m.chunks)*chunkWeight + m.closed.memoryWeight() + m.shares.memoryWeight() +
		m.reports.memoryWeight()
	if m.meterSince != nil {
		weight += generationsWeight
	}
	for _, meter := range m.meters {
		weight += meter.memoryWeight()
	}
	for _, meter := range m.projected {
		weight += meter.memoryWeight()
	}
	return weight
}

func (b *tokenBucketMeter) memoryWeight() int { return 32 }

func (g *gcraMeter) memoryWeight() int {
	if g.undos == nil {
		return 48
	}
	return 48 + undoHistoryWeight + cap(g.undos.list)*undoRecordWeight
}

func (w *fixedWindowMeter) memoryWeight() int {
	if w.calendar == nil {
		return 40
	}
	return 40 + calendarWeight
}

func (w *slidingWindowMeter) memoryWeight() int {
	if w.fine == nil || !w.fine.own {
		return 48
	}
	return 48 + partsWeight
}

func (l *slidingLogMeter) memoryWeight() int { return 80 + int(l.arrayLength)*runWeight }

func (p *paceMeter) memoryWeight() int { return 96 + int(p.arrayLength)*runWeight }

// Weight implements [State].
func (s *Semaphore) Weight() int {
	weight := semaphoreWeight + s.managed.memoryWeight()
	weight += cap(s.holds.heap)*placeWeight + len(s.holds.heap)*holdWeight + s.holderBytes
	// By the most holds there have been, as a map does not shrink.
	if s.holds.byHolder != nil {
		weight += mapWeight + mapSlots(s.holds.peak)*holdSlotWeight
	}
	if s.changed != nil {
		weight += trackedWeight
	}
	if s.spare != nil {
		weight += holdWeight
	}
	return weight
}

// Weight implements [State].
func (b *Barrier) Weight() int {
	if b.arrivals == nil {
		return barrierWeight
	}
	return barrierWeight + mapWeight + mapSlots(b.peakArrivals)*ticketWeight
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
		return len(s.holds.heap)
	}
	return 0
}

// Expire ends the holds of a semaphore or a lock whose time is up, as its next step would.
func Expire(now time.Time, s State) {
	if s, ok := s.(*Semaphore); ok {
		s.expireHolds(now.UnixNano())
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

// checkRoom returns an error when there may be no room for what a command would keep.
func (v *queueServer) checkRoom(s State, turn *Turn) error {
	if turn.Op == gatehouse.OpAcquire {
		Expire(v.now, s) // as its step would, so that what has ended takes no room from it
	}
	// The growth is an upper bound, so that no command can pass the limit. One that keeps nothing is served
	// in any case.
	more := memoryGrowth(v.now, s, turn)
	switch {
	case more == 0:
		return nil
	case s.Weight()+more-v.weight > v.room.Bytes:
		return ErrMemory
	case turn.Op == gatehouse.OpAcquire && Holders(s)+1-v.holders > v.room.Holders:
		if _, ok := s.(*Semaphore); ok {
			return ErrHolders
		}
	}
	return nil
}

// memoryGrowth is the most by which a command may make the weight of a state grow.
func memoryGrowth(now time.Time, s State, turn *Turn) int {
	growing, ok := s.(interface {
		memoryGrowth(now time.Time, turn *Turn) int
	})
	if !ok {
		return 0
	}
	return growing.memoryGrowth(now, turn)
}

// memoryGrowth is the most by which a command may make the weight grow.
func (l *limiterState[M, P]) memoryGrowth(now time.Time, turn *Turn) int {
	switch turn.Op {
	case gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpStats, gatehouse.OpCancel, gatehouse.OpRefund,
		gatehouse.OpReset, gatehouse.OpUndo, gatehouse.OpDelete, gatehouse.OpOpen, gatehouse.OpBump:
		return 0
	}
	step := l.stepAt(now.UnixNano(), turn)
	if turn.Op == gatehouse.OpClose {
		return closingGrowth(turn.Command) + step.extraGrowth(l.created != 0)
	}
	if turn.Grant != nil && turn.Grant.ID != "" {
		return step.shareGrowth()
	}
	keeps := step.keepsLimits(turn.Command)
	// The common case: one limit that stays as it is.
	if keeps && l.extra == nil && turn.Op == gatehouse.OpAcquire {
		return takeGrowth(step.first, step.now, 0)
	}
	return step.extraGrowth(keeps)
}

// extraGrowth is the growth of a limiter that has several limits or reservations, or may get them.
func (l *limiterStep) extraGrowth(keeps bool) int {
	// This adds up the most that each part may grow: the lists, the meters, the projection.
	more, ahead, places := extraWeight+len(l.turn.Zone), false, 0
	at, reserves := l.now, l.turn.Op != gatehouse.OpAcquire // a settle may leave a debt ahead
	if reserves {
		at = noTime // it may be any time
	}
	if l.extra != nil {
		more, places = 0, len(l.extra.reservations)
		ahead = l.extra.projected != nil
	}
	switch l.turn.Op {
	case gatehouse.OpCharge, gatehouse.OpSettle, gatehouse.OpRelease:
		places += l.maxPieces(l.turn.Command, keeps)
	}
	copies := 0 // what copies of the meters weigh in which reservations are taken
	for _, m := range l.activeMeters() {
		more += takeGrowth(m, at, places)
		copies += m.memoryWeight() + meterWeight
	}
	if l.extra != nil {
		for _, m := range l.extra.projected {
			more += takeGrowth(m, at, places)
		}
	}
	if !keeps {
		// New meters are made for the limits, and the old ones exist until the change is done.
		fresh := limitCount(&l.turn.Rule)*(meterWeight+newMeterWeight(l.first, places)) + generationsWeight
		more += fresh
		copies += fresh
	}
	if !l.allScheduling() && (reserves && !ahead || !keeps && places > 0) {
		more += copies + len(l.activeMeters())*newMeterWeight(l.first, places)
	}
	more += l.reports().reportGrowth(l.turn.Command)
	if reserves {
		more += len(l.turn.Holder) + textWeight + (places+1)*reservationWeight
	}
	return more
}

// keepsLimits reports whether the limits in force are those of a command.
func (l *limiterStep) keepsLimits(cmd *gatehouse.Command) bool {
	switch {
	case !cmd.HasLimit() && l.created != 0:
		return true
	case l.extra.knowsRule():
		return l.extra.hasRule(canonicalRule(cmd))
	}
	return hasPlainLimit(&cmd.Rule) && l.first.inForce(cmd.Rule) == cmd.Rule
}

// takeGrowth is by how much a meter may grow when something is taken at an instant, and so many reservations
// with it.
func takeGrowth(m limitMeter, at int64, places int) int {
	switch m := m.(type) {
	case *slidingWindowMeter:
		if m.fine == nil || m.fine.own {
			return 0
		}
		// Counts of its own come with the first take in a second part. Reservations start in later parts.
		if places > 0 || m.current > 0 && at/m.asFine().partLength() > m.start {
			return partsWeight
		}
	case *slidingLogMeter:
		return m.takeGrowth(places)
	case *paceMeter:
		return m.takeGrowth(places)
	}
	return 0
}

func (l *slidingLogMeter) takeGrowth(places int) int {
	needed := max(len(l.runs)+places, 1)
	switch {
	case l.borrowed:
		return needed * runWeight
	// An array that is full is replaced by one twice as large as what is in it, which is no more than the
	// present one if its older half has been passed.
	case needed < cap(l.runs) || 2*needed <= int(l.arrayLength):
		return 0
	}
	return needed * runWeight
}

// newMeterWeight is the most that a new meter weighs that is like another, once some reservations are taken.
func newMeterWeight(m limitMeter, places int) int {
	// What a meter of this type weighs once its array or its parts exist.
	switch m.(type) {
	case *slidingWindowMeter:
		return 48 + partsWeight
	case *slidingLogMeter, *paceMeter:
		return 96 + 2*(places+1)*runWeight
	}
	return 40 + calendarWeight
}

func (s *Semaphore) memoryGrowth(now time.Time, turn *Turn) int {
	if turn.Op == gatehouse.OpEvict || turn.Op == gatehouse.OpClose {
		return s.managed.growth(turn.Command)
	}
	if turn.Op != gatehouse.OpAcquire || s.holds.find(turn.Holder) != nil {
		return 0
	}
	size, _ := s.sizeAfter(turn)
	next := s.holds.next()
	if s.heldCost+turn.Cost > size && (next == nil || next.until > now.UnixNano()) {
		return 0 // it is refused
	}
	more := s.holds.growth() + len(turn.Holder) + textWeight + ownerWeight(turn.Owner)
	if s.spare == nil {
		return more + holdWeight
	}
	return max(0, more-s.spare.nameWeight()) // which goes
}

// growth is how much one more hold may make the list grow, beside the hold.
func (l *holdList) growth() int {
	more, n := 0, len(l.heap)+1
	if n > cap(l.heap) {
		// append doubles it at most, and the allocator rounds that up by an eighth at most.
		more = (n + n/8) * placeWeight
	}
	switch {
	case l.byHolder != nil:
		more += (mapSlots(max(l.peak, n)) - mapSlots(l.peak)) * holdSlotWeight
	case n > fewHolds:
		more += mapWeight + mapSlots(n)*holdSlotWeight
	}
	return more
}

func (b *Barrier) memoryGrowth(_ time.Time, turn *Turn) int {
	if turn.Op != gatehouse.OpWait || turn.Ticket == 0 || b.open {
		return 0
	}
	if b.arrivals == nil {
		return mapWeight + mapSlots(1)*ticketWeight
	}
	return (mapSlots(max(b.peakArrivals, len(b.arrivals)+1)) - mapSlots(b.peakArrivals)) * ticketWeight
}

func (e *Event) memoryGrowth(_ time.Time, turn *Turn) int {
	if turn.Op != gatehouse.OpSend {
		return 0
	}
	return max(0, len(turn.Message)+textWeight-len(e.message))
}

// trimMap returns a map without the room that it does not need any more: a Go map never gets smaller. most is
// how many entries it had at most, and is what it has when the map is replaced.
func trimMap[K comparable, V any](m map[K]V, most *int) map[K]V {
	// A copy is made only when it frees much, so that its cost is spread over as many deletes.
	if *most <= 8*leastSlots || len(m) > *most/8 {
		return m
	}
	small := make(map[K]V, len(m))
	maps.Copy(small, m)
	*most = len(m)
	return small
}
