package control

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A promise is a place that lies ahead.
type promise struct {
	at, n   int64
	number  uint64 // which no other place of this name has
	holder  string // "" when it cannot be cancelled
	answers int32  // how many were told of it, at most maxAnswers
	charged bool   // it is a piece of the debt, and no reservation
}

// maxAnswers is the most answers that are counted. What was answered as often is not undone any more.
const maxAnswers = math.MaxInt32

// once counts one answer more.
func once(answers int32) int32 {
	if answers == maxAnswers {
		return answers
	}
	return answers + 1
}

// maxPromises is the most places that lie ahead at one name: 48 bytes each, and the holder. A change of
// limits takes all of them anew. Of those that a schedule keeps without a holder there is no limit, as
// they cost nothing here.
const maxPromises = 1000

// reserve takes the earliest place there is. Places are promised in order: none is before one that was
// promised already, and while one lies ahead nothing is taken before it.
func (l *limiter) reserve(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if !l.apply(first, cmd, d) {
		return
	}
	at := d.At.UnixNano()
	start := at
	var number uint64
	if i := l.find(cmd.Holder); i >= 0 {
		p := &l.more.promises[i]
		p.answers = once(p.answers)
		start, number = p.at, p.number
	} else {
		if !l.judge(first, cmd, d) {
			start = l.place(first, at, cmd.Cost)
		}
		if !l.mayPromise(start, cmd, d) {
			return
		}
		l.pass(d.At, cmd)
		number = l.promise(first, at, promise{at: start, n: cmd.Cost, holder: cmd.Holder, answers: 1}, cmd)
	}
	*d = gatehouse.Decision{At: d.At, Reservation: number}
	l.grant(first, d)
	d.Delay = time.Duration(wholeMillis(start - at)) // it may be the second answer about a place
}

// mayPromise reports whether a place may be given. d is what was judged; a conflict is for what never fits.
func (l *limiter) mayPromise(start int64, cmd *gatehouse.Command, d *gatehouse.Decision) bool {
	switch {
	case d.Outcome != gatehouse.Refused:
		return false
	case cmd.Ahead > 0 || start-d.At.UnixNano() > int64(gatehouse.MaxDuration), start > latest:
		l.timedOut++
		return false
	case cmd.MaxDelay > 0 && start-d.At.UnixNano() > int64(cmd.MaxDelay):
		l.timedOut++
		d.Delay = time.Duration(start - d.At.UnixNano())
		d.RetryAfter = d.Delay - cmd.MaxDelay
		return false
	case l.more != nil && len(l.more.promises) >= maxPromises:
		*d = unable(d.At, gatehouse.Exhausted,
			fmt.Sprintf("has %d reservations ahead already, the most it keeps", maxPromises))
		return false
	}
	return true
}

// place is the earliest instant that n may be promised, so that it is whole milliseconds away: what is
// promised is what is told.
func (l *limiter) place(first meter, now, n int64) int64 {
	at := l.when(first, now, n)
	for _, m := range l.looking(first) {
		if s, ok := m.(schedule); ok {
			at = max(at, s.promise(now, n))
		}
	}
	return plus(now, wholeMillis(at-now))
}

// wholeMillis rounds a wait up.
func wholeMillis(d int64) int64 {
	const ms = int64(time.Millisecond)
	return plus(d, (ms-d%ms)%ms)
}

// promise takes a place, and returns the number that it gets if it is kept in the list.
func (l *limiter) promise(first meter, now int64, p promise, cmd *gatehouse.Command) (number uint64) {
	scheduled := l.scheduled(first)
	if scheduled || p.at <= now {
		for _, m := range l.meters(first) {
			m.take(now, p.at, p.n)
		}
	}
	if p.at <= now || scheduled && p.holder == "" {
		return 0
	}
	l.know(first, cmd)
	p.number = l.nextNumber(now, cmd)
	l.more.promises = append(l.more.promises, p)
	l.more.keys += p.keyWeight()
	switch {
	case scheduled:
	case l.more.frontier == nil:
		l.renewPromises(first, now)
	default:
		for _, m := range l.more.frontier {
			l.more.takePromise(m, now, &p)
		}
	}
	return p.number
}

// nextNumber is the number of a new reservation. It is made of the time as fencing tokens are, so that it
// differs from those before a delete as well.
func (l *limiter) nextNumber(now int64, cmd *gatehouse.Command) uint64 {
	// It is never below the time, even if MinFence is: settlePromises counts on that.
	least := max(cmd.MinFence, uint64(now)) // #nosec G115 -- the present is after 1970
	l.more.number = max(l.more.number+1, least)
	return l.more.number
}

// scheduled reports whether the meters keep what lies ahead by themselves.
func (l *limiter) scheduled(first meter) bool {
	for _, m := range l.meters(first) {
		if _, ok := m.(schedule); !ok {
			return false
		}
	}
	return true
}

// withdrawPromises takes the places that lie ahead out of the meters, before those change.
func (l *limiter) withdrawPromises(first meter) {
	m := l.more
	if m.frontier == nil && len(m.promises) > 0 {
		for _, meter := range l.meters(first) {
			for _, p := range m.promises {
				meter.(schedule).remove(p.at, p.n)
			}
		}
	}
	m.frontier = nil
}

// renewPromises takes the places that lie ahead in the meters, or in copies of those that cannot keep
// them.
func (l *limiter) renewPromises(first meter, now int64) {
	m := l.more
	if len(m.promises) == 0 {
		return
	}
	meters := l.meters(first)
	if !l.scheduled(first) {
		m.frontier = copyAll(meters, meter.clone)
		meters = m.frontier
	}
	m.takePromises(meters, now)
}

// takePromises takes the places that lie ahead in some meters.
func (m *more) takePromises(meters []meter, now int64) {
	for _, meter := range meters {
		for i := range m.promises {
			m.takePromise(meter, now, &m.promises[i])
		}
	}
}

// lookAhead makes the frontier anew, after the meters or the promises have changed.
func (l *limiter) lookAhead(first meter, now int64) {
	if l.more != nil && l.more.frontier != nil {
		l.more.frontier = nil
		l.renewPromises(first, now)
	}
}

// keepPromises counts the places whose time has come as taken.
func (l *limiter) keepPromises(first meter, now int64) {
	m := l.more
	passed := 0
	for passed < len(m.promises) && m.promises[passed].at <= now {
		passed++
	}
	if passed == 0 {
		return
	}
	if m.frontier != nil {
		for _, meter := range l.meters(first) {
			for i := range m.promises[:passed] {
				m.takePromise(meter, m.promises[i].at, &m.promises[i])
			}
		}
	}
	m.dropPromises(0, passed)
	l.settlePromises(now)
}

// dropPromises drops those from one place in the list to before another.
func (m *more) dropPromises(from, to int) {
	for i := range m.promises[from:to] {
		m.keys -= m.promises[from+i].keyWeight()
	}
	m.promises = slices.Delete(m.promises, from, to)
}

// keyWeight is the weight of the holder.
func (p *promise) keyWeight() int {
	if p.holder == "" {
		return 0
	}
	return len(p.holder) + textWeight
}

// settlePromises drops what is not needed without promises. The last number is not once the time is past
// it, as the next is made of the time.
func (l *limiter) settlePromises(now int64) {
	m := l.more
	if len(m.promises) > 0 {
		return
	}
	m.promises, m.frontier = nil, nil
	if m.number < uint64(now) { // #nosec G115 -- the present is after 1970
		m.number = 0
	}
	if m.meters == nil && m.chunks == nil && m.generation == 0 && m.number == 0 {
		l.more = nil
	}
}

// cancel gives back a place that lies ahead. Those behind it stay where they are.
func (l *limiter) cancel(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	i := l.find(cmd.Holder)
	if i < 0 {
		*d = unable(d.At, gatehouse.Conflict, "has no reservation of this key that lies ahead")
		return
	}
	l.more.promises[i].answers = 1
	l.unpromise(first, d.At.UnixNano(), i)
	l.grant(first, d)
}

// unpromise takes back one answer that told of a place, and with the last of them the place.
func (l *limiter) unpromise(first meter, now int64, i int) {
	p := &l.more.promises[i]
	if p.answers == maxAnswers {
		return
	}
	p.answers--
	if p.answers > 0 {
		return
	}
	if l.more.frontier == nil {
		for _, m := range l.meters(first) {
			m.(schedule).remove(p.at, p.n)
		}
	}
	l.more.dropPromises(i, i+1)
	l.lookAhead(first, now)
	l.passed--
	l.settlePromises(now)
}

// find is where a holder's place is in the list, -1 when it has none.
func (l *limiter) find(holder string) int {
	if holder == "" || l.more == nil {
		return -1
	}
	return slices.IndexFunc(l.more.promises, func(p promise) bool { return p.holder == holder })
}

// numbered is where the place of a number is in the list, -1 when it is not there.
func (l *limiter) numbered(number uint64) int {
	if l.more == nil {
		return -1
	}
	return slices.IndexFunc(l.more.promises, func(p promise) bool { return p.number == number })
}

// reserved is how many start after an instant.
func (l *limiter) reserved(first meter, now int64) int64 {
	ahead := int64(0)
	if s, ok := l.meters(first)[0].(schedule); ok && l.scheduled(first) {
		return s.ahead(now) - l.debt()
	}
	if l.more != nil {
		for _, p := range l.more.promises {
			ahead += p.n
		}
	}
	return ahead - l.debt()
}

// copy returns a copy to try something on, for as long as the limiter itself is not changed; first is not
// copied with it.
func (l *limiter) copy() *limiter {
	c := *l
	if l.more != nil {
		m := *l.more
		m.promises, m.chunks = slices.Clone(m.promises), slices.Clone(m.chunks)
		m.since = slices.Clone(m.since)
		m.meters, m.frontier = copyAll(m.meters, borrow), copyAll(m.frontier, borrow)
		c.more = &m
	}
	return &c
}

func copyAll(meters []meter, one func(meter) meter) []meter {
	var copies []meter
	for _, m := range meters {
		copies = append(copies, one(m))
	}
	return copies
}

// borrow returns a copy of a meter to try something on. Large meters are copied when the copy is written to:
// until then the meter itself must not be.
func borrow(m meter) meter {
	if large, ok := m.(interface{ borrow() meter }); ok {
		return large.borrow()
	}
	return m.clone()
}

func (p *promise) code(c *codec) {
	c.instant(&p.at)
	c.size(&p.n)
	c.string(&p.holder)
	if c.form > 1 {
		c.uint64(&p.number)
	}
	answers := int64(p.answers)
	c.upTo(&answers, maxAnswers)
	if c.form > 2 {
		c.bool(&p.charged)
	}
	if !c.reading {
		return
	}
	p.answers = int32(answers) // #nosec G115 -- at most maxAnswers
	if p.n == 0 || p.answers == 0 || p.at > latest || c.form > 1 && p.number == 0 {
		c.fail("reservation of %d at %d for %d", p.n, p.at, p.answers)
	}
}

// latest is the last instant that may be promised: windows of the calendar around it end before noTime.
const latest = noTime - 100*int64(24*time.Hour)
