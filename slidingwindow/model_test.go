package slidingwindow_test

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A model decides as RussellLuo/slidingwindow describes, with exact weights and no care for speed: it
// keeps the count of every window there ever was.
type model struct {
	size, limit int64
	counts      map[int64]int64 // by window, counted from the year 1
}

func (m *model) window(now time.Time) (number, left int64) {
	start := now.Truncate(time.Duration(m.size))
	return new(big.Int).Div(sinceYearOne(start), big.NewInt(m.size)).Int64(), m.size - int64(now.Sub(start))
}

func sinceYearOne(t time.Time) *big.Int {
	seconds := big.NewInt(t.Unix() - time.Time{}.Unix())
	return seconds.Mul(seconds, big.NewInt(1e9)).Add(seconds, big.NewInt(int64(t.Nanosecond())))
}

func (m *model) allow(now time.Time, n int64) bool {
	if n < 0 {
		return false
	}
	window, left := m.window(now)
	sum := new(big.Int).Mul(big.NewInt(m.counts[window-1]), big.NewInt(left))
	sum.Div(sum, big.NewInt(m.size))
	sum.Add(sum, big.NewInt(m.counts[window]))
	sum.Add(sum, big.NewInt(n))
	if sum.Cmp(big.NewInt(m.limit)) > 0 {
		return false
	}
	m.counts[window] += n
	return true
}

var sizes = []int64{
	1, 2, 999, int64(time.Millisecond), int64(time.Second), int64(7 * time.Second), int64(13 * time.Minute),
	int64(7 * 24 * time.Hour), 1_234_567_891,
}

func TestAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom(sizes).Draw(t, "size")
		limits := rapid.OneOf(rapid.Int64Range(-1, 30), rapid.Int64Range(0, 1<<62))
		limit := limits.Draw(t, "limit")
		m := &model{size, limit, map[int64]int64{}}
		l := newModelled(size, limit)
		now := epoch().Add(time.Duration(rapid.Int64Range(0, size-1).Draw(t, "phase")))
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.OneOf(
				rapid.Int64Range(0, size/8), rapid.Int64Range(0, 3*size), rapid.Just(size),
			).Draw(t, "pause")))
			if rapid.IntRange(0, 19).Draw(t, "change") == 0 {
				m.limit = limits.Draw(t, "limit")
				l.SetLimit(m.limit)
			}
			n := rapid.OneOf(
				rapid.Int64Range(-1, 12), rapid.Int64Range(0, 1<<62), rapid.Just(m.limit),
			).Draw(t, "n")
			peek := l.Peek(now, n)
			got, want := l.AllowN(now, n), m.allow(now, n)
			if got != want || peek.OK != want {
				t.Fatalf("AllowN(%v, %d) = %v, peeked %v, want %v", now.Sub(epoch()), n, got, peek.OK, want)
			}
		}
	})
}

// What is refused passes after RetryAfter and not a nanosecond earlier, and after ResetAfter, and not
// earlier, everything is as at the beginning.
func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom(sizes).Draw(t, "size")
		limit := rapid.OneOf(rapid.Int64Range(0, 20), rapid.Int64Range(0, 1<<62)).Draw(t, "limit")
		l := newModelled(size, limit)
		now := epoch()
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, size).Draw(t, "pause")))
			n := rapid.Int64Range(0, limit).Draw(t, "n")
			r := l.Take(now, n)
			if n <= limit && !r.OK {
				checkInstant(t, now, r.RetryAfter, func(at time.Time) bool { return l.Peek(at, n).OK })
			}
			checkInstant(t, now, r.ResetAfter, func(at time.Time) bool {
				return l.Peek(at, 1).Remaining == limit
			})
			if r.OK && l.Peek(now, r.Remaining).OK != true || l.Peek(now, r.Remaining+1).OK {
				t.Fatalf("Remaining = %d, want the most that passes", r.Remaining)
			}
		}
	})
}

// checkInstant fails when holds does not begin to hold so much after now.
func checkInstant(t *rapid.T, now time.Time, after time.Duration, holds func(time.Time) bool) {
	t.Helper()
	if !holds(now.Add(after)) {
		t.Fatalf("after %v it does not hold, want it to", after)
	}
	if after > 0 && holds(now.Add(after-1)) {
		t.Fatalf("it holds a nanosecond before %v, want it not to", after)
	}
}
