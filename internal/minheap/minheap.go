// Package minheap is a binary heap that keeps its items unboxed, which container/heap cannot.
package minheap

import "slices"

// An Item knows which of two comes first.
type Item[T any] interface {
	Before(other T) bool
}

// A Heap has its least item at index 0. The zero Heap is empty.
type Heap[T Item[T]] []T

// Push adds an item, in O(log n).
func (h *Heap[T]) Push(item T) {
	*h = append(*h, item)
	s := *h
	// The new item moves up while it comes before its parent.
	for i := len(s) - 1; i > 0; {
		parent := (i - 1) / 2
		if !s[i].Before(s[parent]) {
			return
		}
		s[i], s[parent] = s[parent], s[i]
		i = parent
	}
}

// Pop takes the least item, in O(log n). It panics when the heap is empty.
func (h *Heap[T]) Pop() T {
	s := *h
	least, last := s[0], len(s)-1
	s[0] = s[last]
	// The freed slot must not keep what the item points to alive.
	clear(s[last:])
	*h = s[:last]
	h.siftDown(0)
	return least
}

// Init puts items that were changed behind the heap's back in order, in O(n).
func (h *Heap[T]) Init() {
	// Items without children are in order already, so the loop starts at the last parent.
	for i := len(*h)/2 - 1; i >= 0; i-- {
		h.siftDown(i)
	}
}

// Filter drops the items that keep does not want, and the memory they took, in O(n).
func (h *Heap[T]) Filter(keep func(item T) bool) {
	*h = slices.Clone(slices.DeleteFunc(*h, func(item T) bool { return !keep(item) }))
	h.Init()
}

// siftDown moves the item at i down to where it belongs.
func (h *Heap[T]) siftDown(i int) {
	s := *h
	for {
		// The lesser of the two children moves up, so that it stays in front of the other.
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(s); child++ {
			if s[child].Before(s[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		s[i], s[least] = s[least], s[i]
		i = least
	}
}
