package capacity

import (
	"math"
	"slices"
)

// An exactSum is an exact running sum of finite numbers: what is added and taken away again leaves no trace,
// whatever else is in it. The zero value is 0.
//
// It keeps partial sums that do not overlap, the smallest first, as Python's math.fsum does; 1e20 + 1 is kept
// as 1 and 1e20. There are one to three of them in practice, and 40 at most.
type exactSum struct{ parts []float64 }

// add adds a number, which may be negative.
func (s *exactSum) add(x float64) {
	kept := 0
	for _, part := range s.parts {
		// The rounding error below is only exact if the larger number comes first.
		if math.Abs(x) < math.Abs(part) {
			x, part = part, x
		}
		high := x + part
		low := part - (high - x) // what was rounded away
		if low != 0 {
			s.parts[kept] = low
			kept++
		}
		x = high
	}
	if x != 0 {
		s.parts = append(s.parts[:kept], x)
		return
	}
	s.parts = s.parts[:kept]
}

// replace replaces a number that was added before by another.
func (s *exactSum) replace(old, x float64) {
	if old == x {
		return
	}
	s.add(-old)
	s.add(x)
}

// without returns the sum except for a number that was added before. Only the result is rounded: 50 is left
// of 1e20 and 50 without 1e20.
func (s *exactSum) without(x float64) float64 {
	s.add(-x)
	rest := s.value()
	s.add(x)
	return rest
}

// value returns the sum, rounded.
func (s *exactSum) value() float64 {
	total := 0.0
	// From the largest down, so that the small parts decide the last bit together.
	for _, part := range slices.Backward(s.parts) {
		total += part
	}
	return total
}
