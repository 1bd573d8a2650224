package main

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// asFast is the budget against another library: as fast, or at most a tenth slower.
const asFast = 1.1

// direct measures limiters that need no server, ours beside others.
func direct(_ context.Context, b *bench) (text string, rows []row, err error) {
	all := contestants()
	// Each of the three starts with limiters of its own, so that none inherits what another has filled.
	for _, series := range []func(*bench, []contestant) ([]row, error){hotSerial, hotParallel, manyLimits} {
		more, err := series(b, all)
		if err != nil {
			return "", nil, err
		}
		rows = append(rows, more...)
	}
	text = "`limiter.Limiter` and `limiter.Keyed`, in turns with other libraries: the first column of figures\n" +
		"is that of whatever the row names. Libraries that know no keys get them by a `map` with a\n" +
		"`sync.RWMutex`. Times with two goroutines are for one command of one goroutine while the other\n" +
		"is at work; keys are taken in two random orders. Bytes are of the heap for a key at rest, with\n" +
		"its name of 12 bytes. throttled gives up with an error when it loses ten races for one key."
	return text, rows, nil
}

// against are the rows of ours against each of the others.
func against(what string, all []contestant, results []series, unit func(float64) string) []row {
	var rows []row
	// The first contestant is ours.
	for i, c := range all[1:] {
		name := what + ", against " + c.name
		rows = append(rows, row{name, results[i+1], results[0], unit, budget{most: asFast}, ""})
	}
	return rows
}

// hotSerial has one goroutine and one limit.
func hotSerial(b *bench, all []contestant) ([]row, error) {
	// The same floor as for the gate: no limiter can do without a compare-and-swap and a clock.
	floor := casAndClock()
	measures := []func() (float64, error){b.perOp(floor)}
	for _, c := range all {
		take := c.one()
		measures = append(measures, b.perOp(func(n int) {
			for range n {
				take()
			}
		}))
	}
	results, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	const what = "hot, one goroutine"
	// A fresh limiter will do: AllocsPerRun calls it once before it counts.
	note := fmt.Sprintf("allocations: %.0f", testing.AllocsPerRun(10_000, all[0].one()))
	rows := []row{{what, results[0], results[1], nanoseconds, budget{most: 1.8},
		"the floor: a compare-and-swap and a clock; " + note}}
	return append(rows, against(what, all, results[1:], nanoseconds)...), nil
}

// hotParallel has two goroutines and one limit.
func hotParallel(b *bench, all []contestant) ([]row, error) {
	floor := casAndClock()
	measures := []func() (float64, error){b.perOpOfTwo(floor)}
	for _, c := range all {
		// One limiter for both goroutines: the row is about contention.
		take := c.one()
		measures = append(measures, b.perOpOfTwo(func(n int) {
			for range n {
				take()
			}
		}))
	}
	results, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	const what = "hot, two goroutines"
	rows := []row{{what, results[0], results[1], nanoseconds, budget{}, "the floor as above"}}
	return append(rows, against(what, all, results[1:], nanoseconds)...), nil
}

// perOpOfTwo is perOp in two goroutines: the nanoseconds of one, while the other is at work.
func (b *bench) perOpOfTwo(do func(n int)) func() (float64, error) {
	const chunk = 100_000 // long enough that the start of a goroutine is nothing
	least := time.Duration(b.scale(300, 50)) * time.Millisecond
	return func() (float64, error) {
		n, start := 0, time.Now()
		for time.Since(start) < least {
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() { do(chunk) })
			}
			group.Wait()
			// Not twice: the figure is the time of one goroutine's commands, while the other does as many.
			n += chunk
		}
		return float64(time.Since(start)) / float64(n), nil
	}
}

// manyLimits has many keys, a limit each.
func manyLimits(b *bench, all []contestant) ([]row, error) {
	// All of one length, so that names weigh the same in every row.
	names := make([]string, b.scale(1_000_000, 100_000))
	for i := range names {
		names[i] = fmt.Sprintf("user-%07d", i)
	}
	orders := [2][]uint32{order(len(names), 1), order(len(names), 2)}
	var measures []func() (float64, error)
	var sizes []series
	for _, c := range all {
		// Each library is filled before any is timed; all stay until the end, so that the heaps do not
		// shrink in between.
		before := heap()
		take := c.many(len(names))
		for _, name := range names {
			take(strings.Clone(name)) // the name that is kept is counted, whoever keeps it
		}
		sizes = append(sizes, series{(heap() - before) / float64(len(names))})
		measures = append(measures, func() (float64, error) { return fromTwo(names, orders, take), nil })
	}
	results, err := b.race(measures...)
	if err != nil {
		return nil, err
	}
	what := fmt.Sprintf("%d keys, two goroutines", len(names))
	rows := against(what, all, results, nanoseconds)
	// A limiter that the collector takes early would make the heap of the next one look smaller.
	runtime.KeepAlive(measures)
	return append(rows, against("memory of a key", all, sizes, bytes)...), nil
}
