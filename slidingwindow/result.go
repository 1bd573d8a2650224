package slidingwindow

import "time"

// A Result is a decision and the numbers behind it.
type Result struct {
	// OK says that the events may happen.
	OK bool

	// Limit is how many events pass in one window.
	Limit int64

	// Remaining is how many more would pass now.
	Remaining int64

	// RetryAfter is, for events that may not happen, after which time they may if no others happen
	// meanwhile: Never if they are more than the limit, 0 if no time is known or they are OK.
	RetryAfter time.Duration

	// ResetAfter is after which time Remaining is the limit again if nothing more happens.
	ResetAfter time.Duration
}

// Never is the RetryAfter of events that are more than the limit or fewer than none.
const Never time.Duration = -1

// Take is AllowN with the numbers behind its answer.
func (l *Limiter) Take(now time.Time, n int64) Result {
	// Decided first, as it may call the store without the lock. The numbers are those after the decision.
	ok := l.AllowN(now, n)
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.viewAt(unixNano(now))
	return v.result(n, ok)
}

// Peek answers what Take would, counts nothing and asks no store. For a time more than a window before
// the current one it answers as for the beginning of that.
func (l *Limiter) Peek(now time.Time, n int64) Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	v := l.viewAt(unixNano(now))
	return v.result(n, v.fits(n))
}

// A countsView is the counts as they weigh at one time.
type countsView struct {
	current, previous int64
	size, limit       int64
	left              int64 // of the current window
	early             int64 // how much time lies before the current window: a clock was set back
}

// viewAt returns the view at now. It turns no window.
func (l *Limiter) viewAt(now int64) countsView {
	if l.foreign != nil {
		l.current.Reset(l.foreign.Start(), l.foreign.Count())
	}
	v := countsView{current: l.current.count, previous: l.previousCount(), size: l.size, limit: l.limit}
	if l.strict != nil {
		v.current, v.previous = l.strict.knownCounts()
	}
	start := l.current.start
	// The counts as they will be after the turn that a decision would make: the next window makes the current
	// one the previous one, a later one sees neither.
	switch turned := l.windowStart(now); {
	case turned > start && turned-start == l.size:
		v.current, v.previous, start = 0, v.current, turned
	case turned > start:
		v.current, v.previous, start = 0, 0, turned
	case now < start:
		v.early = start - now
	}
	v.left = l.timeLeft(start, now)
	return v
}

func (v *countsView) estimate() int64 {
	return addSaturating(weightOf(v.previous, v.left, v.size), v.current)
}

func (v *countsView) fits(n int64) bool {
	estimate := v.estimate()
	return n >= 0 && v.limit >= estimate && n <= v.limit-estimate
}

// result is the answer to n events, which may happen if ok.
func (v *countsView) result(n int64, ok bool) Result {
	r := Result{OK: ok, Limit: v.limit, ResetAfter: v.resetAfter()}
	if estimate := v.estimate(); estimate < v.limit {
		r.Remaining = v.limit - estimate
	}
	if !ok {
		r.RetryAfter = v.retryAfter(n)
	}
	return r
}

// retryAfter returns how long it takes until n events fit.
func (v *countsView) retryAfter(n int64) time.Duration {
	if n < 0 || n > v.limit {
		return Never
	}
	most := v.limit - n // for what was counted already
	// The previous window weighs less with time, within this window. If the current one alone is too much, it
	// must become the previous one first.
	if v.current <= most {
		return v.timeUntil(v.previous, most-v.current, 0)
	}
	return v.timeUntil(v.current, most, v.size)
}

// resetAfter returns how long it takes until nothing weighs any more.
func (v *countsView) resetAfter() time.Duration {
	if v.current > 0 {
		return v.timeUntil(v.current, 0, v.size)
	}
	return v.timeUntil(v.previous, 0, 0)
}

// timeUntil returns how long it takes until a count weighs most or less: the previous one, or the current
// one, which begins to weigh less only later, when the window has ended.
func (v *countsView) timeUntil(count, most, later int64) time.Duration {
	left := coverage(count, most, v.size) - 1 // what may be left of the window then
	return time.Duration(max(addSaturating(addSaturating(v.left, later)-left, v.early), 0))
}
