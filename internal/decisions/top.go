package decisions

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/topk"
)

// A Measure is what names and users are compared by.
type Measure int

// The measures.
const (
	Granted Measure = iota
	Refused
	Waited // decisions that came after a wait in line
	numMeasures
)

var measureNames = [numMeasures]string{"granted", "refused", "waited"}

// String returns the measure in lower case.
func (m Measure) String() string { return measureNames[m] }

// ParseMeasure returns the measure with this name; ok is false when there is none.
func ParseMeasure(name string) (m Measure, ok bool) {
	i := slices.Index(measureNames[:], name)
	return Measure(max(i, 0)), i >= 0
}

// counters is how many names of one kind have a counter, and how many users: with names of 40 bytes 70 KiB
// for each kind and measure in use, 300 KiB if they are as long as they may be.
const counters = 512

// A sketch is made when it is first counted in: most servers use few kinds.
type sketch[K comparable] struct {
	made atomic.Pointer[topk.Sketch[K]]
}

func (s *sketch[K]) count(key K, n int, at time.Time) {
	made := s.made.Load()
	if made == nil {
		// If another goroutine was faster, its sketch is used and this one is dropped.
		s.made.CompareAndSwap(nil, topk.New[K](counters))
		made = s.made.Load()
	}
	made.Count(key, n, at)
}

func (s *sketch[K]) top(k int, at time.Time) []topk.Entry[K] {
	made := s.made.Load()
	if made == nil {
		return nil
	}
	return made.Top(k, at)
}

// A UserAt is a user of a name.
type UserAt struct {
	Key  gatehouse.Key
	User string
}

// A Name is one of the busiest names, with how often it was asked lately: see [topk.Entry].
type Name struct {
	Key           gatehouse.Key
	Count, Excess float64
}

// countMeasure counts n uses by one measure.
func (o *Recorder) countMeasure(m Measure, n int, u *uses) {
	if n == 0 {
		return
	}
	o.names[m][u.key.Kind].count(u.key.Name, n, *u.at)
	// Pairs are counted apart, as the busiest user of a quiet name may be quiet overall.
	if u.user != "" {
		o.users[m].count(u.user, n, *u.at)
		o.byUser[m].count(UserAt{*u.key, u.user}, n, *u.at)
	}
}

// TopNames returns the names that were counted most by a measure, the largest count first, at most k: those
// of one kind, or for 0 of all.
func (o *Recorder) TopNames(m Measure, kind gatehouse.Kind, k int) []Name {
	var all []Name
	for known := gatehouse.Kind(1); int(known) < gatehouse.Kinds; known++ {
		if kind != 0 && kind != known {
			continue
		}
		// The k busiest of all are among the k busiest of each kind.
		for _, e := range o.names[m][known].top(k, o.now()) {
			all = append(all, Name{gatehouse.Key{Kind: known, Name: e.Key}, e.Count, e.Excess})
		}
	}
	slices.SortStableFunc(all, func(a, b Name) int { return cmp.Compare(b.Count, a.Count) })
	return all[:min(max(k, 0), len(all))]
}

// TopUsers returns the users that were counted most by a measure, at most k.
func (o *Recorder) TopUsers(m Measure, k int) []topk.Entry[string] {
	return o.users[m].top(k, o.now())
}

// TopUsersAt returns the users of one name that were counted most by a measure, at most mostCauses, as far as
// they are among the busiest pairs of user and name.
func (o *Recorder) TopUsersAt(m Measure, key gatehouse.Key) []topk.Entry[string] {
	var all []topk.Entry[string]
	// All counters are looked at, as those of one name lie anywhere among them; the largest come first.
	for _, e := range o.byUser[m].top(counters, o.now()) {
		if e.Key.Key == key && len(all) < mostCauses {
			all = append(all, topk.Entry[string]{Key: e.Key.User, Count: e.Count, Excess: e.Excess})
		}
	}
	return all
}
