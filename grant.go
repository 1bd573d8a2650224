package gatehouse

import (
	"slices"
	"time"
)

// MaxMembers is the most names in one grant.
const MaxMembers = 16

// The bounds of how long a grant that has ended is remembered: as long as its Expires, within these. While it
// is, the same id is answered that it has ended.
const (
	MinRemembered = time.Minute
	MaxRemembered = time.Hour
)

// RememberedFor is how long a grant is remembered after its end.
func RememberedFor(expires time.Duration) time.Duration {
	return min(max(expires, MinRemembered), MaxRemembered)
}

// MaxGrantID is the length of a grant's id in bytes.
const MaxGrantID = 128

// A GrantCommand asks for one decision over several names, or is about such a grant. A grant holds slots of
// semaphores and locks, and has taken tokens of limiters, all of them or none.
type GrantCommand struct {
	// Op is OpAcquire; or OpRenew, OpTopUp, OpSettle, OpRelease or OpPeek of the grant with the ID; or OpPeek
	// or OpDelay of limiters without an ID, which asks what an acquire of Want would be answered, or how long
	// it is until it would be granted, and takes nothing.
	Op Op

	// ID names the grant: 1 to MaxGrantID of the characters A to Z, a to z, 0 to 9 and . _ ~ -. An acquire
	// with the ID of a grant that is there is answered with that grant, or is a conflict if it wants
	// something else. An acquire without an ID and without Expires, of limiters only, leaves no record: it
	// cannot be renewed, settled or released, and its answer has no ID. Any other without an ID must be given
	// a random one.
	ID string

	// Want is what an acquire wants, or what is asked about: 1 to MaxMembers, no name twice.
	Want []Member

	// Costs are what a topup adds, and what a settle or a release says the whole cost was so far, of some of
	// the limiters among the members.
	Costs []MemberCost

	// Fence is, for an operation on a grant that is there, its fencing token; 0 means whichever there is.
	Fence uint64

	// Expires is how long the grant lasts, of an acquire and a renew; AsAcquired is for a renew alone. 0
	// means that an acquire of limiters only needs no record, and is invalid otherwise.
	Expires time.Duration

	// MaxWait is how long an acquire or a topup may wait: 0 not at all, Forever without limit.
	MaxWait time.Duration

	// Overrun says what a settle does with what was spent beyond what was taken, and OnExpiry what counts
	// when the grant ends without a release. Both are given with the acquire.
	Overrun  Overrun
	OnExpiry OnExpiry

	// Owner says for whom an acquire is, as in [Command]: each of its holds has it. It is nil if that is not
	// known.
	Owner *Owner

	// Origin says which request the command came with; nil if that is not known.
	Origin *Origin

	// Explain has a refusal name the holders and the requests that wait before, in the Message of the member
	// that refused, as in [Command].
	Explain bool
}

// A Member is one name that a grant wants.
type Member struct {
	Key Key // of a limiter, a semaphore or a lock
	// Rule is the limit of a limiter, or the size of a semaphore, as in [Command].
	Rule
	// Cost is how many tokens or slots, from 1.
	Cost int64
	// KeepLimit is that of a [Command]: another limit or size than the one in force is refused.
	KeepLimit bool
	// NeedLimit is that of a [Command]: a new name does not begin with the default.
	NeedLimit bool
	// TellResize is that of a [Command] too.
	TellResize bool
	// Clip has the cost of a limiter cut to what can be taken at once, where it could never fit otherwise.
	Clip bool
}

// A MemberCost is a cost of one limiter of a grant.
type MemberCost struct {
	Key  Key
	Cost int64 // from 0
}

// MaxParents is the most parents that a name may have in a request.
const MaxParents = 8

// WithParents returns the command over a name and its parents, of an acquire, a peek or a delay of a limiter:
// they are charged together, each by its own rule, or none of them is. It is a grant over these names, and
// leaves no record. Want has the name first. A parent whose Cost is 0 has that of the command.
func (cmd *Command) WithParents(key Key, parents ...Member) GrantCommand {
	all := make([]Member, 0, 1+len(parents))
	all = append(all, Member{Key: key, Rule: cmd.Rule, Cost: cmd.Cost})
	for _, p := range parents {
		if p.Cost == 0 {
			p.Cost = cmd.Cost
		}
		all = append(all, p)
	}
	joint := GrantCommand{Op: cmd.Op, Want: all, Owner: cmd.Owner, Origin: cmd.Origin, Explain: cmd.Explain}
	// A peek and a delay are answered at once, and have no MaxWait.
	if cmd.Op.Waits() {
		joint.MaxWait = cmd.MaxWait
	}
	return joint
}

// An Overrun says what happens to a cost beyond what a grant has taken.
type Overrun uint8

// The ways. The zero Overrun is OverrunDebt.
const (
	// OverrunDebt books it as a charge does: the windows that follow repay it.
	OverrunDebt Overrun = iota
	// OverrunCap takes what is free of it.
	OverrunCap
)

var overrunNames = []string{"debt", "cap"}

// String returns "debt" or "cap".
func (o Overrun) String() string { return nameAt(overrunNames, int(o), "none") }

// ParseOverrun returns the way with this name; ok is false when there is none.
func ParseOverrun(name string) (o Overrun, ok bool) {
	i := slices.Index(overrunNames, name)
	return Overrun(max(i, 0)), i >= 0 // an index of two names
}

// An OnExpiry says what counts of a grant that ends without a release.
type OnExpiry uint8

// The ways. The zero OnExpiry is ExpiryEstimate.
const (
	// ExpiryEstimate counts what was asked for, top-ups included, or what the last settle said if that is
	// more.
	ExpiryEstimate OnExpiry = iota
	// ExpiryZero gives everything back.
	ExpiryZero
	// ExpiryLast counts what the last settle said, or the estimate if there was none.
	ExpiryLast
)

var onExpiryNames = []string{"estimate", "zero", "last"}

// String returns "estimate", "zero" or "last".
func (o OnExpiry) String() string { return nameAt(onExpiryNames, int(o), "none") }

// ParseOnExpiry returns the way with this name; ok is false when there is none.
func ParseOnExpiry(name string) (o OnExpiry, ok bool) {
	i := slices.Index(onExpiryNames, name)
	return OnExpiry(max(i, 0)), i >= 0 // an index of three names
}

// A GrantDecision answers a GrantCommand.
type GrantDecision struct {
	// Outcome is Granted, Refused, Conflict, Deleted, Missing, Invalid or Exhausted, as of a Decision.
	Outcome Outcome
	// At is the store's time of the decision.
	At time.Time
	// ID is that of the grant, empty if it has no record.
	ID string
	// Fence is above every earlier fencing token under each of the names; 0 if the grant has no record.
	Fence uint64
	// ExpiresAfter is how long the grant lasts from now; 0 if it has no record or has ended.
	ExpiresAfter time.Duration
	// Ended says of a peek that the grant has ended, and is remembered.
	Ended bool
	// RetryAfter is, when refused, the time before which the answer cannot change; Forever when none is
	// known.
	RetryAfter time.Duration
	// Want has one decision for each member, in the order of the command or of the grant.
	Want []MemberDecision
	// Binding is the index in Want of the member that decided against the command; -1 when it was granted, or
	// when none of them did.
	Binding int
	// Message is one sentence that says why, when the outcome is neither Granted nor Refused.
	Message string
	// Number is that of a refusal which is kept to be explained, as in [Decision].
	Number uint64
}

// Decisive returns the index in Want of the member that decided: the one that binds; or of what was granted
// the one with the longest delay, or else with the least left, the first of equals. It is -1 without any.
func (d *GrantDecision) Decisive() int {
	if d.Binding >= 0 || len(d.Want) == 0 {
		return min(d.Binding, len(d.Want)-1)
	}
	most := 0
	for i := range d.Want {
		m, other := &d.Want[i], &d.Want[most]
		if m.Delay > other.Delay || m.Delay == other.Delay && m.Remaining < other.Remaining {
			most = i
		}
	}
	return most
}

// AsOne returns the decision as one on a single name: that of the member that decided, with the outcome of
// all of them. It is for requests about a name and its parents.
func (d *GrantDecision) AsOne() Decision {
	one := Decision{Message: d.Message}
	if i := d.Decisive(); i >= 0 {
		one = d.Want[i].Decision
	}
	one.Outcome, one.At, one.RetryAfter, one.Number = d.Outcome, d.At, d.RetryAfter, d.Number
	return one
}

// A MemberDecision is what one member of a grant was answered.
type MemberDecision struct {
	Key Key
	// Cost is how much the grant has of the name: slots, or tokens that count so far. Of slots that were
	// evicted at once, or whose name was deleted, a peek says 0.
	Cost int64
	// Capped is how much of what a settle said was not charged, as it was not free.
	Capped int64
	Decision
}

// A GrantRecord is what is remembered of a grant.
type GrantRecord struct {
	// Want is what was asked for.
	Want []Member
	// Taken is, for each of Want, what was taken: slots, or tokens by the estimate, as it was clipped, and by
	// top-ups.
	Taken []int64
	// Counted is, for each of Want, how much counts so far: what was taken, or what was settled last.
	Counted []int64
	// Fence is its fencing token.
	Fence uint64
	// Since is when it was granted, and Until when it ends or has ended.
	Since, Until time.Time
	// Expires is the length it was given last.
	Expires time.Duration
	// Ended says that it was released or has expired.
	Ended bool
	// Overrun and OnExpiry are those of its acquire.
	Overrun  Overrun
	OnExpiry OnExpiry
}
