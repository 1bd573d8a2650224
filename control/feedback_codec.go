package control

import "github.com/gatehousehq/gatehouse"

// What reports take in memory: the struct, and one that was adopted.
const (
	reportsWeight = 96
	adoptedWeight = 56
)

// memoryWeight is about how many bytes of memory the reports take. t may be nil.
func (t *thirdParty) memoryWeight() int {
	if t == nil {
		return 0
	}
	return reportsWeight + len(t.by) + cap(t.adopted)*adoptedWeight
}

// reportGrowth is the most by which a feedback may make the reports grow.
func (t *thirdParty) reportGrowth(cmd *gatehouse.Command) int {
	if cmd.Op != gatehouse.OpFeedback {
		return 0
	}
	by := 0
	if cmd.Owner != nil {
		by = len(cmd.Owner.Name)
	}
	more := reportsWeight + adoptedWeight
	if t != nil {
		// An array that is full is replaced by one twice as large.
		more = max(1, cap(t.adopted)) * adoptedWeight
	}
	return more + by
}

// leastAdopted is the least that one adopted remaining takes in a form.
const leastAdopted = 20

// codeReports codes what was reported, which versions before 5 did not have.
func (l *limiterCore) codeReports(c *stateCodec) {
	some := l.reports() != nil
	if !c.codeBool(&some) {
		return
	}
	// A limiter may have been told something and have nothing else in its extra, of which the bool in front
	// says nothing.
	l.ensureExtra()
	if c.reading {
		l.extra.reports = new(thirdParty)
	}
	l.extra.reports.codeFields(c)
}

func (t *thirdParty) codeFields(c *stateCodec) {
	const highestStatus = 599
	c.codeUpTo(&t.status, highestStatus)
	c.codeText(&t.by)
	c.codeInstant(&t.from)
	c.codeInstant(&t.until)
	c.codeUpTo(&t.used, noTime)
	c.codeUpTo(&t.strikes, noTime)
	c.codeInstant(&t.forgetAt)
	codeSlice(c, &t.adopted, leastAdopted)
	// At most one for each limit is ever kept.
	if n := len(t.adopted); n > gatehouse.MaxLimits {
		c.failDecoding("%d adopted, want at most %d", n, gatehouse.MaxLimits)
		return
	}
	for i := range t.adopted {
		t.adopted[i].codeFields(c)
	}
	// Encode writes no such pause, whose ramp would have no length to be divided by.
	if c.reading && (t.from < 0 || t.until < t.from || (t.status == 0) != (t.until == 0) ||
		t.status == 0 && t.by != "") {
		c.failDecoding("pause from %d to %d with %d", t.from, t.until, t.status)
	}
}

func (a *adoptedRemaining) codeFields(c *stateCodec) {
	c.codeByte((*byte)(&a.limit.Calendar), byte(gatehouse.Month))
	c.codeDuration(&a.limit.Interval)
	c.codeInstant(&a.since)
	c.codeInstant(&a.until)
	c.codeSize(&a.remaining)
	c.codeSize(&a.taken)
}
