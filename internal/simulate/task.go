package simulate

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
)

// A task is one process of a server.
type task struct {
	w        *world
	name     string
	node     *serverNode
	position int // in node.tasks
	skew     time.Duration
	up       bool
	runs     int // counts starts and ends: responses to an earlier run are ignored

	server *capacity.Server
	parent *rpcCaller // its calls to the parent; nil at the root
	asking bool

	detached    bool          // the parent's last response was detached
	sawDetached bool          // since it leads, a client reported a lease that is detached
	askAt       time.Duration // when it asks next; never
	planNumber  uint64        // counts plans: only the last one is carried out
	expireAt    time.Duration // when it next removes leases that have run out
}

// never is the time of something that is not planned.
const never = time.Duration(1<<63 - 1)

func (w *world) newTask(n *serverNode, place int) *task {
	t := &task{
		w: w, node: n, position: place,
		name: fmt.Sprintf("%s/%d", n.name, place), skew: w.randomSkew(),
	}
	t.startProcess()
	return t
}

// startProcess starts the process without any state.
func (t *task) startProcess() {
	t.up = true
	t.runs++
	t.asking, t.detached, t.askAt = false, false, never
	t.planNumber++
	t.server = capacity.NewServer(capacity.Limits{})
	if t.node.parent == nil {
		t.configureRoot()
		return
	}
	t.server.Follow(t.localTime())
	// A new process has no connection yet, and begins with a random task of the parent.
	t.parent = &rpcCaller{node: t.node.parent, task: -1, cut: t.node.cut, maxHops: parentHops}
	t.parent.nextTask = t.w.networkRandom.IntN(len(t.node.parent.tasks))
}

// endProcess ends the process.
func (t *task) endProcess() {
	t.up = false
	t.runs++
	t.node.master = nil
}

func (t *task) localTime() time.Time { return t.w.clockWithSkew(t.skew) }

// configureRoot gives the root its template.
func (t *task) configureRoot() {
	t.server.Configure(t.localTime(), capacity.Templates{t.w.resource})
}

// electTask makes the task master of its node.
func (w *world) electTask(n *serverNode, t *task) {
	n.master = t
	n.term++
	t.sawDetached = false
	t.server.Lead(t.localTime(), time.Time{})
	t.planAsking()
}

// An rpcRequest is what a client or a server below asks. detached says that what it holds is not from the
// root.
type rpcRequest struct {
	who      string
	requests []capacity.Request
	detached bool
}

// grantLeases decides a request.
func (t *task) grantLeases(q rpcRequest) rpcResponse {
	now := t.localTime()
	if !t.server.Leading(now) {
		return rpcResponse{}
	}
	t.sawDetached = t.sawDetached || q.detached
	grants := make([]capacity.Grant, 0, len(q.requests))
	for i := range q.requests {
		r := q.requests[i]
		// The request has travelled as well, in whole seconds. The caller's copy stays as it is.
		r.Has = roundLease(r.Has)
		g, err := t.server.Lease(now, q.who, &r)
		// The others of the request are decided all the same.
		if err != nil {
			continue // one lease too many, say: the caller sees that its answer is missing
		}
		grants = append(grants, g)
		// Counted because a client that gets nothing has to stop, which the algorithms should avoid.
		if g.Lease.Capacity == 0 && r.Demands[0].Wants > 0 {
			t.w.counts.ZeroGrants++
			t.w.measure.zeroGrant(t.w.now)
		}
	}
	t.expireLater()
	t.planAsking()
	return rpcResponse{ok: true, grants: grants, detached: t.isDetached(now, q.detached)}
}

// isDetached reports whether what the task grants is not from the root: it has lost its parent, or it repeats
// the report of a client that got its lease from a server which had.
func (t *task) isDetached(now time.Time, claim bool) bool {
	status, _ := t.server.Find(now, resourceName)
	// In learning mode a server passes on what its clients report, and so is as detached as its clients are.
	// A server below the root is detached when its parent's lease has run out, or when it shares out a safe
	// capacity instead of what the parent gave.
	switch {
	case status.Learning:
		return claim
	case t.parent == nil:
		return false
	case status.ParentExpiry.IsZero():
		return t.detached // its clients have all gone
	default:
		return t.detached || !status.ParentExpiry.After(now) || status.Capacity != status.Template.Capacity
	}
}

// expireLater removes leases when they run out, even if no request comes.
func (t *task) expireLater() {
	// One look at a time is planned. It finds out itself when the next is needed.
	if t.expireAt > t.w.now {
		return // it will look then
	}
	next := t.server.Expire(t.localTime())
	if next.IsZero() {
		return
	}
	// A lease holds at its very end, and is removed after it.
	t.expireAt = max(virtualTime(next, t.skew), t.w.now) + time.Millisecond
	t.w.scheduleAt(t.expireAt, func() {
		if t.up {
			t.expireLater()
			t.planAsking()
		}
	})
}

// askSpread is the part by which a request to a parent is put off at random, as the real server does.
const askSpread = 0.1

// planAsking plans to ask the parent, if that is due before what is planned.
func (t *task) planAsking() {
	if t.parent == nil || t.asking {
		return
	}
	instant := t.server.NextAsk()
	if instant.IsZero() {
		return
	}
	next := max(virtualTime(instant, t.skew), t.w.now)
	if next >= t.askAt {
		return
	}
	// Later by up to a tenth of the wait, so that the servers of a level do not ask all at once.
	next += time.Duration(askSpread * t.w.networkRandom.Float64() * float64(next-t.w.now))
	t.askAt = next
	t.planNumber++
	turn := t.planNumber
	t.w.scheduleAt(next, func() {
		if turn == t.planNumber {
			t.askParent()
		}
	})
}

// askParent releases what no client uses, and then asks for what the clients want together.
func (t *task) askParent() {
	t.askAt = never
	now := t.localTime()
	if !t.up || t.asking || !t.server.Leading(now) {
		return
	}
	// Asks must come before Unused: it finds out what is not used any more.
	requests := t.server.Asks(now)
	q := rpcRequest{t.nameAtParent(), requests, t.isDetached(now, t.sawDetached)}
	ask := func() {
		if len(requests) > 0 {
			t.callParent(func(above *task) rpcResponse { return above.grantLeases(q) }, t.applyResponse)
		}
	}
	unused := t.server.Unused()
	if len(unused) == 0 {
		ask()
		t.planAsking()
		return
	}
	// The real server sends the two calls one after the other as well, the release first.
	release := func(above *task) rpcResponse {
		for _, resource := range unused {
			above.server.Release(above.localTime(), t.nameAtParent(), resource)
		}
		return rpcResponse{ok: above.server.Leading(above.localTime())}
	}
	t.callParent(release, func(rpcResponse) { ask() })
}

// callParent calls the parent, and then plans to ask again.
func (t *task) callParent(ask func(above *task) rpcResponse, done func(rpcResponse)) {
	t.asking = true
	run := t.runs
	c := &rpcCall{w: t.w, from: t.parent, serve: ask}
	c.onResponse = func(a rpcResponse) {
		// The process may have ended while the call was on its way.
		if t.runs == run {
			t.asking = false
			done(a)
			t.planAsking()
		}
	}
	c.beginCall()
}

// nameAtParent returns the name under which its parent knows the task.
func (t *task) nameAtParent() string {
	// With one name a new master takes over the lease of the last one; otherwise the parent counts both until
	// the old one has run out.
	if t.w.scenario.oneName {
		return t.node.name
	}
	return t.name
}

// applyResponse applies the parent's response.
func (t *task) applyResponse(a rpcResponse) {
	// A failed call has no grants either.
	if len(a.grants) == 0 {
		t.server.ParentFailed(t.localTime())
		return
	}
	t.server.Told(t.localTime(), a.grants)
	t.detached = a.detached
	// It has lost the mastership since it asked. The shortage is counted for the master's lease.
	if t.node.master != t {
		return
	}
	lease := a.grants[0].Lease
	// In learning mode the grant only repeats what was reported, while the parent keeps for this server what
	// it had given before.
	given := lease.Capacity
	if status, _ := t.server.Find(t.localTime(), resourceName); status.Learning {
		given = max(given, t.node.shortage.given) // the parent keeps for it what it had
	}
	t.node.noteSupply(t.w.now, given, virtualTime(lease.Expiry, t.skew))
}
