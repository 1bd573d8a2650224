package capacity

import (
	"math"
	"time"
)

// A Holder is the client's side: it knows what is wanted of each resource and which leases are held, says
// when to ask a server and what, and what may be used at any moment. Make one with NewHolder.
//
// All resources are asked for in one request. Whoever drives it calls Tick and Requests when Next says so
// and after every Want, sends what Requests returned, and tells how it went by Answered or Failed.
// Requests that are on their way are not sent a second time.
type Holder struct {
	config HolderConfig
	early  time.Duration // between two requests when a resource is new or other amounts are wanted
	held   []*held
	index  map[string]*held

	due      time.Time // when to ask again
	sent     time.Time // when the last request was sent
	waiting  bool      // a request is on its way
	hurry    bool      // something is new, or wanted in another amount
	failures int       // since the last answer
	skew     time.Duration
}

// HolderConfig says how a Holder asks. Its zero value works, but for Random.
type HolderConfig struct {
	// MinRefresh is the shortest time between two requests that nothing but time calls for, however
	// soon servers want to be asked; 0 means 5 s. A lease that is shorter still is renewed before it ends.
	MinRefresh time.Duration

	// Fallback is what may be used of a resource about which no server has answered yet: 0 nothing,
	// -1 any amount.
	Fallback float64

	// Random returns numbers from 0 to 1, to spread clients that started together; nil spreads nothing.
	Random func() float64
}

// A Change is a new amount of a resource.
type Change struct {
	Resource string
	Amount   float64 // -1 without limit
	Leased   bool    // by a lease; else it is what may be used without one
}

// unlimited is the amount that stands for no limit, as safe capacity and in a Change alone.
const unlimited = -1

// A held resource is one that is wanted.
type held struct {
	resource string
	place    int // in Holder.held
	demand   Demand
	asked    bool // in the request on its way
	known    bool // a server was asked, and may have granted a lease even if no answer came

	lease  Lease     // as the server gave it, by its clock; the zero value before the first
	expiry time.Time // of the lease, by the holder's clock
	safe   float64   // for the time without a lease

	told Change // what Tick reported last
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
	return &Holder{config: c, early: early, index: map[string]*held{}, due: longAgo, sent: longAgo}
}

// Want notes that so much of the resource is wanted, 0 or more: of a new one, or another amount than
// before. It is asked for a second after the last request, or after the back-off when servers fail.
func (h *Holder) Want(resource string, priority int64, wants float64) {
	demand := Demand{Priority: priority, Clients: 1, Wants: wants}
	r, ok := h.index[resource]
	if ok && r.demand == demand {
		return
	}
	if !ok {
		r = &held{resource: resource, place: len(h.held), safe: h.config.Fallback}
		r.told = Change{Resource: resource, Amount: r.safe}
		h.index[resource] = r
		h.held = append(h.held, r)
	}
	r.demand = demand
	h.hurry = true
}

// Drop forgets the resource, and reports whether a server was ever asked for it, so that there may be a
// lease to give back.
func (h *Holder) Drop(resource string) bool {
	r, ok := h.index[resource]
	if !ok {
		return false
	}
	last := h.held[len(h.held)-1]
	h.held[r.place], last.place = last, r.place
	h.held = h.held[:len(h.held)-1]
	delete(h.index, resource)
	return r.known
}

// Requests returns what to ask a server for now, nil when it is not yet time, when a request is on its
// way, and when nothing is wanted. The holder then waits for Answered or Failed; the first of them counts,
// and what comes later, before the next request, is nothing to it.
func (h *Holder) Requests(now time.Time) []Request {
	if h.waiting || len(h.held) == 0 || now.Before(h.ask()) {
		return nil
	}
	h.sent, h.waiting, h.hurry = now, true, false
	demands := make([]Demand, len(h.held))
	requests := make([]Request, len(h.held))
	for i, r := range h.held {
		r.asked, r.known = true, true
		demands[i] = r.demand
		requests[i] = Request{Resource: r.resource, Demands: demands[i : i+1 : i+1]}
		if now.Before(r.expiry) {
			requests[i].Has = r.lease
		}
	}
	return requests
}

// ask is when to send the next request.
func (h *Holder) ask() time.Time {
	if early := h.sent.Add(h.early); h.hurry && h.failures == 0 && early.Before(h.due) {
		return early
	}
	return h.due
}

// Answered takes in what a server answered to the requests on their way, when its clock is not known. Tick
// then says what it changed. A grant whose Safe is NaN leaves the safe capacity as it was.
// Expiries are then taken at their word, but for two bounds: a lease holds at least until the server wants
// to be asked again, and at most for an hour, both from when the request was sent.
func (h *Holder) Answered(now time.Time, grants []Grant) {
	h.AnsweredBy(now, time.Time{}, grants)
}

// maxLease is how long a lease holds at most when the server's clock is not known.
const maxLease = time.Hour

// AnsweredBy is Answered by a server whose clock stood at clock when it decided. What is left of each
// lease by that clock counts from when the request was sent, so that clocks need not agree.
func (h *Holder) AnsweredBy(now, clock time.Time, grants []Grant) {
	if !h.waiting {
		return
	}
	h.skew = 0
	answered := 0
	for i := range grants {
		if r, ok := h.index[grants[i].Resource]; ok && r.asked {
			h.take(r, clock, &grants[i])
			answered++
		}
	}
	if answered == 0 && h.wasAsked() {
		h.Failed(now)
		return
	}
	h.settle()
	h.failures = 0
	h.due = latest(h.sent.Add(h.interval(now)), now.Add(h.early/2))
}

// wasAsked reports whether anything that is still wanted was in the request on its way.
func (h *Holder) wasAsked() bool {
	for _, r := range h.held {
		if r.asked {
			return true
		}
	}
	return false
}

// settle ends the request on its way.
func (h *Holder) settle() {
	h.waiting = false
	for _, r := range h.held {
		r.asked = false
	}
}

// take makes the grant the lease of r. Amounts that no server should send count as nothing: a
// negative one is never "no limit".
func (h *Holder) take(r *held, clock time.Time, g *Grant) {
	r.safe = safeAmount(g.Safe, r.safe)
	r.lease = g.Lease
	if amount := r.lease.Capacity; !(amount >= 0) || math.IsInf(amount, 1) {
		r.lease.Capacity = 0
	}
	length := g.Lease.Expiry.Sub(clock)
	if clock.IsZero() {
		byWire := g.Lease.Expiry.Sub(h.sent)
		length = min(max(byWire, g.Lease.Refresh), maxLease)
		h.skew = max(h.skew, (byWire - length).Abs())
	}
	r.expiry = h.sent.Add(length)
}

// safeAmount is the safe capacity a server sent, or before when it makes no sense. -1 is no limit; nothing
// else below 0 is.
func safeAmount(sent, before float64) float64 {
	if math.IsNaN(sent) || math.IsInf(sent, 0) {
		return before
	}
	if sent < 0 && sent != unlimited {
		return 0
	}
	return sent
}

// maxRefresh is the longest time between two requests, whatever a server says.
const maxRefresh = 24 * time.Hour

// interval is the time from one request to the next: the shortest that a lease asks for, and up to a tenth
// more so that clients drift apart. A fifth of the shortest lease is left for the answer.
func (h *Holder) interval(now time.Time) time.Duration {
	refresh, left := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for _, r := range h.held {
		if now.Before(r.expiry) {
			refresh = min(refresh, r.lease.Refresh, maxRefresh)
			left = min(left, r.expiry.Sub(h.sent))
		}
	}
	if refresh == math.MaxInt64 {
		refresh = 0
	}
	refresh = max(refresh, h.config.MinRefresh)
	spread := time.Duration(float64(refresh) / 10 * h.config.Random())
	return max(min(refresh+spread, left/5*4), h.early)
}

const (
	firstPause  = 1300 * time.Millisecond
	pauseGrowth = 1.3
	maxPause    = time.Minute
)

// Failed notes that no server answered. Leases stay until they end; the next request waits for longer
// after each failure, from 1.3 s to a minute, or down to half of that by Random. While a lease holds it waits
// no longer than a quarter of what is left of it, or 1.3 s: a new master knows of leases by those who still
// hold them.
func (h *Holder) Failed(now time.Time) {
	if !h.waiting {
		return
	}
	h.settle()
	pause := min(float64(firstPause)*math.Pow(pauseGrowth, float64(h.failures)), float64(maxPause))
	for _, r := range h.held {
		if now.Before(r.expiry) {
			pause = min(pause, max(float64(r.expiry.Sub(now))/4, float64(firstPause)))
		}
	}
	h.failures = min(h.failures+1, 100)
	h.due = now.Add(time.Duration(pause * (1 - h.config.Random()/2)))
}

// Next is when to call Tick and Requests again; a past instant means now, the zero time that there is
// nothing to wait for.
func (h *Holder) Next() time.Time {
	next := h.Ends()
	if h.waiting || len(h.held) == 0 {
		return next
	}
	if ask := h.ask(); next.IsZero() || ask.Before(next) {
		return ask
	}
	return next
}

// Ends is when to call Tick again, whatever becomes of Requests: when the first lease ends. The zero time
// is never.
func (h *Holder) Ends() time.Time {
	var first time.Time
	for _, r := range h.held {
		if r.told.Leased && (first.IsZero() || r.expiry.Before(first)) {
			first = r.expiry
		}
	}
	return first
}

// Tick returns the resources of which another amount may be used than it said before, each once with the
// amount of now: granted, or fallen to the safe capacity because its lease ended.
func (h *Holder) Tick(now time.Time) []Change {
	var changes []Change
	for _, r := range h.held {
		if c := r.at(now); c != r.told {
			r.told = c
			changes = append(changes, c)
		}
	}
	return changes
}

// at is what may be used at an instant.
func (r *held) at(now time.Time) Change {
	if now.Before(r.expiry) {
		return Change{Resource: r.resource, Amount: r.lease.Capacity, Leased: true}
	}
	return Change{Resource: r.resource, Amount: r.safe}
}

// Capacity returns what may be used of the resource now, -1 for any amount, and whether a lease says so.
// Of a resource that is not wanted that is nothing.
func (h *Holder) Capacity(now time.Time, resource string) (amount float64, leased bool) {
	if r, ok := h.index[resource]; ok {
		c := r.at(now)
		return c.Amount, c.Leased
	}
	return 0, false
}

// Lease returns the lease held on the resource, its expiry by the holder's clock; the zero Lease if none.
func (h *Holder) Lease(now time.Time, resource string) Lease {
	r, ok := h.index[resource]
	if !ok || !now.Before(r.expiry) {
		return Lease{}
	}
	return Lease{Expiry: r.expiry, Refresh: r.lease.Refresh, Capacity: r.lease.Capacity}
}

// Skew is by how much, at least, clocks must differ for the expiries of the last answer, from a server whose
// clock is not known. 0 means that they need not.
func (h *Holder) Skew() time.Duration { return h.skew }
