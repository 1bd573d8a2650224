package oracle

import (
	"cmp"
	"slices"
	"time"
)

// A Span is what a limiter let through, and the time in which it did so: an instant, where that is known.
type Span struct {
	From, To time.Duration
	N        int64
}

// A Bound is how much a limiter may let through, in each stretch of time that begins with a span.
type Bound struct {
	Window  time.Duration // stretches are shorter than this; 0 is of any length
	Aligned bool          // stretches begin with whole multiples of Window
	// Most is the most in a stretch of a length.
	Most func(length time.Duration) int64
	// Slack is what more there may be from one time to another, for what is given back or forgotten: it is
	// asked only where Most does not do. Nil is none.
	Slack func(from, to time.Duration) int64
}

// Spans judges what a limiter let through. What surely lies within a stretch counts there, which is no more
// than what was let through. Only the first excess is reported, as others show the same.
func (j *Judge) Spans(spans []Span, b Bound) {
	b.visitStretches(spans, func(sum int64, from, to time.Duration) bool {
		j.countTest(RatesAreKept)
		most := b.Most(to - from)
		if sum > most && b.Slack != nil {
			most += b.Slack(from, to)
		}
		if sum > most {
			j.report(RatesAreKept, to, "it let %d through within %s from %s, want at most %d",
				sum, to-from, from, most)
		}
		return sum <= most
	})
}

// MostWithin is the most that surely was let through in one window.
func MostWithin(spans []Span, window time.Duration) (most int64) {
	Bound{Window: window}.visitStretches(spans, func(sum int64, _, _ time.Duration) bool {
		most = max(most, sum)
		return true
	})
	return most
}

// visitStretches visits each stretch from the beginning of a span to the end of one, with the sum of the
// spans that lie within, until visit returns false.
func (b Bound) visitStretches(spans []Span, visit func(sum int64, from, to time.Duration) bool) {
	byFrom, byTo := slices.Clone(spans), slices.Clone(spans)
	slices.SortFunc(byFrom, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	slices.SortFunc(byTo, func(a, b Span) int { return cmp.Compare(a.To, b.To) })
	last := time.Duration(0)
	for i, first := range byFrom {
		from := first.From
		if b.Aligned {
			from -= (from%b.Window + b.Window) % b.Window // also before 0
		}
		// The same start gives the same stretches.
		if i > 0 && from == last {
			continue
		}
		last = from
		sum := int64(0)
		next, _ := slices.BinarySearchFunc(byTo, from, func(s Span, at time.Duration) int {
			return cmp.Compare(s.To, at)
		})
		for _, s := range byTo[next:] {
			if b.Window > 0 && s.To-from >= b.Window {
				break
			}
			if s.From < from {
				continue
			}
			sum += s.N
			if !visit(sum, from, s.To) {
				return
			}
		}
	}
}
