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
	figures
	bands []figures // of the keys by their load, when there are many; see bandsFrom
}

// figures are what was measured on some requests.
type figures struct {
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
	keys := traffic.make(stream(p.seed, traffic.name), p.windows)
	if len(keys) == 1 {
		return result{traffic: traffic, figures: try(keys)}
	}
	inBand := make([][][]int64, len(bandsFrom))
	for _, requests := range keys {
		load := float64(len(requests)) / size / float64(mixWindows(p.windows))
		i, exactly := slices.BinarySearch(bandsFrom, load)
		if !exactly {
			i--
		}
		inBand[i] = append(inBand[i], requests)
	}
	r := result{traffic: traffic, figures: try(nil)}
	for _, keys := range inBand {
		f := try(keys)
		r.bands = append(r.bands, f)
		r.add(f)
	}
	return r
}

// add adds the figures of other requests.
func (f *figures) add(other figures) {
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
func try(keys [][]int64) figures {
	tried, counting := candidates(), counters()
	f := figures{verdicts: make([]verdict, len(tried)), counts: make([]reckoning, len(counting))}
	var jobs []func(requests []int64)
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
