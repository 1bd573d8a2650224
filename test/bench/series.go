package main

import (
	"slices"
	"time"
)

// A series is what was measured, one figure a round.
type series []float64

func (s series) median() float64 {
	sorted := slices.Sorted(slices.Values(s))
	middle := len(sorted) / 2
	// Between the two in the middle, as usual: either alone would lean to one side.
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// over is the ratio to the floor of the same round.
func (s series) over(floor series) series {
	ratios := make(series, len(s))
	for i := range s {
		ratios[i] = s[i] / floor[i]
	}
	return ratios
}

// race measures each of several things once a round, one after the other.
func (b *bench) race(measures ...func() (float64, error)) ([]series, error) {
	all := make([]series, len(measures))
	// Round by round, not thing by thing: a slow minute of the machine then falls on the floor and on ours
	// alike.
	for range b.rounds {
		for i, measure := range measures {
			x, err := measure()
			if err != nil {
				return nil, err
			}
			all[i] = append(all[i], x)
		}
	}
	return all, nil
}

// perOp returns a measure of the nanoseconds that do takes for each of its n operations.
func (b *bench) perOp(do func(n int)) func() (float64, error) {
	const chunk = 10_000
	least := time.Duration(b.scale(300, 50)) * time.Millisecond
	return func() (float64, error) {
		n, start := 0, time.Now()
		// The clock is read once a chunk, not once an operation: a reading costs as much as some operations
		// do.
		for time.Since(start) < least {
			do(chunk)
			n += chunk
		}
		return float64(time.Since(start)) / float64(n), nil
	}
}
