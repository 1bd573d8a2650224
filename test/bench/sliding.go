package main

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	upstream "github.com/RussellLuo/slidingwindow"
	"github.com/gatehousehq/gatehouse/slidingwindow"
)

const (
	// exchanges is how often windows exchange their counts, as in the original's own example.
	exchanges = 200 * time.Millisecond
	// windowSize is long enough that it does not turn while it is measured.
	windowSize = 24 * time.Hour
	windowMost = math.MaxInt64 / 2
)

// A window is one way of counting, by ours and by the original.
type window struct {
	what           string
	original, ours func() (allow func() bool, stop func())
}

func windows() []window {
	return []window{
		// Each maker starts a limiter of its own; the makers exist so that no goroutine of a synchroniser
		// runs before its row.
		{"local", func() (func() bool, func()) {
			l, stop := upstream.NewLimiter(windowSize, windowMost, func() (upstream.Window, upstream.StopFunc) {
				return upstream.NewLocalWindow()
			})
			return l.Allow, stop
		}, func() (func() bool, func()) {
			l, stop := slidingwindow.NewLimiter(windowSize, windowMost, newLocalWindow)
			return l.Allow, stop
		}},
		{"synchronised, blocking", func() (func() bool, func()) {
			return originalSync(upstream.NewBlockingSynchronizer(newTotals(), exchanges))
		}, func() (func() bool, func()) {
			return oursSync(slidingwindow.NewBlockingSynchronizer(newTotals(), exchanges))
		}},
		{"synchronised, not blocking", func() (func() bool, func()) {
			return originalSync(upstream.NewNonblockingSynchronizer(newTotals(), exchanges))
		}, func() (func() bool, func()) {
			return oursSync(slidingwindow.NewNonblockingSynchronizer(newTotals(), exchanges))
		}},
	}
}

func newLocalWindow() (slidingwindow.Window, slidingwindow.StopFunc) {
	return slidingwindow.NewLocalWindow()
}

func originalSync(synchronizer upstream.Synchronizer) (allow func() bool, stop func()) {
	l, stop := upstream.NewLimiter(windowSize, windowMost, func() (upstream.Window, upstream.StopFunc) {
		return upstream.NewSyncWindow("bench", synchronizer)
	})
	return l.Allow, stop
}

func oursSync(synchronizer slidingwindow.Synchronizer) (allow func() bool, stop func()) {
	l, stop := slidingwindow.NewLimiter(windowSize, windowMost,
		func() (slidingwindow.Window, slidingwindow.StopFunc) {
			return slidingwindow.NewSyncWindow("bench", synchronizer)
		})
	return l.Allow, stop
}

// sliding measures Allow of the package with the original's names against the original.
func sliding(_ context.Context, b *bench) (text string, rows []row, err error) {
	for _, w := range windows() {
		r, err := b.slidingRow(w)
		if err != nil {
			return "", nil, err
		}
		rows = append(rows, r)
	}
	text = "`Limiter.Allow` of package slidingwindow against RussellLuo/slidingwindow, the floor here, one\n" +
		"goroutine, all let through. Synchronised windows exchange their counts every 200 ms with a store\n" +
		"that is a map in the same process."
	return text, rows, nil
}

func (b *bench) slidingRow(w window) (row, error) {
	original, stopOriginal := w.original()
	defer stopOriginal()
	ours, stopOurs := w.ours()
	defer stopOurs()
	// Both are called through a function value, so that the call costs both the same.
	repeat := func(allow func() bool) func(n int) {
		return func(n int) {
			for range n {
				let(w.what, allow())
			}
		}
	}
	all, err := b.race(b.perOp(repeat(original)), b.perOp(repeat(ours)))
	if err != nil {
		return row{}, err
	}
	allocations := func(allow func() bool) float64 {
		return testing.AllocsPerRun(100_000, func() { allow() })
	}
	note := fmt.Sprintf("allocations: %.0f, the original's: %.0f", allocations(ours), allocations(original))
	return row{"Allow, " + w.what, all[0], all[1], nanoseconds, budget{most: 0.9}, note}, nil
}

// totals are a store that windows exchange their counts with.
type totals struct {
	mu    sync.Mutex
	count map[int64]int64 // by the start of the window
}

func newTotals() *totals { return &totals{count: make(map[int64]int64)} }

// Add is asked by both packages.
func (t *totals) Add(_ string, start, delta int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.count[start] += delta
	return t.count[start], nil
}

// Get is asked by both packages.
func (t *totals) Get(_ string, start int64) (int64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.count[start], nil
}
