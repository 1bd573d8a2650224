package sim_test

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/test/oracle"
)

// limit: no more than the kind says in any window. A reservation counts where it starts. Acquires and
// reservations without an answer are not counted, as they may have been taken back, nor are those that were
// cancelled; so whatever is given back beyond what was taken lets more through than there may be.
func (l *look) limit() {
	if !l.key.Kind.Limiter() || !l.limited() {
		return
	}
	taken, returned := l.taken(), l.returned()
	granted := strings.HasPrefix(l.key.Name, granting)
	if granted {
		taken = append(taken, l.grantSpans()...)
	}
	for _, b := range bounds[l.key.Kind] {
		l.promised().Spans(taken, oracle.Bound{
			Window: b.window, Aligned: b.aligned, Most: func(time.Duration) int64 { return b.most },
			Slack: func(from, _ time.Duration) (slack int64) {
				if strings.HasPrefix(l.key.Name, "lazy") { // no server knows of another, at worst
					up := l.upBetween(from, b.window)
					slack = b.most * (up - 1)
				}
				for _, r := range returned {
					if r.From < from+b.window && r.To >= from {
						slack += r.N
					}
				}
				return slack
			},
		})
	}
	if l.key.Kind == gatehouse.TokenBucket && l.exact() && !granted && len(returned) == 0 && !refills(taken) {
		l.complain("no times of its refills, %s or more apart, explain its %d grants", window, len(taken))
	}
}

// limited reports whether what a name lets through is counted. Drills that take back what was answered count
// for themselves.
func (l *look) limited() bool {
	if strings.HasPrefix(l.key.Name, "drill l") { // late undo, lost undo, lost place
		return false
	}
	return slices.Contains(l.limits, l.key.Kind) || strings.HasPrefix(l.key.Name, "drill places")
}

// exact reports whether the store itself decides, and says when.
func (l *look) exact() bool {
	return !strings.HasPrefix(l.key.Name, "lazy") && !strings.HasPrefix(l.key.Name, "chunk")
}

// since is a time of the store on the clock of spans, which begins with the seed, at midnight.
func (l *look) since(at time.Time) time.Duration { return at.Sub(l.started) }

// taken is what was let through, and stayed so.
func (l *look) taken() (spans []oracle.Span) {
	cancelled := make(map[string]bool)
	for _, c := range l.calls {
		if c.cmd.Op == gatehouse.OpCancel && (c.granted() || c.err != nil) {
			cancelled[c.cmd.Holder] = true
		}
	}
	places := make(map[string]oracle.Span) // where each reservation starts
	unanswered := make(map[string]bool)
	for _, c := range l.calls {
		at := l.since(c.d.At)
		switch {
		case c.cmd.Op == gatehouse.OpReserve && c.err != nil:
			unanswered[c.cmd.Holder] = true
		case !c.granted():
		case c.cmd.Op == gatehouse.OpReserve && !cancelled[c.cmd.Holder]:
			place := oracle.Span{From: at + c.d.Delay, To: at + c.d.Delay, N: 1}
			if unanswered[c.cmd.Holder] { // a repeat says it rounded up to a millisecond, the first exactly
				place.From -= time.Millisecond - 1
			}
			if known, ok := places[c.cmd.Holder]; !ok || place.To < known.To {
				places[c.cmd.Holder] = place
			}
		case c.cmd.Op != gatehouse.OpAcquire:
		case l.exact():
			spans = append(spans, oracle.Span{From: at, To: at, N: c.cmd.Cost})
		default: // from when it was by what the server knew of the store's time, until the answer came
			spans = append(spans, oracle.Span{From: min(at, c.begin), To: c.end, N: c.cmd.Cost})
		}
	}
	for _, place := range places {
		spans = append(spans, place)
	}
	return spans
}

// returned is what was given back otherwise than by an undo or a cancel.
func (l *look) returned() (spans []oracle.Span) {
	for _, c := range l.calls {
		s := oracle.Span{From: l.since(c.d.At), To: l.since(c.d.At), N: c.cmd.Cost}
		if c.cmd.Op == gatehouse.OpReset {
			s.N = slots
		} else if c.cmd.Op != gatehouse.OpRefund {
			continue
		}
		if c.err != nil { // it may count late
			s.From, s.To = c.begin-clockStep, c.end+haunting+clockStep
		}
		spans = append(spans, s)
	}
	return spans
}

// clockStep is how far all steps of the store's clock together may put it off, in a seed that loses nothing.
const clockStep = 20 * time.Second

// upBetween is how many servers were up within a time.
func (c *cluster) upBetween(from, length time.Duration) (n int64) {
	for _, s := range c.all {
		if s.from < from+length && (s.until == 0 || s.until > from) {
			n++
		}
	}
	return n
}

// A bound is how many a limiter lets through in a window, at most.
type bound struct {
	window  time.Duration
	most    int64
	aligned bool // only in windows that follow one another
}

// step is the time in which one of what a window allows comes back.
const step = window / slots

// bounds are those that the documentation promises. None has room for one more.
var bounds = map[gatehouse.Kind][]bound{
	gatehouse.TokenBucket: {{window, 2 * slots, false}, {2 * window, 3 * slots, false}},
	gatehouse.GCRA: {
		{step, slots, false}, {2 * step, slots + 1, false}, {slots * step, 2*slots - 1, false},
		{3 * slots * step, 4*slots - 1, false},
	},
	gatehouse.FixedWindow:   {{window, slots, true}},
	gatehouse.SlidingWindow: {{window, slots, false}},
	gatehouse.SlidingLog:    {{window, slots, false}},
	gatehouse.Pace:          {{window, slots, false}},
}

// refills reports whether a bucket that is refilled at times at least a window apart can have let through
// what was taken. earliest[i] is the earliest refill between the spans i-1 and i, if all before it fits.
func refills(taken []oracle.Span) bool {
	const none = -1
	slices.SortFunc(taken, func(a, b oracle.Span) int { return cmp.Compare(a.From, b.From) })
	earliest := make([]time.Duration, len(taken)+1)
	for i := range earliest {
		if earliest[i] = none; i == 0 {
			earliest[i] = 0
			continue
		}
		for j := max(0, i-slots); j < i; j++ {
			at := max(earliest[j]+window, taken[i-1].From+1)
			fits := earliest[j] != none && (i == len(taken) || at <= taken[i].From)
			if fits && (earliest[i] == none || at < earliest[i]) {
				earliest[i] = at
			}
		}
	}
	return earliest[len(taken)] != none
}
