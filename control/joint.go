package control

import (
	"cmp"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A JointChange is one change over several controllers: a grant over several names, or what becomes of one.
// It has one turn for each name, and takes effect under all of them or under none. From ApplyJoint on it
// belongs to the store, with its parts, until Done is called. [GrantParts] makes the parts of a command.
type JointChange struct {
	// Parts are ordered by [ComparePartKeys]. No key is there twice. There are at most MaxParts.
	Parts []Part

	// Granted says, from Done on, that all parts took effect.
	Granted bool

	// Done is called exactly once, perhaps before ApplyJoint returns, without any lock of the store's. It
	// must not block. Either err is nil, and every turn has its decision or an error of its own; or it is not
	// known what took effect.
	Done func(err error)
}

// MaxParts is the most parts of a joint change: the members of a grant, and its record.
const MaxParts = gatehouse.MaxMembers + 1

// A Part is the turn of one controller in a joint change.
type Part struct {
	Key  gatehouse.Key
	Turn Turn

	// Optional says that the others take effect whatever this one is answered, as when a grant is released
	// one of whose names was deleted.
	Optional bool

	// NonBlocking says that the turn, if it goes on waiting, does not hold up others at this name: it only
	// has to hear of changes.
	NonBlocking bool
}

// ComparePartKeys is the order of parts, by kind and then by name: a negative number if a comes first. The
// record of a grant is the last.
func ComparePartKeys(a, b gatehouse.Key) int {
	if a.Kind != b.Kind {
		return cmp.Compare(a.Kind, b.Kind)
	}
	return strings.Compare(a.Name, b.Name)
}

// A GrantTurn is what a turn that is a part of a joint change has besides. What the command of the turn says
// depends on the operation on the grant, which is Command.Op, and on what the part is of:
//
//	grant    record      semaphore, lock         limiter
//	acquire  OpAcquire   OpAcquire, its Holder   OpAcquire
//	topup    OpTopUp     no part                 OpAcquire of what is added
//	renew    OpRenew     OpRenew                 OpRenew, optional
//	settle   OpSettle    no part                 OpSettle, its Cost is the whole cost so far
//	release  OpRelease   OpRelease, optional     OpRelease; its Cost too, or NoFigure: then it is optional
//	peek     OpPeek      OpPeek, optional        no part; of slots none in GrantParts.Peek
//	look     no record   none                    OpPeek or OpDelay
//	undo     OpUndo      OpUndo                  OpUndo
//
// Fence is that of the grant in all but an acquire and an undo, and Expires is how long the grant lasts from
// now in an acquire and a renew. An undo has what was decided in Turn.Granted. Limiters are told the rule
// that the grant was acquired with, which counts for a new name only.
type GrantTurn struct {
	// ID is that of the grant; empty if it has no record.
	ID string

	// Command is the whole command.
	Command *gatehouse.GrantCommand

	// Member is the index of the part's key in what the grant wants; -1 of the record.
	Member int

	// Clip has the cost of an acquire of a limiter cut to the limit in force.
	Clip bool

	// Trial says that the turn is only tried: it is answered as it would be, and takes nothing. Limits and
	// sizes come into force all the same, at the first look. What is left, in the answer, is what is left as
	// long as nothing is taken.
	Trial bool

	// Taken and Counted are, for a limiter of a grant that is there, how much the record says that was taken,
	// and that counts so far. ServeJoint brings them up to date.
	Taken, Counted int64

	// Overrun and OnExpiry are the rules that the grant was acquired with.
	Overrun  gatehouse.Overrun
	OnExpiry gatehouse.OnExpiry

	served []JointPart // for the record: what the members were answered; nil unless it takes effect
	tried  bool        // it has passed its trial at this instant

	// lost is, in the acquire of the record, a name that the grant of that ID wants and holds no more.
	lost string

	// settled says, in an undo of a topup, that its limiter was settled since.
	settled bool
}

// NoFigure as the Cost of a limiter's release says that it stays as it was taken or settled last.
const NoFigure = -1

// A JointPart is a part with the state that it is served on.
type JointPart struct {
	*Part
	State State // nil when there is none, before and after
	Room  *Room // nil is as much as may be wanted; parts that have the same share it

	growth int // the most that the turn may make the state grow
}

// ServeJoint serves a joint change at one instant, and reports whether it took effect. The states are served
// in place, or replaced.
//
// First every turn is tried. If all turns that are not optional are granted, all granted turns take effect,
// under one fencing token: the greatest that any of them would have, so that it is above every earlier one
// under each name. Otherwise nothing is taken, and each turn keeps the answer of its trial; for a granted
// turn, that is the state of its name.
//
// Undos are not tried. They all take effect, unless the record says that another caller relies on the grant.
func ServeJoint(now time.Time, parts []JointPart) (granted bool) {
	record := findRecord(parts)
	if parts[0].Turn.Op == gatehouse.OpUndo {
		undoJoint(now, parts, record)
		return true
	}
	if record != nil {
		tellCounted(parts, record.State)
	}
	// A trial changes nothing that another part looks at, so their order makes no difference.
	fence, granted := uint64(0), true
	for i := range parts {
		p := &parts[i]
		if p == record {
			p.Turn.Grant.lost = findLost(parts[:i], p)
		}
		p.tryTurn(now, parts[:i])
		switch {
		case p.wouldPass():
			fence = max(fence, p.Turn.Decision.Fence)
		case !p.Optional:
			granted = false
		}
	}
	if !granted {
		fillStanding(now, parts)
		return false
	}
	for i := range parts {
		// A question is answered already, and of a name that is not there it makes none.
		if p := &parts[i]; p != record && p.wouldPass() && !p.onlyLooks() {
			p.stepTurn(now, fence)
		}
	}
	// The record is told what the members were answered: of a cost that was clipped or capped only they know.
	if record != nil {
		record.Turn.Grant.served = parts
		record.stepTurn(now, fence)
		record.Turn.Grant.served = nil
	}
	return true
}

// findRecord is the part of the grant's record; nil when it has none.
func findRecord(parts []JointPart) *JointPart {
	if last := &parts[len(parts)-1]; last.Key.Kind == gatehouse.Grant {
		return last
	}
	return nil
}

// findLost is the first of the names of which a grant that is there holds nothing any more, because its hold
// was evicted or the name deleted; "" if there is none. The others were tried, so that what has ended is
// gone.
func findLost(others []JointPart, record *JointPart) (name string) {
	one, ok := record.State.(*GrantRecord)
	if !ok || one.last == nil || record.Turn.Op != gatehouse.OpAcquire {
		return ""
	}
	for i := range others {
		p := &others[i]
		s, held := p.State.(*Semaphore)
		if !held {
			continue // a limiter: what was taken of it was taken
		}
		if h := s.holds.find(p.Turn.Holder); h == nil || h.fence != one.last.Fence {
			return p.Key.String()
		}
	}
	return ""
}

// tellCounted tells the members of a grant that is there what its record says that they count.
func tellCounted(parts []JointPart, state State) {
	record, ok := state.(*GrantRecord)
	there := ok && record.last != nil
	for i := range parts {
		g := parts[i].Turn.Grant
		switch {
		case g.Command.Op == gatehouse.OpAcquire:
			// A grant of this ID may have been there when these parts were served before, in vain.
			g.Taken, g.Counted = 0, 0
		case there && g.Member >= 0 && g.Member < len(record.last.Taken):
			g.Taken, g.Counted = record.last.Taken[g.Member], record.last.Counted[g.Member]
		}
	}
}

// fillStanding fills in how the limiters stand that would have granted what the others refuse. A trial that
// passes does not, as most are followed by a step that does.
func fillStanding(now time.Time, parts []JointPart) {
	for i := range parts {
		p := &parts[i]
		l, is := p.State.(anyLimiter)
		// What refuses has said itself how it stands.
		if !is || !p.wouldPass() || p.Turn.Op != gatehouse.OpAcquire {
			continue
		}
		step := l.stepAt(now.UnixNano(), &p.Turn)
		step.d = &p.Turn.Decision
		step.fillGranted()
	}
}

// wouldPass reports whether the turn was granted by the trial.
func (p *JointPart) wouldPass() bool {
	return p.Turn.Err == nil && p.Turn.Decision.Outcome == gatehouse.Granted
}

// onlyLooks reports whether the turn changes nothing.
func (p *JointPart) onlyLooks() bool {
	return p.Turn.Op == gatehouse.OpPeek || p.Turn.Op == gatehouse.OpDelay
}

// tryTurn tries the turn, if there is room for what it would keep beside what those before it would.
func (p *JointPart) tryTurn(now time.Time, before []JointPart) {
	turn := &p.Turn
	turn.Err = nil
	fresh := p.State == nil
	if fresh && p.Key.Kind != gatehouse.Grant {
		p.State = New(p.Key.Kind)
	}
	err := p.checkRoom(now, before, fresh)
	switch {
	case err != nil:
		turn.Decision, turn.Err = failedWith(now, gatehouse.Exhausted, ""), err
	case p.State == nil:
		tryRecord(nil, now, turn) // it comes with a grant that takes effect
	default:
		// The trial is the same step as the one that takes effect, which changes nothing while Trial is set.
		turn.Grant.Trial = true
		p.State.Step(now, turn)
		turn.Grant.Trial = false
	}
	switch {
	// A question makes no controller.
	case fresh && p.onlyLooks():
		p.State = nil
	case fresh || p.Key.Kind == gatehouse.Grant:
		p.dropAbsent()
	}
}

// checkRoom returns an error when there may be no room for what the turn would keep.
func (p *JointPart) checkRoom(now time.Time, before []JointPart, fresh bool) error {
	if p.Room == nil {
		return nil
	}
	v := queueServer{now: now, kind: p.Key.Kind, room: p.Room}
	if !fresh {
		v.weight, v.holders = p.State.Weight(), Holders(p.State)
	}
	// Those that share the room have been promised theirs, and have taken none of it yet.
	v.holders -= p.promisedRoom(before, &v.weight)
	// The record of a new grant, which is made only when all parts pass.
	if p.State == nil {
		p.growth = recordGrowth(&p.Turn)
		if p.growth-v.weight > p.Room.Bytes {
			return ErrMemory
		}
		return nil
	}
	p.growth = memoryGrowth(now, p.State, &p.Turn)
	return v.checkRoom(p.State, &p.Turn)
}

// promisedRoom takes from a weight what parts with the same room may grow by, and returns how many holders
// they may get.
func (p *JointPart) promisedRoom(before []JointPart, weight *int) (holders int) {
	for i := range before {
		if other := &before[i]; other.Room == p.Room && other.Key.Kind != gatehouse.Grant {
			*weight -= other.growth
			if _, ok := other.State.(*Semaphore); ok && other.Turn.Op == gatehouse.OpAcquire {
				holders++
			}
		}
	}
	return holders
}

// stepTurn applies a turn that was tried.
func (p *JointPart) stepTurn(now time.Time, fence uint64) {
	fresh := p.State == nil
	if fresh {
		p.State = New(p.Key.Kind)
	}
	// The parameters are in force since the trial. The turn stays as it came, but for its decision.
	again, least := p.Turn.Again, p.Turn.MinFence
	p.Turn.Again, p.Turn.MinFence, p.Turn.Grant.tried = true, max(fence, least), true
	p.State.Step(now, &p.Turn)
	p.Turn.Again, p.Turn.MinFence, p.Turn.Grant.tried = again, least, false
	if fresh {
		p.dropAbsent()
	}
}

// dropAbsent forgets a state that was only made to ask it.
func (p *JointPart) dropAbsent() {
	switch l := limiterOf(p.State); {
	case l != nil:
		if l.created == 0 && l.extra == nil {
			p.State = nil
		}
	case p.Key.Kind == gatehouse.Grant:
		if record, ok := p.State.(*GrantRecord); ok && record.last == nil {
			p.State = nil
		}
	}
}

// undoJoint takes a grant back. One that others were told of too stays.
func undoJoint(now time.Time, parts []JointPart, record *JointPart) {
	stays := false
	if record != nil && record.State != nil {
		one := record.State.(*GrantRecord)
		stays = one.forgetAnswer(now, &record.Turn)
		tellSettled(parts, one)
	}
	for i := range parts {
		p := &parts[i]
		if !stays && p.State != nil {
			p.State.Undo(now, &p.Turn)
			p.dropAbsent()
		}
		// Where there is nothing to take back, the undo has nothing to do, and has not failed.
		p.Turn.Decision, p.Turn.Err = grantedAt(now), nil
	}
}

// tellSettled tells the members of a grant something of which is undone whether they were settled since.
func tellSettled(parts []JointPart, record *GrantRecord) {
	for i := range parts {
		if turn := &parts[i].Turn; turn.Grant != nil && turn.Granted != nil {
			turn.Grant.settled = record.settledSince(turn.Grant.Member, turn.Granted.At)
		}
	}
}

// GrantHolder is the holder of the holds of a grant. No command of a caller has such a one: Command.Check
// refuses a Holder that begins with a zero byte.
func GrantHolder(id string) string { return "\x00grant/" + id }
