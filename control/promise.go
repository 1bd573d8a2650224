package control

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A promise is a place that lies ahead.
type promise struct {
	at, n  int64
	holder string // "" when it cannot be cancelled
}

// maxPromises is the most places that lie ahead at one name: 40 bytes each.
const maxPromises = 10_000

// reserve takes the earliest place there is. Places are promised in order: none is before one that was
// promised already, and while one lies ahead nothing is taken before it.
func (l *limiter) reserve(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	at := now.UnixNano()
	if why := l.apply(first, at, cmd); why != "" {
		return unable(now, gatehouse.Invalid, why)
	}
	if l.more != nil && cmd.Holder != "" {
		if i := l.more.find(cmd.Holder); i >= 0 {
			return l.promised(first, now, l.more.promises[i].at)
		}
	}
	start := at
	if !l.fits(first, at, cmd) {
		start = later(at, roundUp(l.when(first, at, cmd.Cost)-at))
	}
	switch {
	case cmd.Ahead > 0 || start-at > int64(gatehouse.MaxDuration) || l.tooSmall(first, at, cmd.Cost):
		return l.refuse(first, now, cmd)
	case l.more != nil && len(l.more.promises) >= maxPromises:
		return unable(now, gatehouse.Exhausted, "has 10000 reservations ahead already, the most it keeps")
	}
	l.pass(now, cmd)
	l.promise(first, at, promise{at: start, n: cmd.Cost, holder: cmd.Holder}, cmd)
	return l.promised(first, now, start)
}

// tooSmall reports whether so much can never be taken.
func (l *limiter) tooSmall(first meter, now, n int64) bool {
	return slices.ContainsFunc(l.ahead(first), func(m meter) bool { return n > m.read(now).limit })
}

// roundUp makes a wait one of whole milliseconds: what is promised is what is told.
func roundUp(d int64) int64 {
	const ms = int64(time.Millisecond)
	return min(d, noTime-ms) + (ms-d%ms)%ms
}

// promised tells of a place.
func (l *limiter) promised(first meter, now time.Time, at int64) gatehouse.Decision {
	d := l.decide(first, now, gatehouse.Granted)
	d.Delay = time.Duration(at - now.UnixNano())
	return d
}

// promise takes a place.
func (l *limiter) promise(first meter, now int64, p promise, cmd *gatehouse.Command) {
	kept := l.keepsStarts(first)
	if kept || p.at <= now {
		for _, m := range l.meters(first) {
			m.take(now, p.at, p.n)
		}
	}
	if p.at <= now || kept && p.holder == "" {
		return
	}
	if l.more == nil {
		l.more = &more{rule: ruleOf(cmd)}
	}
	m := l.more
	m.promises = append(m.promises, p)
	switch {
	case kept:
	case m.frontier == nil:
		l.lookAhead(first, now)
	default:
		for _, meter := range m.frontier {
			meter.take(now, p.at, p.n)
		}
	}
}

// keepsStarts reports whether the meters keep what lies ahead by themselves.
func (l *limiter) keepsStarts(first meter) bool {
	for _, m := range l.meters(first) {
		if _, ok := m.(ledger); !ok {
			return false
		}
	}
	return true
}

// lookAhead makes the frontier anew, after the meters or the promises have changed.
func (l *limiter) lookAhead(first meter, now int64) {
	if l.more == nil {
		return
	}
	m := l.more
	m.frontier = nil
	if len(m.promises) == 0 || l.keepsStarts(first) {
		return
	}
	for _, meter := range l.meters(first) {
		meter = meter.clone()
		for _, p := range m.promises {
			meter.take(now, p.at, p.n)
		}
		m.frontier = append(m.frontier, meter)
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
			for _, p := range m.promises[:passed] {
				meter.take(p.at, p.at, p.n)
			}
		}
	}
	clear(m.promises[:passed])
	m.promises = m.promises[passed:]
	l.settlePromises()
}

// settlePromises drops what is not needed without promises.
func (l *limiter) settlePromises() {
	if len(l.more.promises) > 0 {
		return
	}
	l.more.promises, l.more.frontier = nil, nil
	if l.more.meters == nil {
		l.more = nil
	}
}

// forgetPromises forgets all places that lie ahead.
func (l *limiter) forgetPromises() {
	if l.more != nil {
		l.more.promises = nil
		l.settlePromises()
	}
}

// cancel gives back a place that lies ahead. Those behind it stay where they are.
func (l *limiter) cancel(first meter, now time.Time, cmd *gatehouse.Command) gatehouse.Decision {
	i := -1
	if l.more != nil {
		i = l.more.find(cmd.Holder)
	}
	if i < 0 {
		return unable(now, gatehouse.Conflict, "has no reservation of this key that lies ahead")
	}
	p := l.more.promises[i]
	l.more.promises = slices.Delete(l.more.promises, i, i+1)
	for _, m := range l.meters(first) {
		if log, ok := m.(ledger); ok && l.more.frontier == nil {
			log.remove(p.at, p.n)
		}
	}
	l.lookAhead(first, now.UnixNano())
	l.passed--
	l.settlePromises()
	return l.decide(first, now, gatehouse.Granted)
}

// find is where a holder's place is in the list, -1 when it has none.
func (m *more) find(holder string) int {
	return slices.IndexFunc(m.promises, func(p promise) bool { return p.holder == holder })
}

// floor is when the last place that was promised starts; 0 when there is none.
func (m *more) floor() int64 {
	if len(m.promises) == 0 {
		return 0
	}
	return m.promises[len(m.promises)-1].at
}

// copy returns a copy to try something on; first is not copied with it.
func (l *limiter) copy() *limiter {
	c := *l
	if l.more != nil {
		m := *l.more
		m.promises = slices.Clone(m.promises)
		m.meters, m.frontier = cloneAll(m.meters), cloneAll(m.frontier)
		c.more = &m
	}
	return &c
}

func cloneAll(meters []meter) []meter {
	var clones []meter
	for _, m := range meters {
		clones = append(clones, m.clone())
	}
	return clones
}
