package oracle

import (
	"slices"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/gatehousehq/gatehouse"
)

// This file is what is right for grants over several names.

// A grantModelCall is a call, or the taking back of what it was granted.
type grantModelCall struct {
	*GrantCall
	number    int
	undo, end bool
}

func (c grantModelCall) isEnd() bool { return c.end }

// A grantModelReply says whether the decision of a call is known. It is in the call itself.
type grantModelReply struct{ known bool }

func (a grantModelReply) isKnown() bool { return a.known }

// A grantsState is the state of all names, and of the grants there were. It is never changed, but copied.
type grantsState struct {
	names   map[gatehouse.Key]int // where each is; the same in all states
	waits   bool
	holds   []holdsState // those of grants among them; of limiters only the last token
	used    []int64      // of limiters: what counts, with what is owed
	records []modelGrant // in the order of their ids
	loose   []int        // acquires of limiters without an answer that took something, in order
}

// A modelGrant is a grant.
type modelGrant struct {
	id      string
	want    []gatehouse.Member
	overrun gatehouse.Overrun
	fence   uint64 // 0 when it is not known: then it is greater than above
	above   uint64
	ended   bool
	sure    bool    // it was answered, or used: no undo ends it
	calls   []int   // acquires without an answer that were granted it, in order; none of a sure one
	topups  []int   // those without an answer, in order
	taken   []int64 // of each of want
	counted []int64
}

func (g modelGrant) equal(o modelGrant) bool {
	return g.id == o.id && g.fence == o.fence && g.above == o.above && g.ended == o.ended &&
		g.sure == o.sure && g.overrun == o.overrun &&
		slices.Equal(g.calls, o.calls) && slices.Equal(g.topups, o.topups) &&
		slices.Equal(g.taken, o.taken) && slices.Equal(g.counted, o.counted) && slices.Equal(g.want, o.want)
}

// copy returns a copy that may be changed, but for what it wants.
func (g modelGrant) copy() modelGrant {
	g.calls, g.topups = slices.Clone(g.calls), slices.Clone(g.topups)
	g.taken, g.counted = slices.Clone(g.taken), slices.Clone(g.counted)
	return g
}

func grantsModel(names map[gatehouse.Key]int, waits bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any {
			return grantsState{
				names: names, waits: waits,
				holds: make([]holdsState, len(names)), used: make([]int64, len(names)),
			}
		},
		// It must not change the state it is given: the search comes back to that and tries another call.
		Step: func(state, in, out any) (bool, any) {
			s, c, known := state.(grantsState), in.(grantModelCall), out.(grantModelReply).known
			switch {
			case c.undo:
				return true, s.undo(&c)
			case c.Single != nil:
				return s.stepSingle(&c, known)
			case c.Command.Op == gatehouse.OpAcquire:
				return s.stepGrant(&c, known)
			}
			return s.stepFollow(&c, known)
		},
		Equal: func(a, b any) bool {
			one, other := a.(grantsState), b.(grantsState)
			return slices.Equal(one.used, other.used) && slices.Equal(one.loose, other.loose) &&
				slices.EqualFunc(one.records, other.records, modelGrant.equal) &&
				slices.EqualFunc(one.holds, other.holds, func(a, b holdsState) bool {
					return a.last == b.last && slices.EqualFunc(a.list, b.list, modelHold.equal)
				})
		},
	}
}

// copy returns a state that may be changed, but for the insides of its grants and holds.
func (s grantsState) copy() grantsState {
	s.holds, s.used = slices.Clone(s.holds), slices.Clone(s.used)
	s.records, s.loose = slices.Clone(s.records), slices.Clone(s.loose)
	return s
}

func (s grantsState) find(id string) (int, bool) {
	return slices.BinarySearchFunc(s.records, id, func(g modelGrant, id string) int {
		return strings.Compare(g.id, id)
	})
}

// free is how much a member could have.
func (s grantsState) free(m *gatehouse.Member) int64 {
	i := s.names[m.Key]
	switch {
	case m.Key.Kind.Limiter():
		return max(0, m.Size-s.used[i])
	case m.Key.Kind == gatehouse.Lock:
		return 1 - s.holds[i].heldSum()
	}
	return m.Size - s.holds[i].heldSum()
}

// stepSingle is a command on one name.
func (s grantsState) stepSingle(c *grantModelCall, known bool) (right bool, next any) {
	key, cmd := c.Single.Key, c.Single.Command
	i := s.names[key]
	if !key.Kind.Limiter() {
		right, held := holdsModel(s.waits).Step(s.holds[i], modelCall{Command: cmd, number: c.number},
			modelReply{known, c.Single.Decision})
		s = s.copy()
		s.holds[i] = held.(holdsState)
		return right, s
	}
	room := s.free(&gatehouse.Member{Key: key, Rule: cmd.Rule}) >= cmd.Cost
	switch granted := c.Single.Decision.Outcome == gatehouse.Granted; {
	// Where requests wait, one may be refused although there is room, as another one stands before it.
	case known && !granted:
		return s.waits || !room, s
	case !room:
		return !known, s
	}
	s = s.copy()
	s.used[i] += cmd.Cost
	// It may be taken back later, which is a call of its own.
	if !known {
		s.loose = insertInt(s.loose, c.number)
	}
	return true, s
}

// insertInt inserts into a list that is ordered and may be changed.
func insertInt(list []int, n int) []int {
	at, _ := slices.BinarySearch(list, n)
	return slices.Insert(list, at, n)
}

// stepGrant is an acquire of a grant.
func (s grantsState) stepGrant(c *grantModelCall, known bool) (right bool, next any) {
	cmd, d := &c.Command, &c.Decision
	i, there := s.find(cmd.ID)
	if there {
		return s.stepAgain(i, c, known)
	}
	room, above := true, uint64(0)
	for k := range cmd.Want {
		m := &cmd.Want[k]
		room, above = room && s.free(m) >= m.Cost, max(above, s.holds[s.names[m.Key]].last)
	}
	switch granted := d.Outcome == gatehouse.Granted; {
	case known && !granted:
		return d.Outcome == gatehouse.Refused && (s.waits || !room), s
	case !room:
		return !known, s
	// Its token must be above those of all holds before it, at each of its names.
	case known && d.Fence <= above:
		return false, s
	}
	g := modelGrant{id: cmd.ID, want: cmd.Want, overrun: cmd.Overrun, above: above, sure: known}
	if known {
		g.fence = d.Fence
	} else {
		g.calls = []int{c.number}
	}
	for k := range cmd.Want {
		g.taken = append(g.taken, cmd.Want[k].Cost)
	}
	// Until a settle says otherwise, what was taken is what counts.
	g.counted = slices.Clone(g.taken)
	s = s.copy()
	s.records = slices.Insert(s.records, i, g)
	for k := range g.want {
		s.takeMember(&g, k)
	}
	return !known || tellsGrant(d, &g), s
}

// takeMember takes what a new grant wants of one name. The state may be changed.
func (s grantsState) takeMember(g *modelGrant, k int) {
	m := &g.want[k]
	i := s.names[m.Key]
	h := s.holds[i]
	h.last = max(h.last, g.fence)
	// A limiter counts, and has no holder.
	if m.Key.Kind.Limiter() {
		s.used[i] += m.Cost
	} else {
		at, _ := h.findHolder(grantHolder(g.id))
		h.list = slices.Insert(slices.Clone(h.list), at, modelHold{
			holder: grantHolder(g.id), cost: m.Cost, fence: g.fence, above: g.above, sure: true,
		})
	}
	s.holds[i] = h
}

// grantHolder is the holder of a grant's holds. No client has a name like it.
func grantHolder(id string) string { return "\x00" + id }

// tellsGrant reports whether a decision tells how a grant stands.
func tellsGrant(d *gatehouse.GrantDecision, g *modelGrant) bool {
	if len(d.Want) != len(g.want) {
		return false
	}
	for k := range d.Want {
		if d.Want[k].Key != g.want[k].Key || d.Want[k].Cost != g.counted[k] {
			return false
		}
	}
	return true
}

// stepAgain is an acquire of a grant whose id is there.
func (s grantsState) stepAgain(i int, c *grantModelCall, known bool) (right bool, next any) {
	g, d := s.records[i], &c.Decision
	switch {
	case g.ended || !slices.Equal(g.want, c.Command.Want):
		return !known || d.Outcome == gatehouse.Conflict, s
	// A repeat without an answer changes nothing of a grant that some client has.
	case !known && g.sure:
		return true, s
	}
	s = s.copy()
	if !known {
		g = g.copy()
		g.calls = insertInt(g.calls, c.number)
		s.records[i] = g
		return true, s
	}
	right = d.Outcome == gatehouse.Granted && s.confirm(i, d.Fence) && tellsGrant(d, &g)
	return right, s
}

// confirm notes that a grant was used, or answered with a fencing token; 0 is none that is known. It reports
// whether that can be its token. The state may be changed.
func (s grantsState) confirm(i int, fence uint64) bool {
	g := s.records[i].copy()
	g.sure, g.calls = true, nil
	switch {
	case fence == 0:
	// The token belongs to another grant of this id.
	case g.fence != 0 && g.fence != fence, fence <= g.above:
		return false
	case g.fence == 0:
		g.fence = fence
		for k := range g.want {
			if !s.confirmMember(&g, g.want[k].Key) {
				return false
			}
		}
	}
	s.records[i] = g
	return true
}

// confirmMember notes the fencing token of a grant under one of its names, and reports whether that can be.
func (s grantsState) confirmMember(g *modelGrant, key gatehouse.Key) bool {
	at := s.names[key]
	h := s.holds[at]
	h.last = max(h.last, g.fence)
	if place, held := h.findHolder(grantHolder(g.id)); held {
		hold := h.list[place]
		// A later hold of the name is known already, and has a lower token than this one would have.
		if hold.below != 0 && g.fence >= hold.below {
			return false
		}
		hold.fence = g.fence
		h = h.withHold(place, hold)
	}
	s.holds[at] = h
	return true
}

// stepFollow is an operation on a grant that is there, or not.
func (s grantsState) stepFollow(c *grantModelCall, known bool) (right bool, next any) {
	cmd, d := &c.Command, &c.Decision
	i, there := s.find(cmd.ID)
	if !there {
		return !known || d.Outcome == gatehouse.Missing, s
	}
	g := s.records[i]
	other := cmd.Fence != 0 && cmd.Fence != g.fence
	s = s.copy()
	switch {
	case cmd.Op == gatehouse.OpPeek:
		// What is looked at is not sure for that.
		return !known || d.Outcome == gatehouse.Granted && d.Ended == g.ended && tellsGrant(d, &g), s
	case g.ended:
		return !known || d.Outcome == gatehouse.Conflict, s
	case other && g.fence != 0:
		return !known || d.Outcome == gatehouse.Conflict, s
	case other && known && d.Outcome == gatehouse.Conflict:
		return true, s // the token of the grant is not known
	case cmd.Op == gatehouse.OpTopUp && !s.fits(&g, cmd):
		return !known || d.Outcome == gatehouse.Refused, s
	case cmd.Op == gatehouse.OpTopUp && known && d.Outcome == gatehouse.Refused:
		return s.waits, s
	case known && d.Outcome != gatehouse.Granted:
		return false, s
	}
	fence := cmd.Fence
	if known {
		fence = d.Fence
	}
	if !s.confirm(i, fence) {
		return false, s
	}
	s.apply(i, c, known)
	return !known || tellsGrant(d, &s.records[i]), s
}

// fits reports whether there is room for a topup.
func (s grantsState) fits(g *modelGrant, cmd *gatehouse.GrantCommand) bool {
	for k := range g.want {
		if n, told := costOf(cmd, g.want[k].Key); told && s.free(&g.want[k]) < n {
			return false
		}
	}
	return true
}

// costOf is what a command says of one limiter.
func costOf(cmd *gatehouse.GrantCommand, key gatehouse.Key) (cost int64, told bool) {
	for _, c := range cmd.Costs {
		if c.Key == key {
			return c.Cost, true
		}
	}
	return 0, false
}

// apply makes of a grant what a topup, a settle, a release or a renew does. The state may be changed.
func (s grantsState) apply(i int, c *grantModelCall, known bool) {
	g := s.records[i].copy()
	op := c.Command.Op
	for k := range g.want {
		key := g.want[k].Key
		at := s.names[key]
		n, told := costOf(&c.Command, key)
		switch {
		case !key.Kind.Limiter():
			if place, held := s.holds[at].findHolder(grantHolder(g.id)); held && op == gatehouse.OpRelease {
				s.holds[at] = s.holds[at].withoutHold(place)
			}
		// What is not named in a settle or a release stays as it was counted.
		case !told:
		case op == gatehouse.OpTopUp:
			g.counted[k], g.taken[k], s.used[at] = g.counted[k]+n, g.taken[k]+n, s.used[at]+n
		default:
			more := n - g.counted[k]
			// Capped, no more is charged than is free.
			if g.overrun == gatehouse.OverrunCap {
				more = min(more, s.free(&g.want[k]))
			}
			g.counted[k], s.used[at] = g.counted[k]+more, s.used[at]+more
		}
	}
	g.ended = op == gatehouse.OpRelease
	if op == gatehouse.OpTopUp && !known {
		g.topups = insertInt(g.topups, c.number)
	}
	s.records[i] = g
}
