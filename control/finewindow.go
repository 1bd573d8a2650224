package control

// parts is into how many parts a fine window divides its interval. Sixty is what Figma described; the
// error is at most what was taken in one part.
const parts = 60

// A fineWindow counts in parts. Of the oldest, which the interval covers in part, it counts as much as
// is covered, as if that had been taken evenly; when strict it counts all of it, and then no interval
// ever holds more than the size.
type fineWindow struct {
	size     int64
	interval int64
	strict   bool
	step     int64            // the length of a part
	newest   int64            // its number, counted from 1970
	counts   [parts + 1]int64 // by the number of the part modulo their count
}

func newFineWindow(size, interval int64) *fineWindow {
	return &fineWindow{size: size, interval: interval, step: (interval + parts - 1) / parts}
}

// slot is where the count of a part is kept.
func slot(part int64) int { return int(part % (parts + 1)) }

// roll makes the part around an instant the newest.
func (f *fineWindow) roll(at int64) {
	part := at / f.step
	if part-f.newest > parts {
		f.counts, f.newest = [parts + 1]int64{}, part
	}
	for f.newest < part {
		f.newest++
		f.counts[slot(f.newest)] = 0
	}
}

// oldest is the first part whose count is kept.
func (f *fineWindow) oldest() int64 { return max(0, f.newest-parts) }

// last is the last instant of a part.
func (f *fineWindow) last(part int64) int64 { return (part+1)*f.step - 1 }

// weigh is how many of a part still count at an instant. Of a part that begins after it all do.
func (f *fineWindow) weigh(part, at int64) int64 {
	n := f.counts[slot(part)]
	// How much of the part lies in the interval that ends at the instant.
	covered := min(f.step, f.interval-(at-f.last(part)))
	switch {
	case n == 0 || covered <= 0:
		return 0
	case f.strict:
		return n
	}
	return share(n, covered, f.step)
}

// count is how many count at an instant.
func (f *fineWindow) count(at int64) int64 {
	sum := int64(0)
	for part := f.oldest(); part <= f.newest; part++ {
		sum = plus(sum, f.weigh(part, at))
	}
	return sum
}

// faded is when no more than room of a part still count, of which there are more.
func (f *fineWindow) faded(part, room int64) int64 {
	covered := int64(0)
	if !f.strict {
		covered = fade(f.counts[slot(part)], room, f.step)
	}
	return plus(f.last(part), f.interval-covered)
}

// when is as a meter's, for no more than the size.
func (f *fineWindow) when(from, n int64) int64 {
	room, later := f.size-n, int64(0) // later is how many there are in the parts after the one looked at
	for part := f.newest; part >= f.oldest(); part-- {
		count := f.counts[slot(part)]
		if count > room-later {
			return max(from, f.faded(part, room-later))
		}
		later += count
	}
	return from
}

func (f *fineWindow) take(_, at, n int64) {
	f.roll(at)
	newest := &f.counts[slot(f.newest)]
	*newest = plus(*newest, n)
}

// giveBack takes back the oldest: whichever was meant, no interval gets more for it.
func (f *fineWindow) giveBack(now, n int64) {
	f.roll(now)
	for part := f.oldest(); part <= f.newest; part++ {
		if f.weigh(part, now) > 0 {
			back := min(n, f.counts[slot(part)])
			f.counts[slot(part)] -= back
			n -= back
		}
	}
}

func (f *fineWindow) undo(at, n int64) {
	if part := at / f.step; part >= f.oldest() && part <= f.newest {
		f.counts[slot(part)] = max(0, f.counts[slot(part)]-n)
	}
}

func (f *fineWindow) read(now int64) reading {
	r := reading{
		limit: f.size, left: max(0, f.size-f.count(now)), reset: now, interval: f.interval,
	}
	for part := f.newest; part >= f.oldest(); part-- {
		if f.counts[slot(part)] > 0 {
			r.reset = max(now, f.faded(part, 0))
			break
		}
	}
	return r
}

// code lists the parts in which something was taken, from the newest back.
func (f *fineWindow) code(c *codec) {
	c.bool(&f.strict)
	c.upTo(&f.newest, noTime/f.step-1)
	taken := 0
	for _, n := range f.counts {
		taken += int(min(1, n))
	}
	part := f.newest + 1
	for range c.items(taken, 2) {
		age := f.newest - part + 1 // how many parts before the newest it is
		for !c.reading && f.counts[slot(f.newest-age)] == 0 {
			age++
		}
		if c.upTo(&age, min(parts, f.newest)); f.newest-age >= part {
			c.fail("parts of a window out of order")
		}
		part = f.newest - age
		c.upTo(&f.counts[slot(part)], noTime)
	}
}
