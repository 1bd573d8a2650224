package control

// A bucket is the meter of a token bucket. It is refilled to its size at every boundary, created +
// k·interval, as bouncer's is. So a window of w lets at most size·(ceil(w/interval)+1) through.
//
// What is kept is not the tokens left but the tokens taken since the last boundary: that is what
// makes a resize within an interval come out right.
type bucket struct {
	rate
	start int64 // the last boundary; 0 before the first use
	taken int64 // since start
}

func (b *bucket) set(now int64, to bound) {
	if b.start == 0 {
		b.start = now
	}
	b.roll(now)
	b.size = to.size
	if b.interval != to.interval {
		b.interval = to.interval
		b.roll(now)
	}
}

// roll moves start to the last boundary at or before now and forgets what was taken before it.
func (b *bucket) roll(now int64) {
	if passed := now - b.start; b.interval > 0 && passed >= b.interval {
		b.start += passed - passed%b.interval
		b.taken = 0
	}
}

// when is a lower bound for more than the size: costs that do not divide it leave tokens over.
func (b *bucket) when(from, n int64) int64 {
	at := *b
	at.roll(from)
	free := at.free()
	switch {
	case n <= free:
		return from
	case b.size == 0:
		return noTime
	}
	return at.start + b.interval + further((n-free-1)/b.size, b.interval)
}

func (b *bucket) free() int64 { return max(0, b.size-b.taken) }

func (b *bucket) take(_, at, n int64) {
	b.roll(at)
	b.taken += n
}

func (b *bucket) giveBack(now, n int64) {
	b.roll(now)
	b.taken = max(0, b.taken-n)
}

// undo gives tokens back; those of an interval that is over are worth nothing.
func (b *bucket) undo(_, at, _, n int64) {
	if at >= b.start {
		b.taken = max(0, b.taken-n)
	}
}

func (b *bucket) read(now int64) reading {
	at := *b
	at.roll(now)
	return reading{limit: b.size, left: at.free(), reset: at.start + b.interval, interval: b.interval}
}

func (b *bucket) clear() { b.taken = 0 }

func (b *bucket) clone() meter {
	c := *b
	return &c
}
