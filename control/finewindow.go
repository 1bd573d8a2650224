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

// covered is how much of a part lies in the interval that ends at an instant.
func (f *fineWindow) covered(part, at int64) int64 {
	end := (part+1)*f.step - 1 // the last instant of the part
	return max(0, min(f.step, end-(at-f.interval)))
}

// weigh is how many of a part count when so much of it is covered.
func (f *fineWindow) weigh(n, covered int64) int64 {
	switch {
	case covered == 0:
		return 0
	case f.strict:
		return n
	}
	return share(n, covered, f.step)
}

// count is how many count at an instant. Parts that begin after it count too.
func (f *fineWindow) count(at int64) int64 {
	sum := int64(0)
	for part := f.newest - parts; part <= f.newest; part++ {
		if n := f.part(part); n > 0 {
			sum += f.weigh(n, f.covered(part, at))
		}
	}
	return sum
}

func (f *fineWindow) part(part int64) int64 {
	if part < 0 {
		return 0
	}
	return f.counts[slot(part)]
}

// when is as a meter's, for no more than the size.
func (f *fineWindow) when(from, n int64) int64 {
	room := f.size - n
	after := int64(0) // how many are in the parts after the one looked at
	for _, n := range f.counts {
		after += n
	}
	for part := f.newest - parts; part <= f.newest; part++ {
		n := f.part(part)
		if n == 0 {
			continue
		}
		after -= n
		if room < after {
			continue // it is not enough that this part has passed
		}
		covered := int64(0)
		if n <= room-after {
			return from // and so were all parts before it
		} else if !f.strict {
			covered = fade(n, room-after, f.step)
		}
		return max(from, (part+1)*f.step-1-covered+f.interval)
	}
	return from
}

func (f *fineWindow) take(_, at, n int64) {
	f.roll(at)
	f.counts[slot(max(f.newest, at/f.step))] += n
}

// giveBack takes back the oldest: whichever was meant, no interval gets more for it.
func (f *fineWindow) giveBack(now, n int64) {
	f.roll(now)
	for part := max(0, f.newest-parts); part <= f.newest && n > 0; part++ {
		if f.covered(part, now) == 0 {
			continue
		}
		back := min(n, f.counts[slot(part)])
		f.counts[slot(part)] -= back
		n -= back
	}
}

func (f *fineWindow) undo(_, at, n int64) {
	part := at / f.step
	if part <= f.newest && part >= f.newest-parts {
		f.counts[slot(part)] = max(0, f.counts[slot(part)]-n)
	}
}

func (f *fineWindow) read(now int64) reading {
	r := reading{limit: f.size, interval: f.interval, reset: now}
	r.left = max(0, f.size-f.count(now))
	for part := f.newest; part >= max(0, f.newest-parts); part-- {
		if f.counts[slot(part)] > 0 {
			r.reset = max(now, (part+1)*f.step-1+f.interval)
			break
		}
	}
	return r
}
