package capacity

import (
	"slices"
	"strings"
)

// A sortedList keeps values in the order of their names, to list them page by page. It is a list of short
// lists.
type sortedList[T comparable] struct {
	nameOf func(T) string
	parts  [][]T // none is empty
	count  int
}

// maxPartLength bounds a part. A million values make four thousand parts, and both levels are searched by
// halves.
const maxPartLength = 512

// partOf returns the index of the part in which a name is, or would be.
func (s *sortedList[T]) partOf(name string) int {
	k, found := slices.BinarySearchFunc(s.parts, name, func(part []T, name string) int {
		return strings.Compare(s.nameOf(part[0]), name)
	})
	if !found {
		k--
	}
	return max(k, 0)
}

func (s *sortedList[T]) findIn(part []T, name string) (int, bool) {
	return slices.BinarySearchFunc(part, name, func(x T, name string) int {
		return strings.Compare(s.nameOf(x), name)
	})
}

// add inserts a value, whose name must not be there yet.
func (s *sortedList[T]) add(x T) {
	s.count++
	if len(s.parts) == 0 {
		s.parts = [][]T{{x}}
		return
	}
	p := s.partOf(s.nameOf(x))
	k, _ := s.findIn(s.parts[p], s.nameOf(x))
	part := slices.Insert(s.parts[p], k, x)
	if len(part) > maxPartLength {
		half := len(part) / 2
		if k == len(part)-1 {
			half = k // they come in order: leave full parts behind
		}
		// The upper half is copied, and its old places cleared, so that nothing is kept alive by the lower
		// half's array.
		s.parts = slices.Insert(s.parts, p+1, slices.Clone(part[half:]))
		clear(part[half:])
		part = part[:half]
	}
	s.parts[p] = part
}

// remove takes out a value that is there.
func (s *sortedList[T]) remove(x T) {
	s.count--
	p := s.partOf(s.nameOf(x))
	k, _ := s.findIn(s.parts[p], s.nameOf(x))
	s.parts[p] = slices.Delete(s.parts[p], k, k+1)
	// Short neighbours are merged well below the bound, so that adds and removes in turn do not split and
	// merge each time.
	switch n := len(s.parts[p]); {
	case n == 0:
		s.parts = slices.Delete(s.parts, p, p+1)
	case p+1 < len(s.parts) && n+len(s.parts[p+1]) < maxPartLength/2:
		s.parts[p] = append(s.parts[p], s.parts[p+1]...)
		s.parts = slices.Delete(s.parts, p+1, p+2)
	}
}

// pageAfter returns the first values after a name, at most most of them.
func (s *sortedList[T]) pageAfter(name string, most int) []T {
	if most <= 0 || len(s.parts) == 0 {
		return nil
	}
	p := s.partOf(name)
	k, found := s.findIn(s.parts[p], name)
	if found {
		k++
	}
	var page []T
	// Only the first part is entered in the middle; in the next ones k is 0.
	for ; p < len(s.parts) && len(page) < most; p, k = p+1, 0 {
		part := s.parts[p][k:]
		page = append(page, part[:min(len(part), most-len(page))]...)
	}
	return page
}

// all walks over all values in order. None may be added or removed meanwhile.
func (s *sortedList[T]) all(yield func(T) bool) {
	for _, part := range s.parts {
		for _, x := range part {
			if !yield(x) {
				return
			}
		}
	}
}
