package control

// parts is into how many parts a fine window divides its interval. Sixty is what Figma described; the
// error is at most what was taken in one part.
const parts = 60

// A fineWindow is a sliding window that counts in parts. Of the oldest, which the interval covers in part,
// it counts as much as is covered, as if that had been taken evenly; when strict it counts all of it, and
// then no interval ever holds more than the size.
//
// Its start is the number of the newest part, counted from 1970, and its current what was taken in that. The
// parts before it are kept in fine.
type fineWindow slidingWindow

// fineParts are the parts of a fine window before the newest. A window that is used once has none, so there
// is no room for their counts until something is taken in a second part.
type fineParts struct {
	strict bool
	own    bool             // the window's own, with counts; otherwise one of emptyParts
	counts [parts + 1]int64 // by the number of the part modulo their count
}

// emptyParts are shared by all windows that need no counts: one that is not strict, and one that is. They are
// never written to.
var emptyParts = [...]fineParts{{strict: false}, {strict: true}}

func partsOf(strict bool) *fineParts { return &emptyParts[count(strict)] }

// slot is where the count of a part is kept.
func slot(part int64) int { return int(part % (parts + 1)) }

// step is the length of a part.
func (f *fineWindow) step() int64 { return (f.interval + parts - 1) / parts }

// setStrict makes the window strict, or not.
func (f *fineWindow) setStrict(strict bool) {
	switch {
	case f.fine.strict == strict:
	case f.fine.own:
		f.fine.strict = strict
	default:
		f.fine = partsOf(strict)
	}
}

// taken is what was taken in a part.
func (f *fineWindow) taken(part int64) int64 {
	if part == f.start {
		return f.current
	}
	return f.fine.counts[slot(part)]
}

// put sets what was taken in a part.
func (f *fineWindow) put(part, n int64) {
	if part == f.start {
		f.current = n
		return
	}
	if !f.fine.own {
		f.fine = &fineParts{strict: f.fine.strict, own: true}
	}
	f.fine.counts[slot(part)] = n
}

// roll makes the part around an instant the newest.
func (f *fineWindow) roll(at int64) {
	// Most commands come in the newest part, which its bounds tell without a division.
	step := f.step()
	if at < (f.start+1)*step {
		return
	}
	part, newest := at/step, f.start
	n := f.current
	f.start, f.current = part, 0
	switch {
	case part-newest > parts:
		f.fine = partsOf(f.fine.strict)
		return
	case n == 0 && !f.fine.own:
		return
	}
	f.put(newest, n)
	for p := newest + 1; p < part; p++ {
		f.fine.counts[slot(p)] = 0
	}
}

// oldest is the first part whose count is kept.
func (f *fineWindow) oldest() int64 { return max(0, f.start-parts) }

// last is the last instant of a part of this length.
func last(part, step int64) int64 { return (part+1)*step - 1 }

// weigh is how many of the n that were taken in a part of this length still count at an instant. Of a part
// that begins after it all do.
func (f *fineWindow) weigh(part, n, at, step int64) int64 {
	// How much of the part lies in the interval that ends at the instant.
	covered := min(step, f.interval-(at-last(part, step)))
	switch {
	case n == 0 || covered <= 0:
		return 0
	case f.fine.strict || covered == step:
		return n
	}
	return share(n, covered, step)
}

// count is how many count at an instant.
func (f *fineWindow) count(at int64) int64 {
	step := f.step()
	sum := f.weigh(f.start, f.current, at, step)
	if !f.fine.own {
		return sum
	}
	// Every decision comes here, so the slots are counted along instead of divided for.
	part := f.oldest()
	for i := slot(part); part < f.start; part++ {
		if n := f.fine.counts[i]; n > 0 {
			sum = plus(sum, f.weigh(part, n, at, step))
		}
		i++
		if i > parts {
			i = 0
		}
	}
	return sum
}

// first is the first part in which something may have been taken.
func (f *fineWindow) first() int64 {
	if !f.fine.own {
		return f.start
	}
	return f.oldest()
}

// faded is when no more than room of a part still count, of which there are more.
func (f *fineWindow) faded(part, room int64) int64 {
	covered, step := int64(0), f.step()
	if !f.fine.strict {
		covered = fade(f.taken(part), room, step)
	}
	return plus(last(part, step), f.interval-covered)
}

// when is as a meter's, for no more than the size.
func (f *fineWindow) when(from, n int64) int64 {
	room, later := f.size-n, f.current // later is how many there are in the parts after the one looked at
	switch {
	case f.current > room:
		return max(from, f.faded(f.start, room))
	case !f.fine.own:
		return from
	}
	oldest := f.oldest()
	for part, i := f.start-1, slot(f.start); part >= oldest; part-- {
		i--
		if i < 0 {
			i = parts
		}
		taken := f.fine.counts[i]
		if taken > room-later {
			return max(from, f.faded(part, room-later))
		}
		later += taken
	}
	return from
}

func (f *fineWindow) take(at, n int64) {
	f.roll(at)
	f.current = plus(f.current, n)
}

// giveBack takes back the oldest: whichever was meant, no interval gets more for it.
func (f *fineWindow) giveBack(now, n int64) {
	f.roll(now)
	step := f.step()
	for part := f.first(); part <= f.start; part++ {
		if taken := f.taken(part); f.weigh(part, taken, now, step) > 0 {
			back := min(n, taken)
			f.put(part, taken-back)
			n -= back
		}
	}
}

func (f *fineWindow) undo(at, n int64) {
	if part := at / f.step(); part >= f.first() && part <= f.start {
		f.put(part, max(0, f.taken(part)-n))
	}
}

func (f *fineWindow) read(now int64) reading {
	r := reading{
		limit: f.size, left: max(0, f.size-f.count(now)), reset: now, interval: f.interval,
	}
	for part := f.start; part >= f.first(); part-- {
		if f.taken(part) > 0 {
			r.reset = max(now, f.faded(part, 0))
			break
		}
	}
	return r
}

// code lists the parts in which something was taken, from the newest back.
func (f *fineWindow) code(c *codec) {
	strict := f.fine.strict
	c.bool(&strict)
	if c.reading {
		f.setStrict(strict)
	}
	c.upTo(&f.start, noTime/f.step()-1)
	taken := 0
	for part := f.first(); part <= f.start; part++ {
		taken += int(min(1, f.taken(part)))
	}
	part := f.start + 1
	for range c.items(taken, 2) {
		age := f.start - part + 1 // how many parts before the newest it is
		for !c.reading && f.taken(f.start-age) == 0 {
			age++
		}
		c.upTo(&age, min(parts, f.start))
		if f.start-age >= part {
			c.fail("parts of a window out of order")
		}
		part = f.start - age
		n := f.taken(part)
		c.upTo(&n, noTime)
		if c.reading {
			f.put(part, n)
		}
	}
}
