package control

import (
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// leastMember is the least that a member of a grant takes in a form.
const leastMember = 14

// grantVersion is the latest format. Version 1 has no instants of settles.
const grantVersion = 2

// codeFields codes the record of a grant. One without a grant is not stored, but has a form.
func (r *GrantRecord) codeFields(c *stateCodec) {
	// In the earliest format that can say all of it, for servers which do not know the latest.
	enough := byte(1)
	if r.settled != nil {
		enough = grantVersion
	}
	c.codeEarlierVersion(enough, grantVersion)
	there := r.last != nil
	if !c.codeBool(&there) {
		return
	}
	if c.reading {
		r.last = new(gatehouse.GrantRecord)
	}
	one := r.last
	c.codeAnswers(&r.answers)
	c.codeBool(&r.confirmed)
	c.codeUint64(&one.Fence)
	c.codeTime(&one.Since)
	c.codeTime(&one.Until)
	c.codeDuration(&one.Expires)
	c.codeBool(&one.Ended)
	c.codeByte((*byte)(&one.Overrun), byte(gatehouse.OverrunCap))
	c.codeByte((*byte)(&one.OnExpiry), byte(gatehouse.ExpiryLast))
	codeSlice(c, &one.Want, leastMember)
	if n := len(one.Want); n == 0 || n > gatehouse.MaxMembers {
		c.failDecoding("grant of %d members, want 1 to %d", n, gatehouse.MaxMembers)
		return
	}
	if c.reading {
		one.Taken, one.Counted = make([]int64, len(one.Want)), make([]int64, len(one.Want))
	}
	for i := range one.Want {
		c.codeMember(&one.Want[i])
		c.codeUpTo(&one.Taken[i], math.MaxInt64)
		c.codeUpTo(&one.Counted[i], math.MaxInt64)
	}
	r.codeSettled(c)
	// Times beyond these would overflow where they are added up.
	if c.reading && (one.Until.Before(one.Since) || one.Until.After(time.Unix(0, latest)) ||
		one.Expires == 0) {
		c.failDecoding("grant of %s until %s", one.Expires, one.Until)
	}
}

// codeSettled codes when the members were settled.
func (r *GrantRecord) codeSettled(c *stateCodec) {
	if c.version == 1 {
		return
	}
	if c.reading {
		r.settled = make([]time.Time, len(r.last.Want))
	}
	for i := range r.settled {
		c.codeTime(&r.settled[i])
	}
}

// codeMember codes what a grant wants of one name.
func (c *stateCodec) codeMember(m *gatehouse.Member) {
	c.codeByte((*byte)(&m.Key.Kind), byte(gatehouse.Kinds-1))
	c.codeString(&m.Key.Name)
	c.codeUpTo(&m.Cost, math.MaxInt64)
	c.codeBool(&m.Clip)
	c.codeAskedRule(&m.Rule)
}

// codeAskedRule codes a rule as a caller said it, whatever of it means something.
func (c *stateCodec) codeAskedRule(r *gatehouse.Rule) {
	c.codeInt64(&r.Size)
	c.codeInt64((*int64)(&r.Interval))
	c.codeInt64(&r.Burst)
	c.codeInt64((*int64)(&r.Guard))
	c.codeByte((*byte)(&r.Calendar), math.MaxUint8)
	c.codeByte((*byte)(&r.Mode), math.MaxUint8)
	c.codeString(&r.Zone)
	// Checked before any room is made for them: a damaged record may say any number.
	n := c.codeLength(r.Limits.Len(), 3)
	if n > gatehouse.MaxLimits {
		c.failDecoding("%d limits, want at most %d", n, gatehouse.MaxLimits)
		return
	}
	// A list of them cannot be changed in place.
	limits := make([]gatehouse.Limit, n)
	for i := range limits {
		if !c.reading {
			limits[i] = r.Limits.At(i)
		}
		c.codeInt64(&limits[i].Size)
		c.codeInt64((*int64)(&limits[i].Interval))
		c.codeByte((*byte)(&limits[i].Calendar), math.MaxUint8)
	}
	if c.reading && n > 0 {
		r.Limits = gatehouse.NewLimitList(limits...)
	}
}
