package gatehouse

import (
	"context"
	"time"
)

// A Key names one controller. Each kind is a namespace of its own: semaphore "a" and event "a"
// have nothing to do with one another. Names are compared byte for byte.
type Key struct {
	Kind Kind
	Name string
}

// String returns the key as "kind/name", the form used in messages and logs.
func (k Key) String() string { return k.Kind.String() + "/" + k.Name }

// Forever as a [Command.MaxWait] waits without limit; as a [Decision.RetryAfter] it says that no
// time is known.
const Forever time.Duration = -1

// AsAcquired as the Expires of a renew keeps the length the hold was acquired with.
const AsAcquired time.Duration = -1

// InForce as the Size of a command means the parameters that are in force under the name. With it all else in
// the [Rule] means nothing. A name that is new begins with DefaultSize per DefaultInterval, a semaphore with
// DefaultSize; a charge, a peek and a delay answer Missing there. A Size of 0 still stops.
const InForce int64 = -1 << 63

// The defaults of a request that leaves a parameter out, the same in every protocol.
const (
	DefaultSize        = 1
	DefaultBarrierSize = 2
	DefaultInterval    = time.Second
	DefaultExpires     = time.Minute
	DefaultKeep        = 24 * time.Hour
)

// A Command is one request to one controller. Fields an operation has no use for are ignored. The
// zero value of a field is taken as it is; its maker fills in the defaults.
type Command struct {
	Op Op

	// Extend has an acquire by a Holder that holds already move the end of its hold, as a renew does. Without
	// it that stays where it is.
	Extend bool

	// Now has an evict free the slots at once, and not when the present term of the hold is over.
	Now bool

	// Explain has a refusal name the holders and the requests that wait before, in its Message, which costs a
	// look at all holds.
	Explain bool

	// KeepLimit has a command that states another limit or size than the one in force be answered Forbidden,
	// and not put that in force. A name that is new begins with what is stated.
	KeepLimit bool

	// NeedLimit has a command that leaves the limit of a limiter out be answered Forbidden where the name is
	// new, which would begin with the default.
	NeedLimit bool

	// TellResize has the decision tell whether the command has changed the limit or size in force.
	TellResize bool

	// Rule is the limit of a limiter. Of it a semaphore and a barrier have only the Size.
	Rule

	// Holder owns what a semaphore or lock grants. It must not be empty there: a front that got
	// none makes a random one. A limiter's reservation is cancelled by its holder; one without a
	// holder cannot be cancelled.
	Holder string

	// Fence is, for a release and a renew, the fencing token of the hold that is meant: the hold of another
	// acquire of the same Holder is a conflict, and stays as it is. 0 means whatever the Holder holds. For
	// OpEvict and OpBump it is the number in the public id of the hold or the waiter (see [HolderID] and
	// [WaiterID]), and for OpHolders and OpWaiters that behind which the list begins; 0 is its front.
	Fence uint64

	// Cost is how many tokens or slots are taken at once, at least 1; a peek may have 0.
	Cost int64

	// Amount is what a counter's count adds and what its reset sets, and how many a list of holders or
	// waiters has at most: 1 to MaxListed, anything else is DefaultListed.
	Amount int64

	// Expires is the length of a hold, or of a watchdog's patience. 0 is never for a hold and
	// at once for a watchdog; AsAcquired is for a renew, and for an acquire with Extend, alone.
	Expires time.Duration

	// Owner says for whom the command is; nil if that is not known. It also says who evicts or closes.
	Owner *Owner

	// Origin says which request the command came with; nil if that is not known.
	Origin *Origin

	// MaxWait is how long an acquire or a wait may stay in line: 0 not at all, Forever without limit.
	MaxWait time.Duration

	// MaxDelay is the longest delay that a reserve may be given; 0 means any. A reserve beyond it is refused
	// and takes nothing.
	MaxDelay time.Duration

	// Keep is how long a sent event, an opened barrier, a fired watchdog or an idle counter is
	// remembered. 0 means DefaultKeep.
	Keep time.Duration

	// Message is what an event carries, and the reason of an evict or a close.
	Message string

	// Feedback is what a third party answered. Only OpFeedback reads it.
	Feedback *Feedback
}

// An Outcome says how a command ended.
type Outcome uint8

// The outcomes.
const (
	// Refused means not now. What may wait goes on waiting.
	Refused Outcome = iota
	// Granted means that the command took effect.
	Granted
	// Conflict means that the state does not allow it: a key that is not held, an event sent before.
	Conflict
	// Deleted tells a waiter that its controller was deleted meanwhile.
	Deleted
	// Missing means that no controller has this name.
	Missing
	// Invalid means that the controller cannot do this at all, whenever it is asked.
	Invalid
	// Exhausted means that a limit of the server's own was met.
	Exhausted
	// Forbidden means that the command states another limit than the one in force, and has KeepLimit; or none
	// at a new name, and has NeedLimit.
	Forbidden
)

var outcomeNames = [...]string{"refused", "granted", "conflict", "deleted", "missing", "invalid", "exhausted",
	"forbidden",
}

// String returns the outcome in lower case, as scenario files and metrics spell it.
func (o Outcome) String() string { return nameAt(outcomeNames[:], int(o), "none") }

// A Decision answers a Command. Which fields mean something depends on the operation; the others
// are zero.
type Decision struct {
	Outcome Outcome

	// Resized says that the command has changed the limit or size in force. It is told where TellResize asks
	// for it.
	Resized bool

	// At is the store's time of the decision.
	At time.Time

	// RetryAfter, when refused, is the time before which the answer cannot change unless another
	// command changes it, or one in front gives up; Forever when no such time is known.
	RetryAfter time.Duration

	// ResetAfter is when a limiter has nothing left to remember, or a token bucket is refilled.
	ResetAfter time.Duration

	// Delay is how long to wait before going, for what a reserve took and for what a delay asked: 0 is
	// now. A reserve's is in whole milliseconds; one that is refused for its MaxDelay has the delay that it
	// would have been given. A charge's is how long it is until the last of its cost is taken: 0 when all of
	// it was free.
	Delay time.Duration

	// Limit and Remaining are how many can be taken at once, under the limit now in force, and how many
	// are left of that. Both are 0 for kinds without a size.
	Limit, Remaining int64

	// Interval is the length of a limiter's window now in force; with a calendar, of the present one.
	Interval time.Duration

	// Windows tells about every limit of a limiter with several, in the order of Limits; it is nil for
	// one limit. The fields above are those of the limit that refused, or that has the least left.
	Windows []Window

	// Fence is the fencing token of what is held. It rises with every grant under one name.
	Fence uint64

	// ExpiresAfter is, for an acquire and a renew of a semaphore or lock, how long the hold lasts from now;
	// Forever when it does not end by itself.
	ExpiresAfter time.Duration

	// Reservation is the number of the reservation that a reserve made or found. No two places under
	// one name have the same, not even across a reset or a delete. It is 0 for what was taken at once, and
	// for a place without a Holder in a limiter that keeps every start (SlidingLog, Pace): there all places
	// of one start are alike. An undo takes back the place with this number, and nothing else.
	Reservation uint64

	// Generation is how often a limiter had begun to count again, by a reset or with another window. An undo
	// gives nothing back of what was counted before.
	Generation uint64

	// Value is the counter's value. For a feedback it is 1 if that has changed anything, and 0 if not. In the
	// answer to a command with a Chunk it is how much the holder has, and in that of a limiter to a grant how
	// much counts for the grant.
	Value int64

	// Booked is how much of what a grant was settled at lies ahead as a debt.
	Booked int64

	// Drawn is the number of the chunk that this was let through from; 0 when the store decided.
	Drawn uint64

	// Message is an event's message when granted, and otherwise one sentence that says why. A refusal has one
	// only if the name is closed, or if the command asked for it by Explain.
	Message string

	// Grant is the record of a grant, in the answer to an operation on one; it must not be changed.
	Grant *GrantRecord

	// Report answers OpHolders and OpWaiters.
	Report *Report

	// Reported is what third parties have reported to a limiter, while that holds back requests; nil
	// otherwise. It must not be changed.
	Reported *Reported

	// Stats answers OpStats.
	Stats []Stat

	// Number is that of a refusal which is kept to be explained (see [DecisionID]); 0 if it is not.
	Number uint64
}

// A Stat is one figure about a controller.
type Stat struct {
	// Name is in snake case, as programs read it.
	Name string
	// Value is an int64, a string, a time.Time, or a time.Duration, which fronts give in milliseconds.
	Value any
}

// A Gate decides. It is safe for use by many goroutines.
type Gate interface {
	// Do answers cmd, waiting in line up to cmd.MaxWait. A refusal, a conflict, a deleted controller
	// are decisions. An error means that no decision was made or that it could not be learnt; its
	// code is CodeInvalid for a command that makes no sense, CodeExhausted for a limit of the
	// server's own, CodeUnavailable when the gate or its store is closed, and CodeTimeout when ctx
	// ended first. What was granted to a call that returns an error has been taken back.
	Do(ctx context.Context, key Key, cmd Command) (Decision, error)
}
