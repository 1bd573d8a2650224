package gate

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// An Observer is told of each decision before its caller is, whichever front asked for it, and of each
// request that ends with an Err instead. It is not told of what a gate does by itself, such as an undo. Its
// methods are called on any goroutine, not under a lock, and on the way of every answer: they must be quick
// and must not block. Of what they are given they may keep what cannot change, such as texts, owners and
// origins.
type Observer interface {
	// ObserveRequests is told of requests for one name that were decided together, each with its Decision, to
	// which it may give a Number if that is a refusal. It must not keep the slice. refused is how many are
	// refusals; if any is, waiting is how many others wait at the name.
	ObserveRequests(requests []*Request, refused, waiting int)
	// ObserveGrant is told of a request over several names, as ObserveRequests is. waiting is how many wait
	// at the name that refused.
	ObserveGrant(r *GrantRequest, waiting int)
}

// WaitedUntil is how long the request had waited at an instant of the store's time; 0 if it did not wait.
func (r *Request) WaitedUntil(at time.Time) time.Duration {
	if r.line == nil { // it has never been in one, as most
		return 0
	}
	return waited(r.since, at)
}

// WaitedUntil is how long the request had waited at an instant of the store's time; 0 if it did not wait.
func (r *GrantRequest) WaitedUntil(at time.Time) time.Duration { return waited(r.since, at) }

func waited(since, at time.Time) time.Duration {
	if since.IsZero() || at.IsZero() {
		return 0
	}
	return max(0, at.Sub(since))
}

// observeRequests tells the observer of requests for one name that are decided. What the gate does by itself
// divides them.
func (g *Gate) observeRequests(requests []*Request) {
	for len(requests) > 0 {
		n, refused := 0, 0
		for n < len(requests) && requests[n].Command.Op != gatehouse.OpUndo {
			r := requests[n]
			if r.Err == nil && r.Decision.Outcome == gatehouse.Refused {
				refused++
			}
			n++
		}
		waiting := 0
		// Only for refusals, so that a grant costs no lock of a shard and a line.
		if refused > 0 {
			waiting = g.waitingAt(requests[0].Key)
		}
		if n > 0 {
			g.config.Observer.ObserveRequests(requests[:n], refused, waiting)
		}
		requests = requests[min(n+1, len(requests)):]
	}
}

// observeGrant tells the observer of a request over several names that is decided.
func (g *Gate) observeGrant(r *GrantRequest) {
	waiting := 0
	d := &r.Decision
	refused := r.Err == nil && d.Outcome == gatehouse.Refused
	if refused && d.Binding >= 0 && d.Binding < len(d.Want) {
		waiting = g.waitingAt(d.Want[d.Binding].Key)
	}
	g.config.Observer.ObserveGrant(r, waiting)
}

// waitingAt is how many requests wait at a name.
func (g *Gate) waitingAt(key gatehouse.Key) int {
	l := g.lineOf(key)
	if l == nil {
		return 0
	}
	return l.len()
}
