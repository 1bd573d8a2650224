package hold

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A prefetched is what a handle has taken of the present window and may let through by itself.
type prefetched struct {
	left  atomic.Int64  // how many; below 0 when they were given back
	began time.Time     // when they were asked for
	lasts time.Duration // how long the window surely lasts from then on

	id      string // of the grant that they are
	size    int64
	reports int64 // of the handle, when they were asked for
}

// take takes n, if they are there and their window lasts.
func (p *prefetched) take(n int64) bool {
	if time.Since(p.began) >= p.lasts {
		return false
	}
	// Compared and swapped, as an Add beyond what is left could
	// refuse another caller until it is taken back.
	for {
		left := p.left.Load()
		if left < n {
			return false
		}
		if p.left.CompareAndSwap(left, left-n) {
			return true
		}
	}
}

// window returns the length of the window; 0 if nothing may be fetched of it.
func (l *LimiterHandle) window() time.Duration {
	if l.key.Kind != gatehouse.TokenBucket && l.key.Kind != gatehouse.FixedWindow || !l.rule.HasLimit() {
		return 0
	}
	limit := gatehouse.Limit{Interval: l.rule.Interval, Calendar: l.rule.Calendar}
	switch l.rule.Limits.Len() {
	case 0:
	case 1:
		limit = l.rule.Limits.At(0)
	// Each of several limits has a window of its own.
	default:
		return 0
	}
	if limit.Calendar != gatehouse.NoCalendar {
		return 0 // answers do not say when it ends
	}
	return limit.Interval
}

// takeAhead takes n of the tokens that the handle has, or fetches some. ok is as that of fetchFor.
func (l *LimiterHandle) takeAhead(ctx context.Context, n int64) (ok bool, err error) {
	if c := l.chunk.Load(); c != nil && n > 0 && c.take(n) {
		return true, nil
	}
	return l.fetchFor(ctx, n)
}

// fetchFor takes n of tokens that it fetches if there are none. ok is false if they are to be asked for by
// themselves: they are too many, or the limiter has not as many as are worth to be fetched.
func (l *LimiterHandle) fetchFor(ctx context.Context, n int64) (ok bool, err error) {
	window := l.window()
	gate, can := l.gate.(Granter)
	if n < 1 || n >= l.Prefetch || window == 0 || !can {
		return false, nil
	}
	select {
	// One fetches at a time. The others wait for what it brings.
	case l.fetching <- struct{}{}:
		defer func() { <-l.fetching }()
	case <-ctx.Done():
		return false, gatehouse.Errorf(gatehouse.CodeTimeout, "%s: %w", l.key, ctx.Err())
	}
	// Another caller may have fetched meanwhile.
	old := l.chunk.Load()
	if old != nil && old.take(n) {
		return true, nil
	}
	l.retire(old)
	size := l.Prefetch
	for range fetchTries {
		// A chunk of no more than n leaves nothing to keep.
		if l.closed.Load() || size <= n {
			return false, nil
		}
		d, fetched, err := l.fetchOnce(ctx, gate, size)
		switch {
		case err != nil:
			return false, err
		case d.Outcome == gatehouse.Granted && len(d.Want) == 1 && d.Want[0].Limit < n:
			l.giveBack(fetched, 0) // it was clipped to the limit, which n can never pass
			return false, nil
		case d.Outcome == gatehouse.Granted && len(d.Want) == 1:
			l.putDown(fetched, &d.Want[0].Decision, n)
			return true, nil
		case d.Outcome != gatehouse.Refused || len(d.Want) != 1:
			return false, nil // asked by itself it says why
		}
		// Half of what is left leaves something for others.
		size = min(size, d.Want[0].Remaining/2)
	}
	return false, nil
}

// fetchTries is how often is asked for tokens to keep, before the request is asked for by itself.
const fetchTries = 2

// fetchOnce asks for tokens to keep.
func (l *LimiterHandle) fetchOnce(
	ctx context.Context, gate Granter, size int64,
) (gatehouse.GrantDecision, *prefetched, error) {
	p := &prefetched{began: time.Now(), id: rand.Text(), size: size, reports: l.reports.Load()}
	// Clipped, since the limit may be smaller than Prefetch. With an id it can be given back unseen.
	d, err := gate.DoGrant(ctx, gatehouse.GrantCommand{
		Op: gatehouse.OpAcquire, ID: p.id, Expires: max(l.window(), gatehouse.MinRemembered),
		Want:  []gatehouse.Member{{Key: l.key, Rule: l.rule, Cost: size, Clip: true}},
		Owner: l.Owner,
	})
	if err != nil {
		l.giveBack(p, 0) // they may have been taken
	}
	return d, p, err
}

// putDown keeps what was fetched, but the n that its caller lets through at once, as long as its window
// surely lasts.
func (l *LimiterHandle) putDown(p *prefetched, d *gatehouse.Decision, n int64) {
	window := l.window()
	// Behind places that lie ahead the limiter is at rest some windows later.
	left := d.ResetAfter % window
	if left <= 0 {
		left = window
	}
	// It may be rounded up by a millisecond, and two clocks may run at rates that differ by a thousandth.
	p.lasts = left - time.Millisecond - left/clockPart
	p.size = min(p.size, d.Limit) // clipped
	p.left.Store(p.size - n)
	l.chunk.Store(p)
	// The window is as good as over, or a third party has sent the handle away meanwhile: what the caller
	// does not use goes back.
	if p.lasts <= 0 || l.reports.Load() != p.reports {
		l.retire(p)
		return
	}
	l.watch(p, window/idlePart, p.left.Load())
}

const (
	clockPart = 1000
	// idlePart is the part of a window after which unused tokens go back.
	idlePart = 10
)

// watch gives tokens back when none was used for a time, or their window is over.
func (l *LimiterHandle) watch(p *prefetched, idle time.Duration, before int64) {
	time.AfterFunc(max(idle, time.Millisecond), func() {
		left := p.left.Load()
		// Given back already. Nothing stops this timer, which is the last.
		if left < 0 {
			return
		}
		if left == before || time.Since(p.began) >= p.lasts {
			l.retire(p)
			return
		}
		l.watch(p, idle, left)
	})
}

// retire gives back what is left of p, which may be nil.
func (l *LimiterHandle) retire(p *prefetched) {
	if p == nil {
		return
	}
	// Another one may have taken its place.
	l.chunk.CompareAndSwap(p, nil)
	// Several may retire it: the one that finds its tokens gives them
	// back, and no caller takes any of them since.
	if left := p.left.Swap(-1); left >= 0 {
		l.giveBack(p, p.size-left)
	}
}

// giveBack ends the grant that p is in the background, and says how many were used.
func (l *LimiterHandle) giveBack(p *prefetched, used int64) {
	l.returns.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), maxGiveBack)
		defer cancel()
		// Without this release all are counted as used when the grant ends by itself.
		_, _ = l.gate.(Granter).DoGrant(ctx, gatehouse.GrantCommand{
			Op: gatehouse.OpRelease, ID: p.id, Costs: []gatehouse.MemberCost{{Key: l.key, Cost: used}},
		})
	})
}
