package main

import (
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
)

// A plan is what is measured.
type plan struct {
	seed     uint64
	windows  int
	progress io.Writer // nil is nobody
}

// A result is one row of the tables.
type result struct {
	traffic traffic
	requestFigures
	bands []requestFigures // of the keys by their load, when there are many; see bandsFrom
}

// requestFigures are what was measured on some requests.
type requestFigures struct {
	exact    verdict
	verdicts []verdict   // of the candidates, in their order
	counts   []reckoning // of the counters, in their order
}

// bandsFrom are the loads at which the bands begin.
var bandsFrom = []float64{0, 0.5, 0.8, 1.2, 2}

// measure tries all candidates on all traffic.
func measure(p plan) []result {
	var results []result
	for _, traffic := range traffics() {
		r := p.row(traffic)
		results = append(results, r)
		if p.progress != nil {
			_, _ = fmt.Fprintf(p.progress, "%-26s %9d requests\n", traffic.name, r.exact.offered)
		}
	}
	return results
}

// row tries all candidates on one traffic.
func (p plan) row(traffic traffic) result {
	// The random numbers come from the name of the row: a new row must not change the figures of the
	// others.
	keys := traffic.make(stream(p.seed, traffic.name), p.windows)
	// A single key has a single load, so there is nothing to split by load.
	if len(keys) == 1 {
		return result{traffic: traffic, requestFigures: try(keys)}
	}
	inBand := make([][][]int64, len(bandsFrom))
	for _, requests := range keys {
		// The band follows the load that came, not the load that was drawn: for a few windows the two
		// differ.
		load := float64(len(requests)) / size / float64(mixWindows(p.windows))
		i, exactly := slices.BinarySearch(bandsFrom, load)
		// BinarySearch returns where load would be inserted, which is one band too far, unless a band
		// begins right at it.
		if !exactly {
			i--
		}
		inBand[i] = append(inBand[i], requests)
	}
	// try without keys yields empty figures of the right lengths, which the bands are then added to.
	r := result{traffic: traffic, requestFigures: try(nil)}
	for _, keys := range inBand {
		// The bands together are all keys: adding them up saves a second run over the same requests.
		f := try(keys)
		r.bands = append(r.bands, f)
		r.add(f)
	}
	return r
}

// add adds the figures of other requests.
func (f *requestFigures) add(other requestFigures) {
	f.exact.add(other.exact)
	for i := range f.verdicts {
		f.verdicts[i].add(other.verdicts[i])
	}
	for i := range f.counts {
		f.counts[i].add(other.counts[i])
	}
}

// try puts all candidates to the requests of some keys, as many at a time as there are processors. Each
// key has a limiter of its own.
func try(keys [][]int64) requestFigures {
	// Each job writes only to its own element of f, so no lock is needed.
	tried, counting := candidates(), counters()
	f := requestFigures{verdicts: make([]verdict, len(tried)), counts: make([]reckoning, len(counting))}
	var jobs []func(requests []int64)
	// The zero limiter has kind 0, which judge takes for the exact log.
	jobs = append(jobs, func(requests []int64) { f.exact.judge(new(limiter), requests) })
	for i, c := range tried {
		jobs = append(jobs, func(requests []int64) { f.verdicts[i].judge(&limiter{candidate: c}, requests) })
	}
	for i, c := range counting {
		jobs = append(jobs, func(requests []int64) { f.counts[i].count(&limiter{candidate: c}, requests) })
	}
	room := make(chan struct{}, runtime.GOMAXPROCS(0))
	var done sync.WaitGroup
	for _, job := range jobs {
		// Taking a place before the goroutine starts bounds how many exist, not only how many run.
		room <- struct{}{}
		done.Go(func() {
			for _, requests := range keys {
				job(requests)
			}
			<-room
		})
	}
	done.Wait()
	return f
}
