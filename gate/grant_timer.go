package gate

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file has what time does to a grant that waits. Nothing is asked again and again: there is one timer
// for the next instant at which something is known to come free, and one for the end of the wait.

// A grantWait has the timers of a grant in lines. It is apart from the request, which may be used again
// before a timer that has fired is heard of.
type grantWait struct {
	gate    *Gate
	request *GrantRequest // nil once it is out of the lines; guarded by the lock of the grantOrder
	maxWait time.Duration // of the command as it came
	end     *time.Timer   // ends the wait; nil when it has no end
	due     time.Duration // how long after the last look the timer fires
	look    *time.Timer   // fires when time may have changed something; nil until needed
}

// armTimer sets the timer for what time alone makes necessary. elapsed is the time since the last look. The
// grantOrder is locked.
func (r *GrantRequest) armTimer(elapsed time.Duration) {
	due := earlier(r.nextDue(), r.grantEnd())
	for i := range r.places {
		// A line is kept at certain times only. When one begins or
		// ends, others may pass or may not any more.
		if changes := r.places[i].changes; changes > 0 {
			due = earlier(due, changes)
		}
	}
	w := r.wait
	w.due = due
	if due == gatehouse.Forever {
		if w.look != nil {
			w.look.Stop()
		}
		return
	}
	// The store's clock and the timer's do not run exactly alike.
	wait := max(due-elapsed, minRetry)
	if w.look == nil {
		w.look = time.AfterFunc(wait, w.onLook)
	} else {
		w.look.Reset(wait)
	}
}

// earlier is the shorter of two times, each of which may be Forever.
func earlier(a, b time.Duration) time.Duration {
	if a == gatehouse.Forever || b != gatehouse.Forever && b < a {
		return b
	}
	return a
}

// grantEnd is how long after the last look the grant ends that a topup adds to, if it is not renewed. Then
// the topup cannot be granted any more, and must not hold up those behind it. It is Forever for an acquire.
func (r *GrantRequest) grantEnd() time.Duration {
	// A shared store that could not change the records in time does not tell when the grant ends.
	if r.Command.Op != gatehouse.OpTopUp || r.Decision.ExpiresAfter == 0 {
		return gatehouse.Forever
	}
	return r.Decision.ExpiresAfter
}

// nextDue is how long after the last look the request can be granted, or the next of its names is about to
// come free; Forever when that is not known.
func (r *GrantRequest) nextDue() time.Duration {
	first, last, soon, eldest := gatehouse.Forever, gatehouse.Forever, gatehouse.Forever, false
	waits := false // for something that is not about to come free
	for i := range r.places {
		p := &r.places[i]
		switch {
		case !p.refused:
			continue
		case p.freeSoon:
			first = earlier(first, p.retry)
			// It can be granted once the last of them is free.
			last = max(last, p.retry)
			eldest = eldest || p.eldest
			continue
		// From that instant on the name counts as free soon, which may have other lines kept.
		case p.retry > keepWithin:
			soon = earlier(soon, p.retry-keepWithin)
		// It is paused, and does not count as free soon before the pause ends.
		case p.retry != gatehouse.Forever:
			soon = earlier(soon, p.retry)
		}
		waits = waits || !p.moved
	}
	switch {
	case waits || last == gatehouse.Forever:
		return soon
	case eldest:
		return first // from then on that line may be kept
	}
	return last
}

// onLook is called when time may have helped.
func (w *grantWait) onLook() {
	o := &w.gate.grants
	o.mu.Lock()
	r := w.request
	// While it is at the store, the answer sets the timer anew.
	if r == nil || r.busy {
		o.mu.Unlock()
		return
	}
	ready := true
	for i := range r.places {
		p := &r.places[i]
		p.freeSoon = p.freeSoon || p.retry != gatehouse.Forever && p.retry-keepWithin <= w.due
		ready = ready && (!p.refused || p.moved || p.freeSoon)
	}
	// While something else must happen first, nothing is asked: that will have it looked at.
	ended := w.due == r.grantEnd()
	if ready || ended || r.keepsByTime() {
		o.addDirty(r)
	} else {
		r.armTimer(w.due)
	}
	o.mu.Unlock()
	w.gate.serveGrants()
}

// keepsByTime reports whether it depends on the time whether a line is kept for a grant.
func (r *GrantRequest) keepsByTime() bool {
	return slices.ContainsFunc(r.places, func(p grantPlace) bool { return p.changes > 0 })
}

// onEnd is called when the request's MaxWait is over.
func (w *grantWait) onEnd() {
	o := &w.gate.grants
	o.mu.Lock()
	if r := w.request; r != nil {
		// Only the store refuses: one more look, without MaxWait, brings a grant or the final refusal.
		r.expired = true
		o.addDirty(r)
	}
	o.mu.Unlock()
	w.gate.serveGrants()
}
