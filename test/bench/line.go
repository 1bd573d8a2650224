package main

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// lines measures what it costs to grant to the first in line, for lines of different lengths.
func lines(_ context.Context, b *bench) (text string, rows []row, err error) {
	most := b.scale(100_000, 10_000)
	// Every length divides most, so that each measure grants equally often and only the length of the line
	// differs.
	lengths := []int{1_000, 10_000, 100_000}[:b.scale(3, 2)]
	var measures []func() (float64, error)
	for _, drain := range []func(q *queue, length int) time.Duration{handOver, refill} {
		for _, length := range lengths {
			q := newQueue(length)
			measures = append(measures, func() (float64, error) {
				runtime.GC() // what others left
				took := time.Duration(0)
				// A short line is worked off many times: one pass would be too short to time.
				for range most / length {
					took += drain(q, length)
				}
				return float64(took) / float64(most), nil
			})
		}
	}
	all, err := b.race(measures...)
	if err != nil {
		return "", nil, err
	}
	for i, what := range []string{"semaphore of 1, handed over by release", "token bucket of 100, refilled"} {
		results := all[i*len(lengths):][:len(lengths)]
		for j, length := range lengths[1:] {
			growth := budget{most: math.Log(float64(length)) / math.Log(float64(lengths[0]))}
			what := fmt.Sprintf("%s: %d in line", what, length)
			rows = append(rows, row{what, results[0], results[j+1], nanoseconds, growth, ""})
		}
	}
	text = "The time of one grant while a line is worked off, nobody's goroutine waiting. The floor is a\n" +
		"line of 1000; the budget is the logarithm of the length. Each release, and each refill, is a\n" +
		"command of its own that is counted in."
	return text, rows, nil
}

// A queue is a gate with room for a line, in virtual time.
type queue struct {
	*gate.Gate
	now     atomic.Int64 // Unix ns
	granted int
}

func newQueue(length int) *queue {
	q := new(queue)
	q.now.Store(time.Now().UnixNano())
	// Virtual time: a refill after an hour takes no time.
	store := memory.New(memory.Config{Now: func() time.Time { return time.Unix(0, q.now.Load()) }})
	q.Gate = gate.New(store, gate.Config{Waiters: length, Line: length})
	return q
}

// submit puts a command into the line.
func (q *queue) submit(key gatehouse.Key, cmd gatehouse.Command) {
	q.Submit(&gate.Request{Key: key, Command: cmd, Decided: func(r *gate.Request) {
		if r.Err != nil || r.Decision.Outcome != gatehouse.Granted {
			panic(fmt.Sprintf("%s in line: %s, %v, want granted", key, r.Decision.Outcome, r.Err))
		}
		q.granted++
	}})
}

// time returns how long do takes, which must grant to length commands in line.
func (q *queue) time(length int, do func()) time.Duration {
	q.granted = 0
	start := time.Now()
	do()
	took := time.Since(start)
	if q.granted != length {
		panic(fmt.Sprintf("%d in line were granted, want %d", q.granted, length))
	}
	return took
}

// handOver returns how long it takes until everybody in line has held the semaphore.
func handOver(q *queue, length int) time.Duration {
	key := gatehouse.Key{Kind: gatehouse.Semaphore, Name: "bench"}
	hold := gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "first", Rule: gatehouse.Rule{Size: 1}, Cost: 1,
		Expires: time.Hour, MaxWait: gatehouse.Forever,
	}
	release := func(holder string) {
		grant(q.Gate, key, gatehouse.Command{Op: gatehouse.OpRelease, Holder: holder})
	}
	// One holder first, so that all others have to get into line.
	grant(q.Gate, key, hold)
	holders := make([]string, length)
	for i := range holders {
		holders[i] = strconv.Itoa(i)
		hold.Holder = holders[i]
		q.submit(key, hold)
	}
	// Releasing in the order of the line: each release grants to the next, which is the one released then.
	took := q.time(length, func() {
		release("first")
		for _, holder := range holders[:length-1] {
			release(holder)
		}
	})
	// The last holder goes too, outside the time: the next pass begins with a free semaphore.
	release(holders[length-1])
	return took
}

// refill returns how long it takes until everybody in line has got a token, the intervals taking
// no time.
func refill(q *queue, length int) time.Duration {
	const size = 100
	key := gatehouse.Key{Kind: gatehouse.TokenBucket, Name: "bench"}
	take := gatehouse.Command{
		Op:   gatehouse.OpAcquire,
		Rule: gatehouse.Rule{Size: size, Interval: time.Hour}, Cost: size, MaxWait: gatehouse.Forever,
	}
	// A new interval, then all of its tokens in one command: the line begins at an empty bucket.
	q.now.Add(int64(take.Interval))
	grant(q.Gate, key, take)
	take.Cost = 1
	for range length {
		q.submit(key, take)
	}
	return q.time(length, func() {
		// Each interval brings tokens for 100 of the line; every length is a multiple of that.
		for range length / size {
			q.now.Add(int64(take.Interval))
			grant(q.Gate, key, gatehouse.Command{Op: gatehouse.OpStats}) // has the line served
		}
	})
}
