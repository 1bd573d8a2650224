package capacity

import (
	"slices"
	"strings"
)

// A sorted list keeps things in the order of their names, so that they can be shown page by page. It is a
// list of short lists.
type sorted[T comparable] struct {
	name  func(T) string
	parts [][]T // none is empty
	count int
}

// mostInPart is how long a part may be. A million are four thousand parts then, and both are searched
// by halves.
const mostInPart = 512

// part is the one where a name is, or would be.
func (s *sorted[T]) part(name string) int {
	k, found := slices.BinarySearchFunc(s.parts, name, func(part []T, name string) int {
		return strings.Compare(s.name(part[0]), name)
	})
	if !found {
		k--
	}
	return max(k, 0)
}

func (s *sorted[T]) find(part []T, name string) (int, bool) {
	return slices.BinarySearchFunc(part, name, func(x T, name string) int {
		return strings.Compare(s.name(x), name)
	})
}

// add puts something in, whose name is not there yet.
func (s *sorted[T]) add(x T) {
	s.count++
	if len(s.parts) == 0 {
		s.parts = [][]T{{x}}
		return
	}
	p := s.part(s.name(x))
	k, _ := s.find(s.parts[p], s.name(x))
	part := slices.Insert(s.parts[p], k, x)
	if len(part) > mostInPart {
		half := len(part) / 2
		if k == len(part)-1 {
			half = k // they come in order: leave full parts behind
		}
		s.parts = slices.Insert(s.parts, p+1, slices.Clone(part[half:]))
		clear(part[half:])
		part = part[:half]
	}
	s.parts[p] = part
}

// remove takes something out that is there.
func (s *sorted[T]) remove(x T) {
	s.count--
	p := s.part(s.name(x))
	k, _ := s.find(s.parts[p], s.name(x))
	s.parts[p] = slices.Delete(s.parts[p], k, k+1)
	switch n := len(s.parts[p]); {
	case n == 0:
		s.parts = slices.Delete(s.parts, p, p+1)
	case p+1 < len(s.parts) && n+len(s.parts[p+1]) < mostInPart/2:
		s.parts[p] = append(s.parts[p], s.parts[p+1]...)
		s.parts = slices.Delete(s.parts, p+1, p+2)
	}
}

// after are the first after a name, at most so many.
func (s *sorted[T]) after(name string, most int) []T {
	if most <= 0 || len(s.parts) == 0 {
		return nil
	}
	p := s.part(name)
	k, found := s.find(s.parts[p], name)
	if found {
		k++
	}
	var page []T
	for ; p < len(s.parts) && len(page) < most; p, k = p+1, 0 {
		part := s.parts[p][k:]
		page = append(page, part[:min(len(part), most-len(page))]...)
	}
	return page
}

// all walks over everything in order. Nothing may be added or removed meanwhile.
func (s *sorted[T]) all(yield func(T) bool) {
	for _, part := range s.parts {
		for _, x := range part {
			if !yield(x) {
				return
			}
		}
	}
}
