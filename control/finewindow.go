package control

// partsPerWindow is into how many parts a fine window divides its interval. Sixty is what Figma described;
// the error is at most what was taken in one part.
const partsPerWindow = 60

// A fineWindow is a sliding window that counts in parts. Of the oldest, which the interval covers in part,
// it counts as much as is covered, as if that had been taken evenly; when strict it counts all of it, and
// then no interval ever holds more than the size.
//
// Its start is the number of the newest part, counted from 1970, and its current what was taken in that. The
// parts before it are kept in fine.
type fineWindow slidingWindowMeter

// fineParts are the parts of a fine window before the newest. A window that is used once has none, so there
// is no room for their counts until something is taken in a second part.
type fineParts struct {
	strict bool
	own    bool                      // the window's own, with counts; otherwise one of emptyParts
	counts [partsPerWindow + 1]int64 // by the number of the part modulo their count
}

// emptyParts are shared by all windows that need no counts: one that is not strict, and one that is. They are
// never written to.
var emptyParts = [...]fineParts{{strict: false}, {strict: true}}

func emptyPartsOf(strict bool) *fineParts { return &emptyParts[boolToInt(strict)] }

// slotOf is where the count of a part is kept.
func slotOf(part int64) int { return int(part % (partsPerWindow + 1)) }

// partLength is the length of a part.
func (f *fineWindow) partLength() int64 { return (f.interval + partsPerWindow - 1) / partsPerWindow }

// setStrict makes the window strict, or not.
func (f *fineWindow) setStrict(strict bool) {
	switch {
	case f.fine.strict == strict:
	case f.fine.own:
		// Shared empty parts are never written to: only a window's own are changed in place.
		f.fine.strict = strict
	default:
		f.fine = emptyPartsOf(strict)
	}
}

// takenIn is what was taken in a part.
func (f *fineWindow) takenIn(part int64) int64 {
	if part == f.start {
		return f.current
	}
	return f.fine.counts[slotOf(part)]
}

// setTaken sets what was taken in a part.
func (f *fineWindow) setTaken(part, n int64) {
	if part == f.start {
		f.current = n
		return
	}
	if !f.fine.own {
		f.fine = &fineParts{strict: f.fine.strict, own: true}
	}
	f.fine.counts[slotOf(part)] = n
}

// rollTo makes the part around an instant the newest.
func (f *fineWindow) rollTo(at int64) {
	// Most commands come in the newest part, which its bounds tell without a division.
	step := f.partLength()
	if at < (f.start+1)*step {
		return
	}
	part, newest := at/step, f.start
	n := f.current
	f.start, f.current = part, 0
	switch {
	case part-newest > partsPerWindow:
		// All that was counted lies more than an interval back.
		f.fine = emptyPartsOf(f.fine.strict)
		return
	case n == 0 && !f.fine.own:
		// Nothing was taken at all: there is no count to keep.
		return
	}
	// The slots are a ring: those of the parts passed over hold counts from an interval ago.
	f.setTaken(newest, n)
	for p := newest + 1; p < part; p++ {
		f.fine.counts[slotOf(p)] = 0
	}
}

// oldestPart is the first part whose count is kept.
func (f *fineWindow) oldestPart() int64 { return max(0, f.start-partsPerWindow) }

// partEnd is the last instant of a part of this length.
func partEnd(part, step int64) int64 { return (part+1)*step - 1 }

// weighPart is how many of the n that were taken in a part of this length still count at an instant. Of a
// part that begins after it all do.
func (f *fineWindow) weighPart(part, n, at, step int64) int64 {
	// How much of the part lies in the interval that ends at the instant.
	covered := min(step, f.interval-(at-partEnd(part, step)))
	switch {
	case n == 0 || covered <= 0:
		return 0
	case f.fine.strict || covered == step:
		// A strict window counts an overlapping part in full, as its starts may all lie in the overlap.
		return n
	}
	return proportionOf(n, covered, step)
}

// countAt is how many count at an instant.
func (f *fineWindow) countAt(at int64) int64 {
	step := f.partLength()
	sum := f.weighPart(f.start, f.current, at, step)
	if !f.fine.own {
		return sum
	}
	// Every decision comes here, so the slots are counted along instead of divided for.
	part := f.oldestPart()
	for i := slotOf(part); part < f.start; part++ {
		if n := f.fine.counts[i]; n > 0 {
			sum = addSaturating(sum, f.weighPart(part, n, at, step))
		}
		i++
		if i > partsPerWindow {
			i = 0
		}
	}
	return sum
}

// firstPart is the first part in which something may have been taken.
func (f *fineWindow) firstPart() int64 {
	if !f.fine.own {
		return f.start
	}
	return f.oldestPart()
}

// fadedAt is when no more than room of a part still count, of which there are more.
func (f *fineWindow) fadedAt(part, room int64) int64 {
	covered, step := int64(0), f.partLength()
	if !f.fine.strict {
		covered = largestPart(f.takenIn(part), room, step)
	}
	return addSaturating(partEnd(part, step), f.interval-covered)
}

// earliestFit is as a meter's, for no more than the size.
func (f *fineWindow) earliestFit(from, n int64) int64 {
	room, later := f.size-n, f.current // later is how many there are in the parts after the one looked at
	switch {
	case f.current > room:
		return max(from, f.fadedAt(f.start, room))
	case !f.fine.own:
		return from
	}
	// Walking back from the newest part, this finds the part with which the sum first exceeds the room.
	// Once enough of that part has faded, all older ones have faded too.
	oldest := f.oldestPart()
	for part, i := f.start-1, slotOf(f.start); part >= oldest; part-- {
		i--
		if i < 0 {
			i = partsPerWindow
		}
		taken := f.fine.counts[i]
		if taken > room-later {
			return max(from, f.fadedAt(part, room-later))
		}
		later += taken
	}
	return from
}

func (f *fineWindow) takeTokens(at, n int64) {
	f.rollTo(at)
	f.current = addSaturating(f.current, n)
}

// giveBack takes back the oldest: whichever was meant, no interval gets more for it.
func (f *fineWindow) giveBack(now, n int64) {
	f.rollTo(now)
	step := f.partLength()
	for part := f.firstPart(); part <= f.start; part++ {
		if taken := f.takenIn(part); f.weighPart(part, taken, now, step) > 0 {
			back := min(n, taken)
			f.setTaken(part, taken-back)
			n -= back
		}
	}
}

func (f *fineWindow) undoTake(at, n int64) {
	if part := at / f.partLength(); part >= f.firstPart() && part <= f.start {
		f.setTaken(part, max(0, f.takenIn(part)-n))
	}
}

func (f *fineWindow) readMeter(now int64) meterReading {
	r := meterReading{limit: f.size, left: max(0, f.size-f.countAt(now)), reset: now, interval: f.interval}
	for part := f.start; part >= f.firstPart(); part-- {
		if f.takenIn(part) > 0 {
			r.reset = max(now, f.fadedAt(part, 0))
			break
		}
	}
	return r
}

// codeFields lists the parts in which something was taken, from the newest back.
func (f *fineWindow) codeFields(c *stateCodec) {
	strict := f.fine.strict
	c.codeBool(&strict)
	if c.reading {
		f.setStrict(strict)
	}
	c.codeUpTo(&f.start, noTime/f.partLength()-1)
	taken := 0
	for part := f.firstPart(); part <= f.start; part++ {
		taken += int(min(1, f.takenIn(part)))
	}
	// Only parts with a count are written, each by its age. Reading sets them in the same loop, so ages
	// must rise strictly.
	part := f.start + 1
	for range c.codeLength(taken, 2) {
		age := f.start - part + 1 // how many parts before the newest it is
		for !c.reading && f.takenIn(f.start-age) == 0 {
			age++
		}
		c.codeUpTo(&age, min(partsPerWindow, f.start))
		if f.start-age >= part {
			c.failDecoding("parts of a window out of order")
		}
		part = f.start - age
		n := f.takenIn(part)
		c.codeUpTo(&n, noTime)
		if c.reading {
			f.setTaken(part, n)
		}
	}
}
