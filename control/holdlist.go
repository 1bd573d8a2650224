package control

import "math"

// A holdList has the holds of a semaphore as a binary heap: at place 0 is the one that ends first, and those
// that do not end by themselves are behind all others. Each hold knows its place, so that the heap never has
// the end of a hold that is gone. The zero holdList is empty.
type holdList struct {
	heap     []*hold
	byHolder map[string]*hold // nil while there are few, as a look at each is faster then
	peak     int              // how many byHolder had at most since it was made
}

// fewHolds are found by a look at each.
const fewHolds = 8

// find returns the hold of a holder, nil if there is none.
func (l *holdList) find(holder string) *hold {
	if l.byHolder != nil {
		return l.byHolder[holder]
	}
	for _, h := range l.heap {
		if h.holder == holder {
			return h
		}
	}
	return nil
}

// next returns the hold that ends first, nil if none ends by itself.
func (l *holdList) next() *hold {
	if len(l.heap) == 0 || l.heap[0].until == 0 {
		return nil
	}
	return l.heap[0]
}

// add adds the hold of a holder that has none.
func (l *holdList) add(h *hold) {
	l.heap = append(l.heap, h)
	h.place = len(l.heap) - 1
	l.moveUp(h)
	switch {
	case l.byHolder != nil:
		l.byHolder[h.holder] = h
	// A few are found as fast by looking at each, and need no map.
	case len(l.heap) > fewHolds:
		l.byHolder = make(map[string]*hold, 2*fewHolds)
		for _, one := range l.heap {
			l.byHolder[one.holder] = one
		}
	}
	// A map never shrinks, so that the most it has had is what counts as memory.
	l.peak = max(l.peak, len(l.byHolder))
}

// drop drops a hold that is there, and the memory that is not needed without it.
func (l *holdList) drop(h *hold) {
	last := len(l.heap) - 1
	moved := l.heap[last]
	l.heap[last] = nil // it is not kept from the collector
	l.heap = l.heap[:last]
	if moved != h {
		l.put(moved, h.place)
		l.moveEnd(moved, moved.until)
	}
	if l.byHolder == nil {
		return
	}
	delete(l.byHolder, h.holder)
	// A list and a map never get smaller by themselves. Half as many as make a map end it, so that one hold
	// more or less does not make it again each time.
	if last > fewHolds/2 {
		l.byHolder = trimMap(l.byHolder, &l.peak)
	} else {
		l.byHolder, l.peak = nil, 0
	}
	if cap(l.heap) > 8*fewHolds && last <= cap(l.heap)/8 {
		l.heap = append(make([]*hold, 0, 2*last), l.heap...)
	}
}

// moveEnd sets when a hold that is there ends, in Unix ns; 0 is never.
func (l *holdList) moveEnd(h *hold, until int64) {
	h.until = until
	l.moveUp(h)
	// What has moved up has none below that comes before it.
	for {
		first := h
		for child := 2*h.place + 1; child <= 2*h.place+2 && child < len(l.heap); child++ {
			if l.heap[child].endsBefore(first) {
				first = l.heap[child]
			}
		}
		if first == h {
			return
		}
		l.swap(first, h)
	}
}

// moveUp moves a hold in front of those above it that end later.
func (l *holdList) moveUp(h *hold) {
	for h.place > 0 {
		parent := l.heap[(h.place-1)/2]
		if !h.endsBefore(parent) {
			return
		}
		l.swap(h, parent)
	}
}

// swap exchanges the places of two holds.
func (l *holdList) swap(a, b *hold) {
	place := a.place
	l.put(a, b.place)
	l.put(b, place)
}

func (l *holdList) put(h *hold, place int) { l.heap[place], h.place = h, place }

// endsBefore reports whether a hold ends before another one. Of two that end together the elder goes first,
// so that what is noted of them does not depend on how the heap came to be.
func (h *hold) endsBefore(other *hold) bool {
	a, b := h.endOrder(), other.endOrder()
	return a < b || a == b && h.fence < other.fence
}

// endOrder is when a hold ends, the last of all instants if it does not.
func (h *hold) endOrder() int64 {
	if h.until == 0 {
		return math.MaxInt64
	}
	return h.until
}
