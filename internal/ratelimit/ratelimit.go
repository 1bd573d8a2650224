// Package ratelimit tells a decision about a limiter in the RateLimit and RateLimit-Policy fields of
// draft-ietf-httpapi-ratelimit-headers-11. It alone knows their syntax, because the draft still moves.
package ratelimit

import (
	"cmp"
	"math"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/digits"
)

// The names of the fields, in the spelling of the draft.
const (
	PolicyHeader = "RateLimit-Policy"
	LimitHeader  = "RateLimit"
)

// The type and title of a refusal by a limit, as the registry of problem types has them.
const (
	QuotaExceededType  = "https://iana.org/assignments/http-problem-types#quota-exceeded"
	QuotaExceededTitle = "Request cannot be satisfied as assigned quota has been exceeded"
)

// A Policy is one limit in the words of the two fields.
type Policy struct {
	Name       string
	Quota      int64
	Remaining  int64
	Window     time.Duration // 0 when the field cannot tell it
	MoreAfter  time.Duration // until there is more; Forever when that is not known
	Concurrent bool          // it limits how many there are at one time
}

// OnlyPolicy returns the policy of a name with one limit, which is named after the kind.
func OnlyPolicy(kind gatehouse.Kind, d *gatehouse.Decision) Policy {
	p := Policy{
		Name: kind.String(), Quota: d.Limit, Remaining: d.Remaining, MoreAfter: gatehouse.Forever,
	}
	// The time is until there is more. That is not known of a semaphore, and never comes for a limit of size
	// 0.
	p.Concurrent = !kind.Limiter()
	if !p.Concurrent {
		p.Window = wholeSeconds(kind, d.Interval)
		switch {
		case d.Outcome == gatehouse.Refused:
			p.MoreAfter = d.RetryAfter
		case d.Limit > 0:
			p.MoreAfter = d.ResetAfter
		}
	}
	return p
}

// WindowPolicy returns the policy of one of several limits, which is named by its text, such as "10/1s". In a
// refusal only the limits that refuse have a time, so no time is later than Retry-After.
func WindowPolicy(kind gatehouse.Kind, d *gatehouse.Decision, i int) Policy {
	w := &d.Windows[i]
	p := Policy{
		Name: w.Limit.String(), Quota: w.Limit.Size, Remaining: w.Remaining,
		Window: wholeSeconds(kind, WindowLength(w.Limit)), MoreAfter: gatehouse.Forever, // no time
	}
	switch {
	case d.Outcome == gatehouse.Refused && w.RetryAfter != 0:
		p.MoreAfter = w.RetryAfter
	case d.Outcome != gatehouse.Refused && w.Limit.Size > 0:
		p.MoreAfter = w.ResetAfter
	}
	return p
}

// WindowFields returns both fields for several limits: the policies in their order; and in RateLimit the one
// first that decides, because many clients read only the first.
func WindowFields(kind gatehouse.Kind, d *gatehouse.Decision) (policies, limits []byte) {
	binding := BindingWindow(d.Windows)
	first := WindowPolicy(kind, d, binding)
	limits = first.AppendLimit(nil)
	for i := range d.Windows {
		p := WindowPolicy(kind, d, i)
		if i > 0 {
			policies = append(policies, ", "...)
		}
		policies = p.AppendPolicy(policies)
		// The binding one stands first already.
		if i != binding {
			limits = p.AppendLimit(append(limits, ", "...))
		}
	}
	return policies, limits
}

// BindingWindow returns the index of the limit that refuses longest or, if none does, has the least left.
func BindingWindow(windows []gatehouse.Window) (binding int) {
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

// RefusedNames returns the names of the limits of one name that refused.
func RefusedNames(kind gatehouse.Kind, d *gatehouse.Decision) (names []string) {
	if len(d.Windows) == 0 {
		return []string{kind.String()}
	}
	for i := range d.Windows {
		if d.Windows[i].RetryAfter != 0 {
			names = append(names, d.Windows[i].Limit.String())
		}
	}
	// There is room under each limit, but others wait for it. A refusal names one policy at least.
	if names == nil {
		names = append(names, d.Windows[BindingWindow(d.Windows)].Limit.String())
	}
	return names
}

// WindowLength returns the length of a limit's window. That of a day or a week leaves daylight saving out; a
// month has no fixed length, and so 0.
func WindowLength(l gatehouse.Limit) time.Duration {
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
func wholeSeconds(kind gatehouse.Kind, d time.Duration) time.Duration {
	if kind == gatehouse.GCRA {
		d = d.Round(time.Millisecond)
	}
	if d%time.Second != 0 {
		return 0
	}
	return d
}

// AppendPolicy appends the policy as a member of RateLimit-Policy.
func (p *Policy) AppendPolicy(dst []byte) []byte {
	dst = appendParam(p.appendName(dst), ";q=", p.Quota)
	switch {
	case p.Window > 0:
		dst = appendParam(dst, ";w=", int64(p.Window/time.Second))
	// A semaphore has no window: it counts what is held at one time.
	case p.Concurrent:
		dst = append(dst, `;qu="concurrent-requests"`...)
	}
	return dst
}

// AppendLimit appends the policy as a member of RateLimit.
func (p *Policy) AppendLimit(dst []byte) []byte {
	dst = appendParam(p.appendName(dst), ";r=", p.Remaining)
	// A time is optional in the draft, and none is better than one that is not known.
	if p.MoreAfter == gatehouse.Forever {
		return dst
	}
	return appendParam(dst, ";t=", roundUp(p.MoreAfter, time.Second))
}

func (p *Policy) appendName(dst []byte) []byte {
	return append(append(append(dst, '"'), p.Name...), '"')
}

func appendParam(dst []byte, param string, value int64) []byte {
	return digits.AppendInteger(append(dst, param...), value)
}

// CeilUnits returns how many units cover d, at least 1: a client must not come back too early.
func CeilUnits(d, unit time.Duration) int64 { return max(1, roundUp(d, unit)) }

// roundUp returns how many units cover d, 0 if d is negative.
func roundUp(d, unit time.Duration) int64 { return int64(max(0, d+unit-1) / unit) }
