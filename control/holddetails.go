package control

import (
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is what is known of holds to be shown: for whom they are, since when, and how long others lasted.

// maxRenewals is how many renewals of one hold are counted.
const maxRenewals = math.MaxUint32

// codeDetails codes what the fourth format has besides. Of earlier ones it finds out what they tell.
func (h *hold) codeDetails(c *stateCodec) {
	if c.version < 4 {
		if c.reading && h.renewals == 0 {
			h.acquired = h.inferredStart()
		}
		return
	}
	c.codeInstant(&h.acquired)
	renewals := int64(h.renewals)
	c.codeUpTo(&renewals, maxRenewals)
	if c.reading {
		h.renewals = uint32(renewals) // at most maxRenewals
	}
	// One byte says whether there is an owner, and whether the hold was evicted.
	const named, evicted = 1, 2
	flags := byte(boolToInt(h.owner != nil)*named + boolToInt(h.evicted)*evicted)
	c.codeByte(&flags, named+evicted)
	if c.reading {
		h.evicted = flags&evicted != 0
		if flags&named != 0 {
			h.owner = new(gatehouse.Owner)
		}
	}
	if flags&named == 0 {
		return
	}
	c.codeText(&h.owner.Name)
	c.codeText(&h.owner.Host)
	c.codeText(&h.owner.Purpose)
}

// codeText codes a text of at most MaxText bytes.
func (c *stateCodec) codeText(text *string) {
	c.codeString(text)
	if c.reading && len(*text) > gatehouse.MaxText {
		c.failDecoding("text of %d bytes, want at most %d", len(*text), gatehouse.MaxText)
		*text = ""
	}
}

// nameWeight is what the names of a hold's holder and owner take in memory.
func (h *hold) nameWeight() int { return len(h.holder) + textWeight + ownerWeight(h.owner) }

// ownerWeight is what an owner takes in memory.
func ownerWeight(o *gatehouse.Owner) int {
	if o == nil {
		return 0
	}
	return ownerBytes + len(o.Name) + len(o.Host) + len(o.Purpose) + 3*textWeight
}

// ownerBytes is what an owner without texts takes.
const ownerBytes = 48

// rememberedLengths is of how many holds that have ended their length is known. Quantiles of so few are
// rough, but they follow when jobs become longer or shorter.
const rememberedLengths = 16

// A holdLengths is how long the last holds lasted that have ended. Each takes a byte: eight steps for each
// doubling, from 1 ms up to 25 days, so that what is read is wrong by a sixteenth at most.
type holdLengths struct {
	count  uint8 // of those known
	next   uint8 // which is replaced next
	length [rememberedLengths]uint8
}

// note notes a hold that has ended.
func (l *holdLengths) note(h *hold, now int64) {
	if h.acquired == 0 {
		return
	}
	l.length[l.next] = packLength(time.Duration(now - h.acquired))
	l.next = (l.next + 1) % rememberedLengths
	l.count = min(l.count+1, rememberedLengths)
}

// packLength is a length of time in a byte.
func packLength(d time.Duration) uint8 {
	ms := uint64(max(0, d.Milliseconds())) + 1
	exponent := bits.Len64(ms) - 1
	mantissa := ms << 3 >> exponent & 7
	return uint8(min(uint64(exponent)<<3+mantissa, math.MaxUint8)) //nolint:gosec // bounded
}

// unpackLength is the middle of the lengths that have this byte.
func unpackLength(b uint8) time.Duration {
	us := (2*(8+int64(b&7))+1)*1000<<(b>>3)>>4 - 1000
	return time.Duration(us) * time.Microsecond
}

// quantile is the length below which are so many percent of those that lasted longer than another one; ok is
// false when none did.
func (l *holdLengths) quantile(percent int, longer time.Duration) (length time.Duration, ok bool) {
	// Their bytes are in the order of their lengths.
	known := l.length
	all := known[:l.count]
	slices.Sort(all)
	for len(all) > 0 && unpackLength(all[0]) <= longer {
		all = all[1:]
	}
	if len(all) == 0 {
		return 0, false
	}
	return unpackLength(all[(len(all)-1)*percent/100]), true
}

func (l *holdLengths) codeFields(c *stateCodec) {
	c.codeByte(&l.count, rememberedLengths)
	c.codeByte(&l.next, rememberedLengths-1)
	for i := range l.count {
		c.codeByte(&l.length[i], math.MaxUint8)
	}
}
