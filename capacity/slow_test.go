package capacity

import (
	"cmp"
	"math"
	"slices"
)

// This file is how things are worked out slowly, with loops over everybody.

// A want is what one holder wants of a priority.
type want struct {
	client   string
	priority int64
	clients  int64
	wants    float64
}

func totals(all []want) (wants float64, clients int64) {
	for _, w := range all {
		wants += w.wants
		clients += w.clients
	}
	return wants, clients
}

// slowShares are the shares of a capacity, in the order of all.
func slowShares(kind AlgorithmKind, strict bool, capacity float64, all []want) []float64 {
	shares := make([]float64, len(all))
	if !strict || kind == Static || kind == NoAlgorithm {
		slowPool(kind, capacity, all, shares)
		return shares
	}
	var priorities []int64
	for _, w := range all {
		if !slices.Contains(priorities, w.priority) {
			priorities = append(priorities, w.priority)
		}
	}
	slices.SortFunc(priorities, func(a, b int64) int { return cmp.Compare(b, a) })
	for _, p := range priorities {
		var band []want
		var at []int
		for i, w := range all {
			if w.priority == p {
				band, at = append(band, w), append(at, i)
			}
		}
		part := make([]float64, len(band))
		slowPool(kind, capacity, band, part)
		for i := range band {
			shares[at[i]] = part[i]
		}
		wants, _ := totals(band)
		capacity = max(0, capacity-wants)
	}
	return shares
}

func slowPool(kind AlgorithmKind, capacity float64, all []want, shares []float64) {
	switch kind {
	case FairShare:
		slowFair(capacity, all, shares)
	case ProportionalShare:
		slowProportional(capacity, all, shares)
	case Static:
		for i, w := range all {
			shares[i] = min(w.wants, capacity*float64(w.clients))
		}
	default:
		for i, w := range all {
			shares[i] = w.wants
		}
	}
}

// slowFair pours the capacity in rounds: what is left is given in equal parts to all who want more, until
// nobody does or nothing is left.
func slowFair(capacity float64, all []want, shares []float64) {
	for range len(all) + 1 {
		var thirsty int64
		for i, w := range all {
			if shares[i] < w.wants {
				thirsty += w.clients
			}
		}
		if thirsty == 0 || capacity <= 0 {
			return
		}
		part := capacity / float64(thirsty)
		filled := false
		for i, w := range all {
			if shares[i] < w.wants && shares[i]+part*float64(w.clients) >= w.wants {
				capacity -= w.wants - shares[i]
				shares[i] = w.wants
				filled = true
			}
		}
		if filled {
			continue // the part of those who remain is larger now
		}
		for i, w := range all {
			if shares[i] < w.wants {
				shares[i] += part * float64(w.clients)
			}
		}
		return
	}
}

// slowProportional is doorman's formula.
func slowProportional(capacity float64, all []want, shares []float64) {
	wants, clients := totals(all)
	equal := capacity / float64(clients)
	var extra, need float64
	for _, w := range all {
		if deserved := equal * float64(w.clients); w.wants < deserved {
			extra += deserved - w.wants
		} else {
			need += w.wants - deserved
		}
	}
	for i, w := range all {
		deserved := equal * float64(w.clients)
		shares[i] = w.wants
		if wants > capacity && w.wants > deserved {
			shares[i] = math.Min(w.wants, deserved+(w.wants-deserved)*extra/need)
		}
	}
}
