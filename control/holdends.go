package control

import "github.com/gatehousehq/gatehouse/internal/minheap"

// An holdEnd is when a hold ends. It is stale once the hold is gone or ends at another time.
type holdEnd struct {
	at     int64 // Unix ns
	fence  uint64
	holder string
}

// Before implements [minheap.Item]. Of two that end together the elder goes first, so that what is noted of
// them does not depend on how the heap came to be.
func (e holdEnd) Before(other holdEnd) bool {
	return e.at < other.at || e.at == other.at && e.fence < other.fence
}

func (e holdEnd) isStale(holds map[string]*hold) bool {
	h := holds[e.holder]
	return h == nil || h.fence != e.fence || h.until != e.at
}

// holdEndHeap has the earliest end first, which is never stale. Others that became stale stay until they come
// up or are pruned.
type holdEndHeap struct{ minheap.Heap[holdEnd] }

// dropFirst drops the first end if it is that of a hold which is gone or ends at another time by now, and the
// stale ones that come up then. This is when the first end can become stale, so that no step need look for
// that, which takes a look at the holds.
func (e *holdEndHeap) dropFirst(fence uint64, holds map[string]*hold) {
	if len(e.Heap) == 0 || e.Heap[0].fence != fence {
		return
	}
	for len(e.Heap) > 0 && e.Heap[0].isStale(holds) {
		e.Pop()
	}
}

// pruneStale drops the stale ends once they are the greater part, so that a hold that is renewed forever
// costs no more than one that is not.
func (e *holdEndHeap) pruneStale(holds map[string]*hold) {
	if len(e.Heap) < 2*len(holds)+8 {
		return
	}
	// The live ends are moved down in the same array, then put in heap order again: O(n), but only after as
	// many pushes.
	live := e.Heap[:0]
	for _, x := range e.Heap {
		if !x.isStale(holds) {
			live = append(live, x)
		}
	}
	clear(e.Heap[len(live):])
	e.Heap = live
	e.Init()
}
