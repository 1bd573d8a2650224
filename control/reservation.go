package control

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A reservation is n tokens that are taken at an instant ahead.
type reservation struct {
	at, n   int64
	number  uint64 // unique under this name
	holder  string // "" when it cannot be cancelled
	answers int32  // how many answers named it, at most maxAnswers
	isDebt  bool   // it is a piece of the debt, and no reservation
}

// maxAnswers is the most answers that are counted. What was answered as often is not undone any more.
const maxAnswers = math.MaxInt32

// addAnswer counts one answer more.
func addAnswer(answers int32) int32 {
	if answers == maxAnswers {
		return answers
	}
	return answers + 1
}

// maxReservations is the most places that lie ahead at one name: 48 bytes each, and the holder. A change of
// limits takes all of them again. Of those that a schedule keeps without a holder there is no limit, as
// they cost nothing here.
const maxReservations = 1000

// reserveTokens makes a reservation at the earliest instant. Reservations are made in order: none is before
// an earlier one, and while one lies ahead nothing is taken before it.
func (l *limiterStep) reserveTokens() {
	if !l.applyLimits() {
		return
	}
	start := l.now
	var number uint64
	// The same holder asks again, perhaps because the first answer was lost. It gets the same reservation,
	// and each answer has to be undone separately.
	if i := l.findByHolder(l.turn.Holder); i >= 0 {
		r := &l.extra.reservations[i]
		r.answers = addAnswer(r.answers)
		start, number = r.at, r.number
	} else {
		if !l.checkAvailable() {
			// A closed limiter promises nothing.
			if l.extra.closing() != nil {
				l.countTimedOut(1)
				return
			}
			// There is no room now, or others come first: take the earliest later instant.
			start = l.reservationStart(l.turn.Cost)
		}
		if !l.mayReserve(start, l.turn, l.d) {
			return
		}
		l.countPassed(l.d.At, l.turn)
		r := reservation{at: start, n: l.turn.Cost, holder: l.turn.Holder, answers: 1}
		number = l.addReservation(r)
		l.noteReportedTake(start, r.n)
	}
	// checkAvailable has filled d as a refusal, of which nothing must be left.
	*l.d = gatehouse.Decision{At: l.d.At, Reservation: number}
	l.fillGranted()
	l.d.Delay = time.Duration(ceilMillis(start - l.now)) // it may be the second answer about a place
}

// mayReserve reports whether a reservation may be made. d is the refusal of checkAvailable; a conflict is
// for what never fits.
func (l *limiterCore) mayReserve(start int64, turn *Turn, d *gatehouse.Decision) bool {
	switch {
	case d.Outcome != gatehouse.Refused:
		return false
	case turn.Ahead > 0 || start-d.At.UnixNano() > int64(gatehouse.MaxDuration), start > latest:
		// A reserve cannot wait in line, and a time beyond 100 years cannot be answered.
		l.countTimedOut(1)
		return false
	case turn.MaxDelay > 0 && start-d.At.UnixNano() > int64(turn.MaxDelay):
		l.countTimedOut(1)
		// The caller learns the delay it would have got, and when it will be short enough.
		d.Delay = time.Duration(start - d.At.UnixNano())
		d.RetryAfter = d.Delay - turn.MaxDelay
		return false
	case len(l.extra.placesAhead()) >= maxReservations:
		*d = failedWith(d.At, gatehouse.Exhausted,
			fmt.Sprintf("has %d reservations ahead already, the most it keeps", maxReservations))
		return false
	}
	return true
}

// reservationStart is the earliest instant that n may be promised, so that it is whole milliseconds away:
// what is promised is what is told.
func (l *limiterStep) reservationStart(n int64) int64 {
	at := l.earliestFit(n)
	for _, m := range l.projectedMeters() {
		if s, ok := m.(schedulingMeter); ok {
			at = max(at, s.earliestReservation(l.now, n))
		}
	}
	return addSaturating(l.now, ceilMillis(at-l.now))
}

// ceilMillis rounds a wait up.
func ceilMillis(d int64) int64 {
	const ms = int64(time.Millisecond)
	return addSaturating(d, (ms-d%ms)%ms)
}

// addReservation takes a reservation, and returns the number that it gets if it is kept in the list.
func (l *limiterStep) addReservation(r reservation) (number uint64) {
	scheduled := l.allScheduling()
	if scheduled || r.at <= l.now {
		for _, m := range l.activeMeters() {
			m.takeTokens(l.now, r.at, r.n)
		}
	}
	// It starts at once, or the schedule keeps its start and nothing can cancel it: no list entry is
	// needed.
	if r.at <= l.now || scheduled && r.holder == "" {
		return 0
	}
	l.ensureRuleNoted(l.turn.Command)
	r.number = l.nextReservationNumber()
	// The list stays in order, since no reservation is before the last one.
	l.extra.reservations = append(l.extra.reservations, r)
	l.extra.holderBytes += r.holderWeight()
	switch {
	case scheduled:
	case l.extra.projected == nil:
		// It is the first that the meters cannot keep: the projection is built with it.
		l.retakeReservations()
	default:
		l.extra.takeReservations(l.extra.projected, l.now, []reservation{r})
	}
	return r.number
}

// nextReservationNumber is the number of a new reservation. It is made of the time as fencing tokens are,
// so that it differs from those before a delete as well.
func (l *limiterStep) nextReservationNumber() uint64 {
	// It is never below the time, even if MinFence is: dropUnusedExtra counts on that.
	least := uint64(l.now) // the present is after 1970
	if l.turn != nil {
		least = max(least, l.turn.MinFence)
	}
	l.extra.lastNumber = max(l.extra.lastNumber+1, least)
	return l.extra.lastNumber
}

// allScheduling reports whether the meters keep what lies ahead by themselves.
func (l *limiterStep) allScheduling() bool {
	for _, m := range l.activeMeters() {
		if _, ok := m.(schedulingMeter); !ok {
			return false
		}
	}
	return true
}

// withdrawReservations takes the reservations out of the meters, before those change.
func (l *limiterStep) withdrawReservations() {
	m := l.extra
	// Without a projection the reservations lie in the meters themselves.
	if m.projected == nil {
		removeReservations(l.activeMeters(), m.reservations)
	}
	m.projected = nil
}

// retakeReservations takes the places that lie ahead in the meters, or in copies of those that cannot keep
// them.
func (l *limiterStep) retakeReservations() {
	m := l.extra
	if len(m.reservations) == 0 {
		return
	}
	meters := l.activeMeters()
	if !l.allScheduling() {
		// These meters count windows and cannot hold a start that lies ahead. Copies are moved ahead
		// instead, and the meters stay at the present.
		m.projected = copyMeters(meters, limitMeter.clone)
		meters = m.projected
	}
	m.takeReservations(meters, l.now, m.reservations)
}

// takeReservations takes some places in some meters. m may be nil.
func (m *limiterExtra) takeReservations(meters []limitMeter, now int64, some []reservation) {
	for _, meter := range meters {
		for i := range some {
			m.takeReservation(meter, now, &some[i])
		}
	}
}

// removeReservations gives some places back in meters that keep what lies ahead by themselves.
func removeReservations(meters []limitMeter, some []reservation) {
	for _, meter := range meters {
		for _, r := range some {
			meter.(schedulingMeter).removeStart(r.at, r.n)
		}
	}
}

// rebuildProjection makes the projected meters again, after the meters or the reservations have changed.
func (l *limiterStep) rebuildProjection() {
	if l.extra != nil && l.extra.projected != nil {
		l.extra.projected = nil
		l.retakeReservations()
	}
}

// startDueReservations counts the reservations whose time has come as taken.
func (l *limiterStep) startDueReservations() {
	m := l.extra
	passed := 0
	// They are in the order of their instants, so that those that are due come first.
	for passed < len(m.reservations) && m.reservations[passed].at <= l.now {
		passed++
	}
	if passed == 0 {
		return
	}
	for i := range m.reservations[:passed] {
		l.startReservation(&m.reservations[i])
	}
	m.dropReservations(0, passed)
	l.dropUnusedExtra(l.now)
}

// startReservation counts one as taken.
func (l *limiterStep) startReservation(r *reservation) {
	// Scheduling meters hold the start already; the others take each at its own instant.
	if l.extra.projected != nil {
		for _, meter := range l.activeMeters() {
			l.extra.takeReservation(meter, r.at, r)
		}
	}
	if r.isDebt && l.extra.shares != nil {
		l.noteRepaid(r)
	}
}

// dropReservations drops those from one place in the list to before another.
func (m *limiterExtra) dropReservations(from, to int) {
	for i := range m.reservations[from:to] {
		m.holderBytes -= m.reservations[from+i].holderWeight()
	}
	m.reservations = slices.Delete(m.reservations, from, to)
}

// holderWeight is the weight of the holder.
func (r *reservation) holderWeight() int {
	if r.holder == "" {
		return 0
	}
	return len(r.holder) + textWeight
}

// dropUnusedExtra drops what is not needed without reservations. The last number is not once the time is past
// it, as the next is made of the time.
func (l *limiterCore) dropUnusedExtra(now int64) {
	m := l.extra
	if len(m.reservations) > 0 {
		return
	}
	m.reservations, m.projected = nil, nil
	// The next number is at least the time, so a lower one need not be remembered.
	if m.lastNumber < uint64(now) { // the present is after 1970
		m.lastNumber = 0
	}
	if m.needsEncoding() {
		return
	}
	// A limiter with one limit and no history is small again, which most are. Its meter has the limit, and a
	// copy that is read would not know the rule.
	m.rule = gatehouse.Rule{}
	if m.chunks == nil && m.shares == nil && m.reports == nil {
		l.extra = nil
	}
}

// cancelReservation gives back a reservation that lies ahead. Those behind it stay where they are.
func (l *limiterStep) cancelReservation() {
	i := l.findByHolder(l.turn.Holder)
	if i < 0 {
		l.failWith(gatehouse.Conflict, "has no reservation of this key that lies ahead")
		return
	}
	// A cancel is the holder's own word: it counts for all answers, not just one.
	l.extra.reservations[i].answers = 1
	l.undoReservation(i)
	l.fillGranted()
}

// undoReservation takes back one answer that named a reservation, and with the last of them the reservation.
func (l *limiterStep) undoReservation(i int) {
	r := &l.extra.reservations[i]
	// The count has stopped there, so it is unknown how many answers are left.
	if r.answers == maxAnswers {
		return
	}
	r.answers--
	// Another answer told of this reservation, and its receiver may rely on it.
	if r.answers > 0 {
		return
	}
	if l.extra.projected == nil {
		removeReservations(l.activeMeters(), l.extra.reservations[i:i+1])
	}
	l.extra.dropReservations(i, i+1)
	// Copies of meters cannot forget one take, so the projection is built from the start.
	l.rebuildProjection()
	l.passed--
	l.dropUnusedExtra(l.now)
}

// placesAhead are the reservations that lie ahead. m may be nil.
func (m *limiterExtra) placesAhead() []reservation {
	if m == nil {
		return nil
	}
	return m.reservations
}

// findByHolder is the index of a holder's reservation, -1 when it has none.
func (l *limiterCore) findByHolder(holder string) int {
	if holder == "" {
		return -1
	}
	return slices.IndexFunc(l.extra.placesAhead(), func(r reservation) bool { return r.holder == holder })
}

// findByNumber is the index of the reservation of a number, -1 when there is none.
func (l *limiterCore) findByNumber(number uint64) int {
	return slices.IndexFunc(l.extra.placesAhead(), func(r reservation) bool { return r.number == number })
}

// reservedAhead is how many start after an instant.
func (l *limiterStep) reservedAhead() int64 {
	// A schedule knows all starts ahead, even those without a holder, which are not in the list.
	if s, ok := l.activeMeters()[0].(schedulingMeter); ok && l.allScheduling() {
		return s.reservedAfter(l.now) - l.totalDebt()
	}
	ahead := int64(0)
	for _, r := range l.extra.placesAhead() {
		ahead += r.n
	}
	return ahead - l.totalDebt()
}

func (r *reservation) codeFields(c *stateCodec) {
	c.codeInstant(&r.at)
	c.codeSize(&r.n)
	c.codeString(&r.holder)
	if c.version > 1 {
		c.codeUint64(&r.number)
	}
	// Later versions add fields at the end of each reservation.
	c.codeAnswers(&r.answers)
	if c.version > 2 {
		c.codeBool(&r.isDebt)
	}
	if c.reading && (r.n == 0 || r.answers == 0 || r.at > latest || c.version > 1 && r.number == 0) {
		c.failDecoding("reservation of %d at %d for %d", r.n, r.at, r.answers)
	}
}

// latest is the last instant of a reservation: windows of the calendar around it end before noTime.
const latest = noTime - 100*int64(24*time.Hour)

// earliestStart is the instant before which nothing new may start: reservations go first, and in a pause
// nothing does.
func (l *limiterStep) earliestStart() int64 {
	if l.extra == nil {
		return l.now
	}
	at := l.earliestUnpaused()
	if t := l.extra.reports; t != nil {
		return max(at, t.until)
	}
	return at
}

// earliestUnpaused is earliestStart without a pause.
func (l *limiterStep) earliestUnpaused() int64 {
	if ahead := l.extra.placesAhead(); len(ahead) > 0 {
		return max(l.now, ahead[len(ahead)-1].at)
	}
	return l.now
}
