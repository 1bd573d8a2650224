package gatehouse

import "slices"

// A Kind is a kind of controller. The zero Kind is none.
type Kind uint8

// The kinds of controllers.
const (
	TokenBucket Kind = iota + 1
	Semaphore
	Lock
	Event
	Watchdog
	Counter
	Barrier
	GCRA
	FixedWindow
	SlidingWindow
	SlidingLog
	Pace
	// Grant is the record of a grant over several names. Its name is the grant's id.
	Grant

	// Kinds is the number of kinds and one more, the length of a table indexed by Kind.
	Kinds = int(Grant) + 1
)

var kindNames = [Kinds]string{
	"none", "tokenbucket", "semaphore", "lock", "event", "watchdog", "counter", "barrier",
	"gcra", "fixedwindow", "slidingwindow", "slidinglog", "pace", "grant",
}

// Limiter reports whether controllers of this kind limit a rate. All limiters have the same
// operations.
func (k Kind) Limiter() bool { return k == TokenBucket || k >= GCRA && k <= Pace }

// String returns the kind's name in paths and commands, such as "tokenbucket".
func (k Kind) String() string { return nameAt(kindNames[:], int(k), "none") }

// ParseKind returns the kind with this name; ok is false when there is none.
func ParseKind(name string) (k Kind, ok bool) {
	for i, known := range kindNames {
		// Mostly the first letter tells: this is asked of each member of a JSON object.
		if len(known) == len(name) && known[0] == name[0] && known == name && i > 0 {
			return Kind(i), true
		}
	}
	return 0, false
}

// An Op is what a command asks for. The zero Op is none.
type Op uint8

// The operations.
const (
	// OpAcquire takes tokens or slots and may wait for them.
	OpAcquire Op = iota + 1
	// OpRelease gives a hold back.
	OpRelease
	// OpRenew moves the end of a hold.
	OpRenew
	// OpWait waits for an event, a watchdog or a barrier.
	OpWait
	// OpSend sends an event.
	OpSend
	// OpKick tells a watchdog that all is well.
	OpKick
	// OpCount adds to a counter.
	OpCount
	// OpValue reads a counter.
	OpValue
	// OpReset sets a counter; a limiter it makes forget all that was taken and reserved.
	OpReset
	// OpPeek answers as an acquire that does not wait would be, and takes nothing.
	OpPeek
	// OpDelay answers how long it is until an acquire would be granted, and takes nothing.
	OpDelay
	// OpReserve makes a reservation at the earliest instant, and answers how long it is until then.
	OpReserve
	// OpCancel gives back a reservation that lies ahead.
	OpCancel
	// OpRefund gives back what was taken and is not worth anything to its taker.
	OpRefund
	// OpCharge takes what was spent already, even if there is no room: what is not free is taken later.
	OpCharge
	// OpFeedback tells a limiter what a third party answered, which may pause it for all clients.
	OpFeedback
	// OpTopUp adds to what a grant has taken of limiters.
	OpTopUp
	// OpSettle tells what a grant has cost so far.
	OpSettle
	// OpEvict ends a hold that is another's, now or when its term is over: it is not renewed any more.
	OpEvict
	// OpBump puts a command that waits in front of the others that wait at this server. Gates carry it out.
	OpBump
	// OpClose has nothing granted under a name until OpOpen. What is held and what was taken stays.
	OpClose
	// OpOpen opens a name that was closed.
	OpOpen
	// OpHolders lists what is held.
	OpHolders
	// OpWaiters lists the waiting requests.
	OpWaiters
	// OpStats reads the statistics of any controller and changes nothing.
	OpStats
	// OpDelete forgets a controller; waiting commands are answered Deleted.
	OpDelete
	// OpUndo takes back what a command without a waiting client was granted, or what it left
	// behind while it waited. Gates send it; fronts have no name for it.
	OpUndo

	numOps
)

var opNames = [numOps]string{
	"none", "acquire", "release", "renew", "wait", "send", "kick", "count", "value", "reset",
	"peek", "delay", "reserve", "cancel", "refund", "charge", "feedback", "topup", "settle",
	"evict", "bump", "close", "open", "holders", "waiters", "stats", "delete", "undo",
}

// String returns the operation's name, such as "acquire".
func (op Op) String() string { return nameAt(opNames[:], int(op), "none") }

// ParseOp returns the operation with this name; ok is false when there is none.
func ParseOp(name string) (op Op, ok bool) {
	i := slices.Index(opNames[1:], name)
	return Op(i + 1), i >= 0 // an index of few names
}

// nameAt is the name at a place in a table, and other for a place beyond its end.
func nameAt(names []string, i int, other string) string {
	if i < len(names) {
		return names[i]
	}
	return other
}

// Waits reports whether the operation may have to wait.
func (op Op) Waits() bool { return op == OpAcquire || op == OpWait }

// Reads reports whether the operation changes nothing, and takes nothing.
func (op Op) Reads() bool {
	const reads = 1<<OpPeek | 1<<OpDelay | 1<<OpValue | 1<<OpStats | 1<<OpHolders | 1<<OpWaiters
	return reads>>op&1 != 0
}

// Yields reports whether the operation depends on the commands in line before it.
func (op Op) Yields() bool { return op.Waits() || op == OpPeek || op == OpDelay || op == OpReserve }
