package capacity

import (
	"math"
	"slices"
	"time"
)

// A Holder is the client's side: it knows what is wanted of each resource and which leases are held, says
// when to ask a server and for what, and what may be used at any moment. Make one with NewHolder.
//
// All resources are asked for in one request. The caller that drives a Holder calls Tick and Requests when
// Next says so and after every Want, sends what Requests returned, and reports the result by Answered or
// Failed. Requests that are on their way are not sent a second time.
//
//	        Want            Requests
//	idle ---------> due -------------> outstanding
//	  ^              ^                      |
//	  |   time       |        Failed        |
//	  +--------------+<---------------------+
//	  |                       Answered      |
//	  +<------------------------------------+
type Holder struct {
	config      HolderConfig
	changeDelay time.Duration // between two requests when a resource is new or other amounts are wanted
	resources   []*heldResource
	byName      map[string]*heldResource

	due         time.Time // when to ask again
	sent        time.Time // when the last request was sent
	outstanding bool      // a request is on its way
	changed     bool      // something is new, or wanted in another amount
	failures    int       // since the last answer
	skew        time.Duration
}

// HolderConfig says how a Holder asks. The zero value works; only without Random all clients ask at the same
// moments.
type HolderConfig struct {
	// MinRefresh is the shortest time between two requests that are sent because time has passed, however
	// soon servers want to be asked; 0 means 5 s. A lease that is shorter still is renewed before it ends.
	MinRefresh time.Duration

	// Fallback is what may be used of a resource about which no server has answered yet: 0 nothing,
	// -1 any amount.
	Fallback float64

	// Random returns numbers from 0 to 1, to spread clients that started together; nil spreads nothing.
	Random func() float64
}

// An AmountChange is a new amount of a resource.
type AmountChange struct {
	Resource string
	Amount   float64 // -1 without limit
	Leased   bool    // by a lease; else it is what may be used without one
}

// unlimited stands for no limit, in a safe capacity and in an AmountChange only.
const unlimited = -1

// A heldResource is a resource that is wanted.
type heldResource struct {
	resource      string
	position      int // in Holder.held
	demand        Demand
	requested     bool // in the request on its way
	everRequested bool // a server was asked, and may have granted a lease even if no answer came

	lease  Lease     // as the server gave it, by its clock; the zero value before the first
	expiry time.Time // of the lease, by the holder's clock
	safe   float64   // for the time without a lease

	reported AmountChange // what Tick reported last
}

// NewHolder returns a holder of nothing.
func NewHolder(c HolderConfig) *Holder {
	if c.MinRefresh <= 0 {
		c.MinRefresh = 5 * time.Second
	}
	if c.Random == nil {
		c.Random = func() float64 { return 0 }
	}
	c.Fallback = safeAmount(c.Fallback, 0)
	longAgo := time.Unix(0, 0)
	early := min(time.Second, c.MinRefresh)
	return &Holder{
		config: c, changeDelay: early, byName: map[string]*heldResource{}, due: longAgo, sent: longAgo,
	}
}

// Want sets how much of the resource is wanted, 0 or more. A new resource or another amount is asked for one
// second after the last request, or after the back-off if servers fail.
func (h *Holder) Want(resource string, priority int64, wants float64) {
	demand := Demand{Priority: priority, Clients: 1, Wants: wants}
	r, ok := h.byName[resource]
	if ok && r.demand == demand {
		return
	}
	if !ok {
		r = &heldResource{resource: resource, position: len(h.resources), safe: h.config.Fallback}
		r.reported = AmountChange{Resource: resource, Amount: r.safe}
		h.byName[resource] = r
		h.resources = append(h.resources, r)
	}
	r.demand = demand
	h.changed = true
}

// Drop forgets the resource, and reports whether a server was ever asked for it, so that there may be a lease
// to give back.
func (h *Holder) Drop(resource string) bool {
	r, ok := h.byName[resource]
	if !ok {
		return false
	}
	// The last resource moves into the gap. The order of resources has no meaning.
	last := h.resources[len(h.resources)-1]
	h.resources[r.position], last.position = last, r.position
	h.resources = h.resources[:len(h.resources)-1]
	delete(h.byName, resource)
	return r.everRequested
}

// Requests returns what to ask a server for now. It is nil while it is not yet time, while a request is on
// its way, and if nothing is wanted. The holder then waits for Answered or Failed; the first of them counts,
// and a later one is ignored until the next request.
func (h *Holder) Requests(now time.Time) []Request {
	if h.outstanding || len(h.resources) == 0 || now.Before(h.nextRequest()) {
		return nil
	}
	h.sent, h.outstanding, h.changed = now, true, false
	demands := make([]Demand, len(h.resources))
	requests := make([]Request, len(h.resources))
	for i, r := range h.resources {
		// From now on the server may have granted something, even if its answer never arrives: Drop must then
		// offer a release.
		r.requested, r.everRequested = true, true
		demands[i] = r.demand
		requests[i] = Request{Resource: r.resource, Demands: demands[i : i+1 : i+1]}
		if now.Before(r.expiry) {
			requests[i].Has = r.lease
		}
	}
	return requests
}

// nextRequest returns when to send the next request.
func (h *Holder) nextRequest() time.Time {
	// A change does not jump the queue of a client whose servers fail: it waits for the back-off like all
	// else.
	if early := h.sent.Add(h.changeDelay); h.changed && h.failures == 0 && early.Before(h.due) {
		return early
	}
	return h.due
}

// Answered applies the grants of a server to the requests on their way, if the server's clock is not known.
// Tick then returns what has changed. A grant whose Safe is NaN leaves the safe capacity as it was. Expiries
// are taken as the client's own time, within two bounds: a lease holds at least until the server wants to be
// asked again, and at most for an hour, both from when the request was sent.
func (h *Holder) Answered(now time.Time, grants []Grant) {
	h.AnsweredBy(now, time.Time{}, grants)
}

// maxLease is how long a lease holds at most if the server's clock is not known.
const maxLease = time.Hour

// AnsweredBy is Answered for a server whose clock showed clock when it decided. What is left of each lease by
// that clock counts from when the request was sent, so clocks need not agree.
func (h *Holder) AnsweredBy(now, clock time.Time, grants []Grant) {
	if !h.outstanding {
		return
	}
	h.skew = 0
	answered := 0
	for i := range grants {
		if r, ok := h.byName[grants[i].Resource]; ok && r.requested {
			h.applyGrant(r, clock, &grants[i])
			answered++
		}
	}
	// A server that knows none of the resources is as bad as one that does not answer. If all of them were
	// dropped meanwhile, nothing was left to answer.
	isRequested := func(r *heldResource) bool { return r.requested }
	if answered == 0 && slices.ContainsFunc(h.resources, isRequested) {
		h.Failed(now)
		return
	}
	h.endRequest()
	h.failures = 0
	// The interval counts from the sending, as the leases do. After a slow answer it may be over already;
	// half of a change's delay keeps the client from sending again at once.
	h.due = latest(h.sent.Add(h.refreshInterval(now)), now.Add(h.changeDelay/2))
}

// endRequest notes that no request is on its way any more.
func (h *Holder) endRequest() {
	h.outstanding = false
	for _, r := range h.resources {
		r.requested = false
	}
}

// applyGrant makes the grant the lease of r. Amounts that no server should send count as 0: a negative one
// never means "no limit".
func (h *Holder) applyGrant(r *heldResource, clock time.Time, g *Grant) {
	r.safe = safeAmount(g.Safe, r.safe)
	r.lease = g.Lease
	if amount := r.lease.Capacity; !(amount >= 0) || math.IsInf(amount, 1) {
		r.lease.Capacity = 0
	}
	// The lease is counted from the sending of the request, which is before the server's decision. So the
	// client stops using it no later than the server takes it back, whatever the way took.
	length := g.Lease.Expiry.Sub(clock)
	if clock.IsZero() {
		// By how much the bounds had to correct the expiry is the least difference of the two clocks.
		byWire := g.Lease.Expiry.Sub(h.sent)
		length = min(max(byWire, g.Lease.Refresh), maxLease)
		h.skew = max(h.skew, (byWire - length).Abs())
	}
	r.expiry = h.sent.Add(length)
}

// safeAmount returns the safe capacity a server sent, or before if that is no number. -1 means no limit; any
// other negative amount counts as 0.
func safeAmount(sent, before float64) float64 {
	if math.IsNaN(sent) || math.IsInf(sent, 0) {
		return before
	}
	if sent < 0 && sent != unlimited {
		return 0
	}
	return sent
}

// maxRefresh is the longest time between two requests, whatever a server asks for.
const maxRefresh = 24 * time.Hour

// refreshInterval returns the time from one request to the next: the shortest that a lease asks for, plus up
// to a tenth so that clients drift apart. A fifth of the shortest lease is left for the answer.
func (h *Holder) refreshInterval(now time.Time) time.Duration {
	// One request asks for all resources, so the most demanding lease sets the pace.
	refresh, left := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for _, r := range h.resources {
		if now.Before(r.expiry) {
			refresh = min(refresh, r.lease.Refresh, maxRefresh)
			// Counted from the sending, as the pause to the next request is.
			left = min(left, r.expiry.Sub(h.sent))
		}
	}
	// No lease is held: only the configured minimum counts.
	if refresh == math.MaxInt64 {
		refresh = 0
	}
	refresh = max(refresh, h.config.MinRefresh)
	spread := time.Duration(float64(refresh) / 10 * h.config.Random())
	return max(min(refresh+spread, left/5*4), h.changeDelay)
}

const (
	firstPause  = 1300 * time.Millisecond
	pauseGrowth = 1.3
	maxPause    = time.Minute
)

// Failed notes that no server answered. Leases stay until they end. The next request waits longer after each
// failure, from 1.3 s up to a minute, less up to a half by Random. While a lease holds, the wait is at most a
// quarter of what is left of it, or 1.3 s, because a new master learns of leases only from their holders.
func (h *Holder) Failed(now time.Time) {
	if !h.outstanding {
		return
	}
	h.endRequest()
	// failures is at most 100, so the power stays finite.
	pause := min(float64(firstPause)*math.Pow(pauseGrowth, float64(h.failures)), float64(maxPause))
	for _, r := range h.resources {
		if now.Before(r.expiry) {
			pause = min(pause, max(float64(r.expiry.Sub(now))/4, float64(firstPause)))
		}
	}
	h.failures = min(h.failures+1, 100)
	// Spread downwards, so that clients which lost the same server do not return together, and none waits
	// longer than promised.
	h.due = now.Add(time.Duration(pause * (1 - h.config.Random()/2)))
}

// Next returns when to call Tick and Requests again. A past instant means now, the zero time that there is
// nothing to wait for.
func (h *Holder) Next() time.Time {
	next := h.Ends()
	if h.outstanding || len(h.resources) == 0 {
		return next
	}
	if ask := h.nextRequest(); next.IsZero() || ask.Before(next) {
		return ask
	}
	return next
}

// Ends returns when the first lease ends, which is when to call Tick again even if no request is sent. The
// zero time means never.
func (h *Holder) Ends() time.Time {
	var first time.Time
	for _, r := range h.resources {
		if r.reported.Leased && (first.IsZero() || r.expiry.Before(first)) {
			first = r.expiry
		}
	}
	return first
}

// Tick returns the resources whose usable amount differs from what it returned before, each once with its
// present amount: granted, or fallen back to the safe capacity because its lease ended.
func (h *Holder) Tick(now time.Time) []AmountChange {
	var changes []AmountChange
	for _, r := range h.resources {
		if c := r.amountAt(now); c != r.reported {
			r.reported = c
			changes = append(changes, c)
		}
	}
	return changes
}

// amountAt returns what may be used at an instant.
func (r *heldResource) amountAt(now time.Time) AmountChange {
	if now.Before(r.expiry) {
		return AmountChange{Resource: r.resource, Amount: r.lease.Capacity, Leased: true}
	}
	return AmountChange{Resource: r.resource, Amount: r.safe}
}

// Capacity returns what may be used of the resource now, -1 for any amount, and whether a lease says so. It
// is 0 for a resource that is not wanted.
func (h *Holder) Capacity(now time.Time, resource string) (amount float64, leased bool) {
	if r, ok := h.byName[resource]; ok {
		c := r.amountAt(now)
		return c.Amount, c.Leased
	}
	return 0, false
}

// Lease returns the lease held on the resource, its expiry by the holder's clock. It is the zero Lease if
// there is none.
func (h *Holder) Lease(now time.Time, resource string) Lease {
	r, ok := h.byName[resource]
	if !ok || !now.Before(r.expiry) {
		return Lease{}
	}
	return Lease{Expiry: r.expiry, Refresh: r.lease.Refresh, Capacity: r.lease.Capacity}
}

// Skew returns by how much, at least, the clocks must differ to explain the expiries of the last answer, if
// it came from a server whose clock is not known. 0 means that they may agree.
func (h *Holder) Skew() time.Duration { return h.skew }
