package http

import (
	"cmp"
	"math"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/params"
	"github.com/valyala/fasthttp"
)

// This file alone knows the syntax of the RateLimit and RateLimit-Policy fields of
// draft-ietf-httpapi-ratelimit-headers-11, because the draft still moves.

// hasLimitHeaders reports whether the answer has RateLimit headers: when something was taken from a limit,
// given back to it or only asked about.
func (r *responder) hasLimitHeaders() bool {
	if r.key.Kind.Limiter() {
		return r.op != gatehouse.OpStats && r.op != gatehouse.OpDelete && r.op != gatehouse.OpBump &&
			!isReport(r.op)
	}
	return r.op == gatehouse.OpAcquire
}

// A limitPolicy is one limit in the words of the two fields.
type limitPolicy struct {
	name       string
	quota      int64
	remaining  int64
	window     time.Duration // 0 when the field cannot tell it
	moreAfter  time.Duration // until there is more; Forever when that is not known
	concurrent bool          // it limits how many there are at one time
}

// writeLimitHeaders writes a decision as RateLimit and RateLimit-Policy. A single limit is named after the
// kind, one of several by its text, such as "10/1s".
func writeLimitHeaders(resp *fasthttp.Response, r *responder, d *gatehouse.Decision) {
	switch {
	case r.levels != nil:
		writeLevelHeaders(resp, r)
		return
	case len(d.Windows) > 0:
		writeWindowHeaders(resp, r, d)
		return
	case d.Message != "" && d.Limit == 0 && d.Interval == 0:
		return // granted while the store could not be reached, and only the store knows the limit
	}
	p := r.onlyPolicy(d)
	// Both fields use the same scratch: the response keeps a copy of each.
	fields := p.appendPolicy(r.scratch[:0])
	setHeader(resp, "RateLimit-Policy", fields)
	setHeader(resp, "RateLimit", p.appendLimit(fields[:0]))
}

// onlyPolicy returns the policy of a name with one limit.
func (r *responder) onlyPolicy(d *gatehouse.Decision) limitPolicy {
	p := limitPolicy{
		name: r.key.Kind.String(), quota: d.Limit, remaining: d.Remaining, moreAfter: gatehouse.Forever,
	}
	// The time is until there is more. That is not known of a semaphore, and never comes for a limit of size
	// 0.
	p.concurrent = !r.key.Kind.Limiter()
	if !p.concurrent {
		p.window = r.wholeSeconds(d.Interval)
		switch {
		case d.Outcome == gatehouse.Refused:
			p.moreAfter = d.RetryAfter
		case d.Limit > 0:
			p.moreAfter = d.ResetAfter
		}
	}
	return p
}

// writeWindowHeaders writes both fields for several limits: the policies in their order; and in RateLimit the
// one first that decides, because many clients read only the first.
func writeWindowHeaders(resp *fasthttp.Response, r *responder, d *gatehouse.Decision) {
	binding := bindingWindow(d.Windows)
	first := r.windowPolicy(d, binding)
	limits := first.appendLimit(nil)
	var policies []byte
	for i := range d.Windows {
		p := r.windowPolicy(d, i)
		if i > 0 {
			policies = append(policies, ", "...)
		}
		policies = p.appendPolicy(policies)
		if i != binding {
			limits = p.appendLimit(append(limits, ", "...))
		}
	}
	setHeader(resp, "RateLimit-Policy", policies)
	setHeader(resp, "RateLimit", limits)
}

// windowPolicy returns the policy of one of several limits. In a refusal only the limits that refuse have a
// time, so no time is later than Retry-After.
func (r *responder) windowPolicy(d *gatehouse.Decision, i int) limitPolicy {
	w := &d.Windows[i]
	p := limitPolicy{
		name: w.Limit.String(), quota: w.Limit.Size, remaining: w.Remaining,
		window: r.wholeSeconds(windowLength(w.Limit)), moreAfter: gatehouse.Forever, // no time
	}
	switch {
	case d.Outcome == gatehouse.Refused && w.RetryAfter != 0:
		p.moreAfter = w.RetryAfter
	case d.Outcome != gatehouse.Refused && w.Limit.Size > 0:
		p.moreAfter = w.ResetAfter
	}
	return p
}

// bindingWindow returns the index of the limit that refuses longest or, if none does, has the least left.
func bindingWindow(windows []gatehouse.Window) (binding int) {
	for i := range windows {
		w, b := &windows[i], &windows[binding]
		longer := cmp.Compare(refusalTime(w), refusalTime(b))
		if longer > 0 || longer == 0 && w.Remaining < b.Remaining {
			binding = i
		}
	}
	return binding
}

// refusalTime returns how long a limit refuses, such that Forever is the greatest.
func refusalTime(w *gatehouse.Window) time.Duration {
	if w.RetryAfter == gatehouse.Forever {
		return math.MaxInt64
	}
	return w.RetryAfter
}

// refusedPolicies returns the names of the policies that refused, as in RateLimit-Policy, or nil if the
// answer has no such header.
func (r *responder) refusedPolicies(d *gatehouse.Decision) (names []string) {
	if !r.hasLimitHeaders() {
		return nil
	}
	if r.levels != nil {
		return r.refusedLevels()
	}
	return r.windowNames(d)
}

// windowNames returns the names of the limits of one name that refused.
func (r *responder) windowNames(d *gatehouse.Decision) (names []string) {
	if len(d.Windows) == 0 {
		return []string{r.key.Kind.String()}
	}
	for i := range d.Windows {
		if d.Windows[i].RetryAfter != 0 {
			names = append(names, d.Windows[i].Limit.String())
		}
	}
	// There is room under each limit, but others wait for it. A refusal names one policy at least.
	if names == nil {
		names = append(names, d.Windows[bindingWindow(d.Windows)].Limit.String())
	}
	return names
}

// windowLength returns the length of a limit's window. That of a day or a week leaves daylight saving out; a
// month has no fixed length, and so 0.
func windowLength(l gatehouse.Limit) time.Duration {
	const day = 24 * time.Hour
	switch l.Calendar {
	case gatehouse.Day:
		return day
	case gatehouse.Week:
		return 7 * day
	case gatehouse.Month:
		return 0
	}
	return l.Interval
}

// wholeSeconds returns d if it is a whole number of seconds, 0 otherwise, as the field has no fractions. The
// window of a GCRA is rounded first: it is a multiple of a step that was cut to nanoseconds.
func (r *responder) wholeSeconds(d time.Duration) time.Duration {
	if r.key.Kind == gatehouse.GCRA {
		d = d.Round(time.Millisecond)
	}
	if d%time.Second != 0 {
		return 0
	}
	return d
}

func (p *limitPolicy) appendPolicy(dst []byte) []byte {
	dst = appendParam(p.appendName(dst), ";q=", p.quota)
	switch {
	case p.window > 0:
		dst = appendParam(dst, ";w=", int64(p.window/time.Second))
	case p.concurrent:
		dst = append(dst, `;qu="concurrent-requests"`...)
	}
	return dst
}

func (p *limitPolicy) appendLimit(dst []byte) []byte {
	dst = appendParam(p.appendName(dst), ";r=", p.remaining)
	if p.moreAfter == gatehouse.Forever {
		return dst
	}
	return appendParam(dst, ";t=", roundUp(p.moreAfter, time.Second))
}

func (p *limitPolicy) appendName(dst []byte) []byte {
	return append(append(append(dst, '"'), p.name...), '"')
}

func appendParam(dst []byte, param string, value int64) []byte {
	return params.AppendInteger(append(dst, param...), value)
}

func setUintHeader(resp *fasthttp.Response, header string, value uint64) {
	var scratch [20]byte
	setHeader(resp, header, strconv.AppendUint(scratch[:0], value, 10))
}

// setHeader sets a header in this very spelling. The library would turn RateLimit into Ratelimit.
func setHeader(resp *fasthttp.Response, header string, value []byte) {
	resp.Header.SetCanonical([]byte(header), value)
}

// setTextHeader is setHeader for a fixed value.
func setTextHeader(resp *fasthttp.Response, header, value string) {
	setHeader(resp, header, []byte(value))
}

// ceilUnits returns how many units cover d, at least 1: a client must not come back too early.
func ceilUnits(d, unit time.Duration) uint64 {
	return uint64(max(1, roundUp(d, unit))) // at least 1
}

// roundUp returns how many units cover d, 0 if d is negative.
func roundUp(d, unit time.Duration) int64 { return int64(max(0, d+unit-1) / unit) }
