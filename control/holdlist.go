package control

import (
	"container/heap"
	"math"
)

// A holdList has the holds of a semaphore as a binary heap: at place 0 is the one that ends first, and those
// that do not end by themselves are behind all others. Each hold knows its place, so that the heap never has
// the end of a hold that is gone. The zero holdList is empty.
type holdList struct {
	heap     holdHeap
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
	heap.Push(&l.heap, h)
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
	heap.Remove(&l.heap, h.place)
	if l.byHolder == nil {
		return
	}
	delete(l.byHolder, h.holder)
	// A list and a map never get smaller by themselves. Half as many as make a map end it, so that one hold
	// more or less does not make it again each time.
	left := len(l.heap)
	if left > fewHolds/2 {
		l.byHolder = trimMap(l.byHolder, &l.peak)
	} else {
		l.byHolder, l.peak = nil, 0
	}
	if cap(l.heap) > 8*fewHolds && left <= cap(l.heap)/8 {
		l.heap = append(make(holdHeap, 0, 2*left), l.heap...)
	}
}

// moveEnd puts a hold that is there in its place after its end has changed.
func (l *holdList) moveEnd(h *hold) { heap.Fix(&l.heap, h.place) }

// A holdHeap has the holds in the order of their ends, and implements [heap.Interface].
type holdHeap []*hold

func (l *holdHeap) Len() int           { return len(*l) }
func (l *holdHeap) Less(i, j int) bool { return (*l)[i].endsBefore((*l)[j]) }

func (l *holdHeap) Swap(i, j int) {
	s := *l
	s[i], s[j] = s[j], s[i]
	s[i].place, s[j].place = i, j
}

// Push adds a hold at the end.
func (l *holdHeap) Push(x any) {
	h := x.(*hold)
	h.place = len(*l)
	*l = append(*l, h)
}

// Pop takes the hold at the end.
func (l *holdHeap) Pop() any {
	last := len(*l) - 1
	h := (*l)[last]
	(*l)[last] = nil // it is not kept from the collector
	*l = (*l)[:last]
	return h
}

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
