package control

import (
	"fmt"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A charge takes what was spent already, whether there is room or not. What is free is taken at once. The
// rest is the debt: it lies ahead like reservations, in pieces of at most the limit, each at the earliest
// instant at which it fits behind all that lies ahead already. So every rule about reservations holds for it
// too: nothing is let through before the last piece, a change of limits keeps it, and each piece counts where
// it starts.
//
// A piece smaller than the limit is laid anew together with the next charge, unless a place was reserved
// behind it. Otherwise a thousand charges of 1 would need a thousand pieces, and one of 1,000 a single one.

// charge takes the cost of a command. It refuses only what could not be repaid, and then takes nothing.
func (l *limiter) charge(first meter, cmd *gatehouse.Command, d *gatehouse.Decision) {
	if l.created == 0 && !cmd.HasLimit() {
		d.Outcome = gatehouse.Missing
		return
	}
	if !l.apply(first, cmd, d) {
		return
	}
	now := d.At.UnixNano()
	limit, free := l.room(first, now)
	if limit == 0 {
		*d = unable(d.At, gatehouse.Conflict, "has a size of 0, under which nothing is ever repaid")
		return
	}
	free = min(free, cmd.Cost)
	if debt := cmd.Cost - free; debt > 0 {
		p := l.plan(first, debtor{now: now, free: free, debt: debt, limit: limit})
		if p.fault != "" {
			*d = unable(d.At, gatehouse.Conflict, p.fault)
			return
		}
		l.settlePlan(first, p, cmd)
	}
	if free > 0 {
		for _, m := range l.meters(first) {
			m.take(now, now, free)
		}
	}
	l.pass(d.At, cmd)
	l.grant(first, d)
	if free < cmd.Cost {
		d.Delay = time.Duration(l.from(now) - now)
	}
}

// room is the most that any limit lets through at once, and how much of that is free at an instant.
func (l *limiter) room(first meter, now int64) (limit, free int64) {
	for i, m := range l.looking(first) {
		r := l.read(m, now)
		if i == 0 {
			limit, free = r.limit, r.left
		}
		limit, free = min(limit, r.limit), min(free, r.left)
	}
	return limit, free
}

// A debtor is what a charge has to lay ahead.
type debtor struct {
	now         int64
	free        int64 // that is taken now, before the debt
	debt, limit int64
}

// A plan is where the debt of a charge is laid. Nothing has changed yet.
type plan struct {
	keep   int       // how many of the promises there are stay
	pieces []promise // in the place of the others
	ahead  []meter   // copies of the meters in which all of them are taken
	now    int64
	fault  string // why the debt cannot be laid
}

// plan lays a debt behind all that lies ahead.
func (l *limiter) plan(first meter, c debtor) (p plan) {
	var promises []promise
	if l.more != nil {
		promises = l.more.promises
	}
	p.now, p.keep = c.now, len(promises)
	if last := p.keep - 1; last >= 0 && promises[last].charged && promises[last].n < c.limit {
		p.keep = last
		c.debt = plus(c.debt, promises[last].n)
	}
	if pieces := (c.debt-1)/c.limit + 1; pieces > int64(maxPromises-p.keep) {
		p.fault = fmt.Sprintf("would be in debt by %d pieces of %d; "+
			"it keeps at most %d pieces and reservations", pieces, c.limit, maxPromises)
		return p
	}
	p.ahead = l.without(first, c.now, promises[p.keep:])
	if c.free > 0 {
		for _, m := range p.ahead {
			m.take(c.now, c.now, c.free)
		}
	}
	from := c.now
	if p.keep > 0 {
		from = max(from, promises[p.keep-1].at)
	}
	for c.debt > 0 {
		piece := promise{at: from, n: min(c.debt, c.limit), answers: 1, charged: true}
		for _, m := range p.ahead {
			piece.at = max(piece.at, earliest(m, from, piece.n))
		}
		if piece.at-c.now > int64(gatehouse.MaxDuration) || piece.at > latest {
			p.fault = "would be in debt for more than 100 years"
			return p
		}
		l.takeAhead(p.ahead, c.now, &piece)
		p.pieces = append(p.pieces, piece)
		c.debt, from = c.debt-piece.n, piece.at
	}
	return p
}

// earliest is the first instant, not before from, at which a meter lets n through that lie ahead.
func earliest(m meter, from, n int64) int64 {
	at := m.when(from, n)
	if s, ok := m.(schedule); ok {
		at = max(at, s.promise(from, n))
	}
	return at
}

// without are copies of the meters in which all that lies ahead is taken except some promises, the last ones.
func (l *limiter) without(first meter, now int64, some []promise) []meter {
	switch {
	case len(some) == 0:
		return copyAll(l.looking(first), meter.clone)
	case l.more.frontier == nil:
		ahead := copyAll(l.meters(first), meter.clone)
		for _, m := range ahead {
			for _, p := range some {
				m.(schedule).remove(p.at, p.n)
			}
		}
		return ahead
	}
	ahead := copyAll(l.meters(first), meter.clone)
	for i := range l.more.promises[:len(l.more.promises)-len(some)] {
		l.takeAhead(ahead, now, &l.more.promises[i])
	}
	return ahead
}

// takeAhead takes a promise in meters that look ahead.
func (l *limiter) takeAhead(ahead []meter, now int64, p *promise) {
	for _, m := range ahead {
		if l.more == nil {
			m.take(now, p.at, p.n)
			continue
		}
		l.more.takePromise(m, now, p)
	}
}

// settlePlan puts a plan into effect.
func (l *limiter) settlePlan(first meter, p plan, cmd *gatehouse.Command) {
	l.know(first, cmd)
	replaced := l.more.promises[p.keep:]
	if l.scheduled(first) {
		for _, m := range l.meters(first) {
			for _, old := range replaced {
				m.(schedule).remove(old.at, old.n)
			}
			for _, piece := range p.pieces {
				m.take(p.now, piece.at, piece.n)
			}
		}
	} else {
		l.more.frontier = p.ahead
	}
	for i := range p.pieces {
		p.pieces[i].number = l.nextNumber(p.now, cmd)
	}
	l.more.promises = append(l.more.promises[:p.keep], p.pieces...)
	l.keepPromises(first, p.now) // what was laid anew may fit at once by now
}

// lowerDebt takes n off the debt, the latest piece first, and returns how much is left of n.
func (l *limiter) lowerDebt(first meter, now, n int64) (rest int64) {
	if l.more == nil {
		return n
	}
	promises := l.more.promises
	for i := len(promises) - 1; i >= 0 && n > 0; i-- {
		p := &promises[i]
		if !p.charged {
			continue
		}
		back := min(n, p.n)
		if l.more.frontier == nil {
			for _, m := range l.meters(first) {
				m.(schedule).remove(p.at, back)
			}
		}
		p.n, n = p.n-back, n-back
	}
	l.more.promises = slices.DeleteFunc(promises, func(p promise) bool { return p.n == 0 })
	l.lookAhead(first, now)
	l.settlePromises(now)
	return n
}

// pieces is how many pieces a charge lays ahead, at most.
func (l *limiter) pieces(first meter, cmd *gatehouse.Command, keeps bool) int {
	limit := int64(0)
	if keeps {
		for _, m := range l.meters(first) {
			if size := m.limit().Size; limit == 0 || size < limit {
				limit = size
			}
		}
	} else {
		for _, one := range limitsOf(cmd) {
			if limit == 0 || one.Size < limit {
				limit = one.Size
			}
		}
	}
	// A burst of a GCRA is more or less than its size: then as many as there may be.
	if _, bursts := first.(*gcra); bursts || limit <= 0 {
		limit = 1
	}
	return int(min(cmd.Cost/limit+1, maxPromises))
}

// debt is how much of what was charged is not repaid yet.
func (l *limiter) debt() (n int64) {
	if l.more == nil {
		return 0
	}
	for i := range l.more.promises {
		if p := &l.more.promises[i]; p.charged {
			n = plus(n, p.n)
		}
	}
	return n
}

// know notes the limits in force if they are not noted yet, as they must be while anything lies ahead.
func (l *limiter) know(first meter, cmd *gatehouse.Command) {
	if l.more == nil {
		l.more = new(more)
	}
	if l.more.limits != nil || l.more.meters != nil {
		return
	}
	if !cmd.HasLimit() {
		inForce := new(gatehouse.Command)
		first.tell(inForce)
		cmd = inForce
	}
	l.more.note(cmd)
}

// defaults are the limit of a limiter that begins with a command that names none.
func defaults(cmd *gatehouse.Command) *gatehouse.Command {
	c := *cmd
	c.Size, c.Interval, c.Calendar, c.Limits = gatehouse.DefaultSize, gatehouse.DefaultInterval, 0, nil
	c.Burst, c.Guard, c.Mode, c.Zone = 0, 0, gatehouse.ModeDefault, ""
	return &c
}
