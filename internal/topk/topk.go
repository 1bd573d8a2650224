// Package topk finds the keys that are counted most among any number of keys, in memory of a fixed size, by
// the algorithm Space-Saving: https://doi.org/10.1007/978-3-540-30570-5_27.
//
// There is a number of counters. A key that has none takes the smallest one over, with what that has counted:
// this much a key may have been counted too high, and no key is ever counted too low. Every key with more
// than its share of all that was counted, the total divided by the counters, has a counter.
//
// Old counts fade: after HalfLife each is worth half. Where more is counted than MaxSampled a second, every
// second, fourth, eighth one is, at random, for as many.
package topk

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// HalfLife is the time after which a count is worth half.
const HalfLife = 5 * time.Minute

// MaxSampled is about how many counts a second are looked at. Each costs 50 ns to 1 µs, so all of them are
// at most a thousandth of a processor's time.
const MaxSampled = 1000

// A Sketch counts keys. It is safe for use by many goroutines. Make one with New.
type Sketch[K comparable] struct {
	shift atomic.Uint32 // one of 1<<shift counts is looked at

	mu       sync.Mutex
	most     int
	counters map[K]*counter[K]
	heap     []*counter[K] // the smallest first
	start    time.Time     // a count at this time weighs 1, later ones more
	weight   float64       // of a count in the present second
	second   int64
	sampled  int // in the present second
}

// A counter is one key, with its place in the heap.
type counter[K comparable] struct {
	key           K
	count, excess float64 // at the start
	place         int
}

// New returns a sketch with a number of counters.
func New[K comparable](counters int) *Sketch[K] {
	return &Sketch[K]{most: counters, counters: make(map[K]*counter[K])}
}

// Count counts a key n times, at an instant of any clock that goes on. They are looked at together, or none
// is.
func (s *Sketch[K]) Count(key K, n int, at time.Time) {
	shift := s.shift.Load()
	// Most calls end here where there are many, without a lock.
	if shift > 0 && rand.Uint64()&(1<<shift-1) != 0 {
		return
	}
	s.mu.Lock()
	s.pass(at)
	s.add(key, float64(n)*math.Ldexp(s.weight, int(shift))) // at most maxShift
	s.mu.Unlock()
}

// maxShift lets one of 16 million counts be looked at.
const maxShift = 24

// pass notes that it is later than before, and decides how many counts are looked at. It is called with the
// lock held.
func (s *Sketch[K]) pass(at time.Time) {
	second := at.Unix()
	if second > s.second {
		s.slowDown(second - s.second)
		s.second, s.sampled = second, 0
		s.setWeight(at)
	}
	s.sampled++
	// Within a second, so that a sudden rush is sampled before it is over.
	if s.sampled > MaxSampled && s.shift.Load() < maxShift {
		s.shift.Add(1)
		s.sampled = 0
	}
}

// slowDown has more counts looked at if there were few in the last seconds.
func (s *Sketch[K]) slowDown(seconds int64) {
	rate := max(int64(s.sampled), 1) / seconds
	// Each step doubles what is looked at. A quarter of the bound leaves room, so that the rate does not
	// swing.
	for shift := s.shift.Load(); shift > 0 && rate < MaxSampled/4; shift-- {
		s.shift.Store(shift - 1)
		rate = 2*rate + 1
	}
}

// maxHalvings is how often all counts are worth half before they are written anew: far from what a float64
// cannot hold.
const maxHalvings = 64

// setWeight sets what a count weighs at an instant: instead of letting all old counts fade, later ones weigh
// more.
func (s *Sketch[K]) setWeight(at time.Time) {
	if s.start.IsZero() {
		s.start = at
	}
	s.weight = math.Exp2(float64(at.Sub(s.start)) / float64(HalfLife))
	// Only once in hours: all counters are written.
	if s.weight < 1<<maxHalvings {
		return
	}
	for _, c := range s.heap {
		c.count /= s.weight
		c.excess /= s.weight
	}
	s.start, s.weight = at, 1
}

// add counts a key with a weight.
func (s *Sketch[K]) add(key K, weight float64) {
	c := s.counters[key]
	switch {
	case c != nil:
		c.count += weight
	case len(s.heap) < s.most:
		// With the rest at 0 it would be the smallest, so it goes to the end and rises.
		c = &counter[K]{key: key, count: weight, place: len(s.heap)}
		s.counters[key] = c
		s.heap = append(s.heap, c)
		s.rise(c)
		return
	default:
		// The newcomer may be the key that was dropped before, so it takes over what the smallest has: its
		// count is never too low.
		c = s.heap[0]
		delete(s.counters, c.key)
		c.key, c.excess = key, c.count
		c.count += weight
		s.counters[key] = c
	}
	s.sink(c)
}

// rise moves a counter towards the smallest.
func (s *Sketch[K]) rise(c *counter[K]) {
	for c.place > 0 {
		above := s.heap[(c.place-1)/2]
		if above.count <= c.count {
			return
		}
		s.swap(c, above)
	}
}

// sink moves a counter that has grown away from the smallest.
func (s *Sketch[K]) sink(c *counter[K]) {
	for {
		child := 2*c.place + 1
		if child >= len(s.heap) {
			return
		}
		// The smaller of the two comes up, as it becomes the parent of the other.
		if child+1 < len(s.heap) && s.heap[child+1].count < s.heap[child].count {
			child++
		}
		if s.heap[child].count >= c.count {
			return
		}
		s.swap(c, s.heap[child])
	}
}

func (s *Sketch[K]) swap(a, b *counter[K]) {
	s.heap[a.place], s.heap[b.place] = b, a
	a.place, b.place = b.place, a.place
}

// An Entry is a key and how often it was counted: at most Count, and at least Count less Excess, where all
// was looked at. Old counts are worth less than 1.
type Entry[K comparable] struct {
	Key           K
	Count, Excess float64
}

// Top returns the keys that were counted most, the largest count first, at most k, as they are at an instant.
// Counts that have faded to less than half of one are left out.
func (s *Sketch[K]) Top(k int, at time.Time) []Entry[K] {
	s.mu.Lock()
	now := s.fade(at)
	all := make([]Entry[K], 0, len(s.heap))
	for _, c := range s.heap {
		if e := (Entry[K]{c.key, c.count * now, c.excess * now}); e.Count >= 0.5 {
			all = append(all, e)
		}
	}
	s.mu.Unlock()
	slices.SortFunc(all, func(a, b Entry[K]) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(max(k, 0), len(all))]
}

// fade returns what a count of the start is worth at an instant.
func (s *Sketch[K]) fade(at time.Time) float64 {
	if s.start.IsZero() {
		return 1
	}
	// A reader's clock may lie before the first count; then nothing has faded.
	return math.Exp2(-max(0, float64(at.Sub(s.start))) / float64(HalfLife))
}
