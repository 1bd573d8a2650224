package minheap

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type number int

func (n number) Before(m number) bool { return n < m }

// TestHeapSorts compares the heap with a sorted slice, the slow and obvious way.
func TestHeapSorts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h Heap[number]
		var slow []number
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(slow) > 0 && rapid.Bool().Draw(t, "pop") {
				if got := h.Pop(); got != slow[0] {
					t.Fatalf("Pop() = %d, want %d", got, slow[0])
				}
				slow = slow[1:]
				continue
			}
			n := number(rapid.IntRange(0, 20).Draw(t, "n"))
			h.Push(n)
			slow = append(slow, n)
			slices.Sort(slow)
		}
		isEven := func(n number) bool { return n%2 == 0 }
		h.Filter(isEven)
		slow = slices.DeleteFunc(slow, func(n number) bool { return !isEven(n) })
		if len(h) != len(slow) || cap(h) > 2*len(h)+16 {
			t.Fatalf("Filter left %d items in %d places, want %d", len(h), cap(h), len(slow))
		}
		for i := range h {
			h[i] = -h[i]
		}
		h.Init()
		for _, n := range slices.Backward(slow) {
			if got := h.Pop(); got != -n {
				t.Fatalf("Pop() after Init = %d, want %d", got, -n)
			}
		}
	})
}
