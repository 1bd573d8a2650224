package telemetry

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// maxBounds is the length of the longest table of bounds.
const maxBounds = 20

// handlingBounds are the upper bounds of how long requests take: a decision in memory takes microseconds,
// one at a shared store milliseconds, and one at a store that does not answer half a second.
var handlingBounds = [...]time.Duration{
	time.Microsecond, 2500 * time.Nanosecond, 5 * time.Microsecond, 10 * time.Microsecond,
	25 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond,
	500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond,
}

// waitingBounds are the upper bounds of how long requests wait in line, which their clients choose.
var waitingBounds = [...]time.Duration{
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
	25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond,
	500 * time.Millisecond, time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second,
	30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour,
}

// A histogram counts durations. Prometheus' own cannot count many that are equal at once, which is what makes
// one for each batch of RESP cheap.
type histogram struct {
	buckets [maxBounds + 1]atomic.Uint64 // not cumulative; the last is for what is above all bounds
	total   atomic.Int64                 // ns
}

// observeEqual notes n equal durations.
func (h *histogram) observeEqual(bounds []time.Duration, d time.Duration, n uint64) {
	i := 0
	// From below, as most requests end in the first few buckets.
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.buckets[i].Add(n)
	h.total.Add(int64(d) * int64(n)) // a count of requests
}

// A histogramSum is several histograms together.
type histogramSum struct {
	buckets [maxBounds + 1]uint64
	total   int64
}

func (s *histogramSum) addHistogram(h *histogram) {
	for i := range h.buckets {
		s.buckets[i] += h.buckets[i].Load()
	}
	s.total += h.total.Load()
}

// sendHistogram sends the sum, unless nothing was observed.
func (s *histogramSum) sendHistogram(
	to chan<- prometheus.Metric, bounds []time.Duration, desc *prometheus.Desc, labels ...string,
) {
	count := uint64(0)
	below := make(map[float64]uint64, len(bounds))
	for i, bound := range bounds {
		// Prometheus wants cumulative counts. The bucket above all bounds is only in the count.
		count += s.buckets[i]
		below[bound.Seconds()] = count
	}
	count += s.buckets[len(bounds)]
	// An operation whose requests never waited has no histogram of waiting.
	if count == 0 {
		return
	}
	seconds := time.Duration(s.total).Seconds()
	to <- prometheus.MustNewConstHistogram(desc, count, seconds, below, labels...)
}
