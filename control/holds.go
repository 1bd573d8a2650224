package control

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Hold is what one holder has of a semaphore or a lock.
type Hold struct {
	Holder string
	// Fence is its fencing token. No two holds under one name ever have the same.
	Fence uint64
	// Cost is how many slots it takes.
	Cost int64
	// Expires is the length it was given, when it was acquired or renewed last; 0 is never.
	Expires time.Duration
	// Until is when it ends. It is zero when it ends never, or when the store knows.
	Until time.Time
}

// Holds lists what is held, in the order in which it was granted. What has ended since the last step is
// still listed.
func (s *Semaphore) Holds() []Hold {
	list := make([]Hold, 0, len(s.holds.heap))
	for _, h := range s.holdsByFence() {
		hold := Hold{Holder: h.holder, Fence: h.fence, Cost: h.cost, Expires: h.expires}
		if h.until != 0 {
			hold.Until = time.Unix(0, h.until)
		}
		list = append(list, hold)
	}
	return list
}

// holdsByFence lists what is held in the order of fencing tokens.
func (s *Semaphore) holdsByFence() []*hold {
	return slices.SortedFunc(slices.Values(s.holds.heap), func(a, b *hold) int {
		return cmp.Or(cmp.Compare(a.fence, b.fence), cmp.Compare(a.holder, b.holder))
	})
}

// setEnd has a hold last for expires from now; 0 is without end. The end of a leased one is the store's to
// know.
func (h *hold) setEnd(now time.Time, turn *Turn, expires time.Duration) {
	h.expires, h.until, h.since = expires, 0, 0
	switch {
	case expires == 0:
	case turn.Leased:
		// The store ends this hold by a lease of its own. Its start is kept to tell how long it lasts.
		h.since = now.UnixNano()
	default:
		h.until = now.UnixNano() + int64(expires)
	}
}

// timeLeft is how long a hold lasts from an instant. Of one that the store ends it is the least, by the
// clock of the server that granted it; of one that an earlier version stored nothing is known.
func (h *hold) timeLeft(now int64) time.Duration {
	switch {
	case h.expires == 0:
		return gatehouse.Forever
	case h.until != 0:
		return time.Duration(h.until - now)
	}
	return max(0, min(h.expires, h.expires-time.Duration(now-h.since)))
}

// End ends the hold that a holder has with this fencing token, as if its time had come. It reports whether
// there was such a hold.
func (s *Semaphore) End(holder string, fence uint64) bool {
	h := s.holds.find(holder)
	if h == nil || h.fence != fence {
		return false
	}
	s.dropHold(h)
	s.expired++
	return true
}

// Track makes the semaphore note from now on whose holds change, for a store that keeps each hold by
// itself: EncodeHead and EachChanged are the parts that it writes, Decode and DecodeHold read them. At the
// first call all that is held counts as changed, so that one whose holds are still to be read is tracked
// before that.
func (s *Semaphore) Track() {
	if s.changed != nil {
		return
	}
	s.changed = make(map[string]struct{}, len(s.holds.heap))
	for _, h := range s.holds.heap {
		s.changed[h.holder] = struct{}{}
	}
}

// noteChanged notes that the hold of a holder has changed, or is gone.
func (s *Semaphore) noteChanged(holder string) {
	if s.changed != nil {
		s.changed[holder] = struct{}{}
	}
}

// EachChanged calls visit for every holder whose hold has changed since the last call, or since Track, in
// the order of their names. form is the hold's stored form, nil when the hold is gone; it must not be kept.
func (s *Semaphore) EachChanged(visit func(holder string, form []byte)) {
	var c stateCodec
	for _, holder := range slices.Sorted(maps.Keys(s.changed)) {
		h := s.holds.find(holder)
		// The hold has ended: the store deletes its record.
		if h == nil {
			visit(holder, nil)
			continue
		}
		// One buffer serves all holds, which is why visit must not keep it.
		c.data = c.data[:0]
		c.codeEarlierVersion(h.earliestVersion(), holdVersion)
		h.codeFields(&c)
		visit(holder, c.data)
	}
	if len(s.changed) > manyChanged {
		s.changed = make(map[string]struct{}) // to clear a map costs what it has held at most
		return
	}
	clear(s.changed)
}

// manyChanged is more holders than change between two visits, but at the first.
const manyChanged = 1000

// EncodeHead appends the stored form of the semaphore as if nothing were held. Decode reads it.
func (s *Semaphore) EncodeHead(data []byte) []byte {
	c := stateCodec{data: data}
	s.codeHead(&c)
	c.codeLength(0, 1)
	return c.data
}

// DecodeHold adds a hold from its stored form to a semaphore that was read from its head.
func (s *Semaphore) DecodeHold(holder string, form []byte) error {
	c := stateCodec{data: form, reading: true}
	c.codeVersion(holdVersion)
	h := &hold{holder: holder}
	h.codeFields(&c)
	// A hold is added only when all of it was read.
	if c.endDecoding() == nil {
		s.addDecoded(&c, h)
	}
	if c.fault != nil {
		return gatehouse.Errorf(gatehouse.CodeInternal, "stored hold of %q: %w", holder, c.fault)
	}
	return nil
}

// holdVersion is the latest format of semaphores, locks and holds.
const holdVersion = 4

// leastHold is the least that a holder and a hold take in a form.
const leastHold = 13

func (s *Semaphore) codeFields(c *stateCodec) {
	s.codeHead(c)
	// Holds are written in the order of their fencing tokens, so that equal states have equal encodings
	// whatever the order of their ends was before.
	if !c.reading {
		c.codeLength(len(s.holds.heap), leastHold)
		for _, h := range s.holdsByFence() {
			c.codeString(&h.holder)
			h.codeFields(c)
		}
		return
	}
	for range c.codeLength(0, leastHold) {
		h := new(hold)
		c.codeString(&h.holder)
		h.codeFields(c)
		s.addDecoded(c, h)
	}
}

// codeHead codes all but the holds, the sum of which is not stored.
func (s *Semaphore) codeHead(c *stateCodec) {
	// In the earliest format that can say all of it, for servers which do not know the latest.
	enough := s.earliestHead()
	for _, h := range s.holds.heap {
		enough = max(enough, h.earliestVersion())
	}
	c.codeEarlierVersion(enough, holdVersion)
	s.commandCounts.codeFields(c)
	c.codeBool(&s.sized)
	c.codeSize(&s.size)
	c.codeUint64(&s.fence)
	c.codeInstant(&s.lastUsed)
	c.codeInt64(&s.reacquired)
	c.codeInt64(&s.released)
	c.codeInt64(&s.expired)
	c.codeSize(&s.maxHeld)
	if c.version > 3 {
		s.codeManaged(c)
	}
}

// earliestVersion is the earliest format in which a hold can be written.
func (h *hold) earliestVersion() byte {
	switch {
	case h.evicted || h.owner != nil || h.renewals > 0 || h.acquired != h.inferredStart():
		return 4
	case h.since != 0:
		return 3
	}
	return 2
}

// inferredStart is when a hold was acquired that was never renewed, as far as its end tells; 0 when it does
// not.
func (h *hold) inferredStart() int64 {
	if h.until != 0 {
		return h.until - int64(h.expires)
	}
	return h.since
}

func (h *hold) codeFields(c *stateCodec) {
	c.codeSize(&h.cost)
	c.codeUint64(&h.fence)
	c.codeInstant(&h.until)
	c.codeDuration(&h.expires)
	c.codeAnswers(&h.grants)
	if c.version == 2 || c.version == 3 {
		confirmed := h.renewals > 0
		c.codeBool(&confirmed)
		if c.reading {
			h.renewals = uint32(boolToInt(confirmed)) // what these formats tell
		}
	}
	if c.version > 2 {
		c.codeInstant(&h.since)
	}
	h.codeDetails(c)
}

// addDecoded adds a hold that was read.
func (s *Semaphore) addDecoded(c *stateCodec, h *hold) {
	switch {
	case s.holds.find(h.holder) != nil:
		c.failDecoding("a hold of %q twice", h.holder)
		return
	// The sum is not stored but added up here, and must not overflow.
	case h.cost == 0 || h.cost > gatehouse.MaxSize-s.heldCost:
		c.failDecoding("cost of %d with %d held, want 1 to %d in all",
			h.cost, s.heldCost, int64(gatehouse.MaxSize))
		return
	// The next token would not be higher than those of all holds before it.
	case h.fence > s.fence:
		c.failDecoding("fencing token %d, want at most %d", h.fence, s.fence)
		return
	}
	s.storeHold(h)
}
