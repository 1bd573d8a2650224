package control

// This file is the generations of a limiter: how often counting has started again. A grant says in which it
// was counted, so that an undo gives back nothing to meters that count no more what was taken then.

// beginGeneration notes that what was taken so far counts no more, or in another way, so that it cannot be
// given back any more.
func (l *limiterCore) beginGeneration() {
	// Nothing was granted yet, so there is no earlier generation to tell apart.
	if l.created == 0 {
		return
	}
	l.ensureExtra()
	l.extra.generation++
	l.extra.validFrom = l.extra.generation
}

// followDeleted takes over from a limiter that was deleted at this instant: the grants of that one are not
// this one's, although the time is the same, and its numbers are not used again.
func (l *limiterCore) followDeleted(before *limiterCore) {
	l.ensureExtra()
	l.extra.generation, l.extra.validFrom = 1, 1
	if m := before.extra; m != nil {
		l.extra.generation, l.extra.validFrom = m.generation+1, m.generation+1
		l.extra.lastNumber = m.lastNumber
		if m.shares != nil {
			l.extra.shares = &shareList{nextEnd: noTime, lastFence: m.shares.lastFence}
		}
	}
}

// stillCounts reports whether a meter counts what was taken in a generation as it did then.
func (l *limiterCore) stillCounts(i int, generation uint64) bool {
	m := l.extra
	return m == nil || generation >= m.validFrom && (m.meterSince == nil || generation >= m.meterSince[i])
}

// meterGeneration is the generation of the meter that a new one takes over from.
func (l *limiterCore) meterGeneration(i int) uint64 {
	if l.extra.meterSince == nil {
		return 0
	}
	return l.extra.meterSince[i]
}
