package capacity

// A slab keeps many values of one type by number, without a pointer and an allocation for each. It grows by
// pages, so that a million values are never copied at once.
//
// The pointers that at returns are valid until the next add.
type slab[T any] struct {
	pages [][]T
	free  []int32 // numbers that were removed
}

const (
	pageBits = 10
	pageSize = 1 << pageBits
)

// add makes room for a value and returns its number. The value is what a removed one left there, or the zero
// value.
func (s *slab[T]) add() int32 {
	if n := len(s.free) - 1; n >= 0 {
		i := s.free[n]
		s.free = s.free[:n]
		return i
	}
	last := len(s.pages) - 1
	if last < 0 || len(s.pages[last]) == pageSize {
		// Most resources have one or two leases, so the first page starts small and grows. Later pages are
		// made in full, and so are never moved.
		page := make([]T, 0, 2)
		if last >= 0 {
			page = make([]T, 0, pageSize)
		}
		s.pages = append(s.pages, page)
		last++
	}
	var zero T
	s.pages[last] = append(s.pages[last], zero)
	return int32(last<<pageBits + len(s.pages[last]) - 1)
}

// at returns the value with a number.
func (s *slab[T]) at(i int32) *T { return &s.pages[i>>pageBits][i&(pageSize-1)] }

// remove lets a number be used again. Its value stays as it is until then.
func (s *slab[T]) remove(i int32) { s.free = append(s.free, i) }
