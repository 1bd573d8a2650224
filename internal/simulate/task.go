package simulate

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A task is one process of a server.
type task struct {
	w     *world
	name  string
	node  *node
	place int // in node.tasks
	skew  time.Duration
	up    bool
	runs  int // counts its beginnings and ends: answers to a former life are not for this one

	server *capacity.Server
	parent *caller // how it asks its parent; nil at the root
	asking bool

	outside bool          // the parent's last answer was not from the root
	repeats bool          // since it leads, claims were made to what is not
	plan    time.Duration // when it asks next; never
	turn    uint64        // counts plans, so that only the last one is carried out
	sweep   time.Duration // when it looks next for leases that have run out
}

// never is when nothing is planned.
const never = time.Duration(1<<63 - 1)

func (w *world) newTask(n *node, place int) *task {
	t := &task{w: w, node: n, place: place, name: fmt.Sprintf("%s/%d", n.name, place), skew: w.skew()}
	t.begin()
	return t
}

// begin starts the process, which knows nothing.
func (t *task) begin() {
	t.up = true
	t.runs++
	t.asking, t.outside, t.plan = false, false, never
	t.turn++
	t.server = capacity.NewServer(capacity.Limits{})
	if t.node.parent == nil {
		t.configure()
		return
	}
	t.server.Follow(t.clock())
	t.parent = &caller{node: t.node.parent, task: -1, cut: t.node.cut, hops: parentHops}
	t.parent.turn = t.w.travel.IntN(len(t.node.parent.tasks))
}

// end is the end of the process.
func (t *task) end() {
	t.up = false
	t.runs++
	t.node.master = nil
}

func (t *task) clock() time.Time { return t.w.clock(t.skew) }

// configure gives the root its template.
func (t *task) configure() {
	t.server.Configure(t.clock(), capacity.Templates{t.w.resource})
}

// elect makes the task master of its node.
func (w *world) elect(n *node, t *task) {
	n.master = t
	n.lead++
	t.repeats = false
	t.server.Lead(t.clock(), time.Time{})
	t.planAsking()
}

// A question is what a client or a server below asks. Outside says that what it holds is not from the root.
type question struct {
	who      string
	requests []capacity.Request
	outside  bool
}

// decide answers.
func (t *task) decide(q question) answer {
	now := t.clock()
	if !t.server.Leading(now) {
		return answer{}
	}
	t.repeats = t.repeats || q.outside
	grants := make([]capacity.Grant, 0, len(q.requests))
	for i := range q.requests {
		r := q.requests[i]
		r.Has = wire(r.Has)
		g, err := t.server.Lease(now, q.who, &r)
		if err != nil {
			continue // one lease too many, say: the caller sees that its answer is missing
		}
		grants = append(grants, g)
		if g.Lease.Capacity == 0 && r.Demands[0].Wants > 0 {
			t.w.counts.ZeroGrants++
			t.w.measure.zeroGrant(t.w.now)
		}
	}
	t.expireLater()
	t.planAsking()
	return answer{ok: true, grants: grants, outside: t.isOutside(now, q.outside)}
}

// isOutside reports whether what the task gives is not from the root: it has lost its parent, or it
// repeats a claim to something that was given by one who had.
func (t *task) isOutside(now time.Time, claim bool) bool {
	status, _ := t.server.Find(now, resourceName)
	switch {
	case status.Learning:
		return claim
	case t.parent == nil:
		return false
	case status.ParentExpiry.IsZero():
		return t.outside // its clients have all gone
	default:
		return t.outside || !status.ParentExpiry.After(now) || status.Capacity != status.Template.Capacity
	}
}

// expireLater forgets leases when they run out, whether anybody asks or not.
func (t *task) expireLater() {
	if t.sweep > t.w.now {
		return // it will look then
	}
	next := t.server.Expire(t.clock())
	if next.IsZero() {
		return
	}
	t.sweep = max(planned(next, t.skew), t.w.now) + time.Millisecond
	t.w.at(t.sweep, func() {
		if t.up {
			t.expireLater()
			t.planAsking()
		}
	})
}

// spread is by what part the asking of a parent is put off at random, as the real server does.
const spread = 0.1

// planAsking plans to ask the parent, if that is due before it is planned.
func (t *task) planAsking() {
	if t.parent == nil || t.asking {
		return
	}
	instant := t.server.NextAsk()
	if instant.IsZero() {
		return
	}
	next := max(planned(instant, t.skew), t.w.now)
	if next >= t.plan {
		return
	}
	next += time.Duration(spread * t.w.travel.Float64() * float64(next-t.w.now))
	t.plan = next
	t.turn++
	turn := t.turn
	t.w.at(next, func() {
		if turn == t.turn {
			t.askParent()
		}
	})
}

// askParent gives back what nobody uses, and then asks for what the clients want together.
func (t *task) askParent() {
	t.plan = never
	now := t.clock()
	if !t.up || t.asking || !t.server.Leading(now) {
		return
	}
	requests := t.server.Asks(now)
	q := question{t.identity(), requests, t.isOutside(now, t.repeats)}
	ask := func() {
		if len(requests) > 0 {
			t.call(func(above *task) answer { return above.decide(q) }, t.told)
		}
	}
	unused := t.server.Unused()
	if len(unused) == 0 {
		ask()
		t.planAsking()
		return
	}
	release := func(above *task) answer {
		for _, resource := range unused {
			above.server.Release(above.clock(), t.identity(), resource)
		}
		return answer{ok: above.server.Leading(above.clock())}
	}
	t.call(release, func(answer) { ask() })
}

// call calls the parent, and then plans to ask again.
func (t *task) call(ask func(above *task) answer, done func(answer)) {
	t.asking = true
	run := t.runs
	c := &call{w: t.w, from: t.parent, ask: ask}
	c.done = func(a answer) {
		if t.runs == run {
			t.asking = false
			done(a)
			t.planAsking()
		}
	}
	c.begin()
}

// identity is the name under which its parent knows the task.
func (t *task) identity() string {
	if t.w.scenario.oneName {
		return t.node.name
	}
	return t.name
}

// told takes the parent's answer.
func (t *task) told(a answer) {
	if len(a.grants) == 0 {
		t.server.ParentFailed(t.clock())
		return
	}
	t.server.Told(t.clock(), a.grants)
	t.outside = a.outside
	if t.node.master != t {
		return
	}
	lease := a.grants[0].Lease
	given := lease.Capacity
	if status, _ := t.server.Find(t.clock(), resourceName); status.Learning {
		given = max(given, t.node.shortage.given) // the parent keeps for it what it had
	}
	t.node.supplied(t.w.now, given, planned(lease.Expiry, t.skew))
}
