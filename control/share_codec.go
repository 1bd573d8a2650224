package control

import "github.com/gatehousehq/gatehouse"

// The least that parts of shares take in a form.
const (
	leastShare       = 15
	leastTake        = 11
	leastWindowReset = 10
	leastDebtSpan    = 2
)

// codeShares codes the shares of grants, which version 3 did not have.
func (l *limiterCore) codeShares(c *stateCodec) {
	l.ensureExtra()
	if c.reading {
		l.extra.shares = &shareList{nextEnd: noTime}
	}
	m := l.extra.shares
	c.codeUint64(&m.lastFence)
	codeSlice(c, &m.list, leastShare)
	// What has been read so far says which fences and debts there can be.
	before, debt := uint64(0), l.totalDebt()
	for i := range m.list {
		if c.reading {
			m.list[i] = new(grantShare)
		}
		s := m.list[i]
		s.codeFields(c)
		if !c.reading {
			continue
		}
		if s.fence <= before || s.fence > m.lastFence || s.until > latest {
			c.failDecoding("share of fencing token %d after %d until %d", s.fence, before, s.until)
		}
		for _, d := range s.debts {
			if d.n == 0 || d.from > debt || d.n > debt-d.from {
				c.failDecoding("share of a debt that is not there")
			}
		}
		before, m.nextEnd = s.fence, min(m.nextEnd, s.until)
		m.weighShare(s)
	}
}

func (s *grantShare) codeFields(c *stateCodec) {
	c.codeUint64(&s.fence)
	c.codeInstant(&s.until)
	c.codeUpTo(&s.taken, noTime)
	c.codeUpTo(&s.counted, noTime)
	c.codeByte((*byte)(&s.overrun), byte(gatehouse.OverrunCap))
	c.codeByte((*byte)(&s.onExpiry), byte(gatehouse.ExpiryLast))
	codeSlice(c, &s.takes, leastTake)
	// More than these are never written, and would take more memory than is foreseen.
	if n := len(s.takes); n > maxTakes {
		c.failDecoding("%d takes of a share, want at most %d", n, maxTakes)
		return
	}
	for i := range s.takes {
		s.takes[i].codeFields(c)
	}
	codeSlice(c, &s.debts, leastDebtSpan)
	if n := len(s.debts); n > maxSpans {
		c.failDecoding("%d debts of a share, want at most %d", n, maxSpans)
		return
	}
	for i := range s.debts {
		c.codeUpTo(&s.debts[i].from, noTime)
		c.codeUpTo(&s.debts[i].n, noTime)
	}
}

func (t *shareTake) codeFields(c *stateCodec) {
	c.codeInstant(&t.at)
	c.codeUpTo(&t.n, noTime)
	c.codeUint64(&t.generation)
	codeSlice(c, &t.windows, leastWindowReset)
	if n := len(t.windows); n == 0 || n > gatehouse.MaxLimits || t.n == 0 {
		c.failDecoding("take of %d under %d limits, want 1 to %d", t.n, n, gatehouse.MaxLimits)
		return
	}
	for i := range t.windows {
		w := &t.windows[i]
		c.codeDuration(&w.window.Interval)
		c.codeByte((*byte)(&w.window.Calendar), byte(gatehouse.Month))
		c.codeInstant(&w.reset)
	}
}
