package cas

import (
	"context"
	"errors"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A Backend keeps records in a store that many servers share. It may have the method of a starter too.
type Backend interface {
	// Swap replaces a record if it is still the one that was read. An error that is ErrRefused or
	// ErrNotSent says that nothing was changed; after any other the change may have been made, or may
	// still be. It returns soon after ctx has ended.
	Swap(ctx context.Context, key gatehouse.Key, change *RecordChange) (Reply, error)

	// SwapTogether is Swap for several records, in the order of control.ComparePartKeys: all changes are
	// made, or none is. They were made, and what was only read is as it was, if every reply says Swapped.
	// Otherwise nothing was changed, and those that say Swapped are still the ones that were read. Claims
	// are made on all of the records, or on none. It keeps nothing of the arguments.
	SwapTogether(ctx context.Context, keys []gatehouse.Key, changes []RecordChange) ([]Reply, error)

	// Listen has wake called for each key that another server's change names this server for, and with
	// the zero key, which means all of them, when some may have been missed, as after a lost connection.
	// wake does not block. stop ends it and waits for a call under way.
	Listen(server uint32, wake func(key gatehouse.Key)) (stop func())

	// Range visits the records of one kind whose names come after the given one, in the order of their
	// names, until visit returns false.
	Range(ctx context.Context, kind gatehouse.Kind, after string,
		visit func(name string, record []byte) bool) error

	// Traits tells what is particular to this backend. It is asked once.
	Traits() Traits
}

// An asyncBackend is a Backend that need not keep its caller until it has answered.
type asyncBackend interface {
	// Start is Swap, and calls answered once with what Swap returns, possibly before Start returns. The
	// change is the backend's until then. answered is quick. Of ctx only the deadline counts.
	Start(ctx context.Context, key gatehouse.Key, change *RecordChange, answered func(Reply, error))

	// StartTogether is SwapTogether in the same way. The replies are the backend's again when answered
	// returns.
	StartTogether(ctx context.Context, keys []gatehouse.Key, changes []RecordChange,
		answered func([]Reply, error))
}

// Traits are what is particular to a backend.
type Traits struct {
	// Fences says that Reply.MinFence is given. A record that is not there is then read before it is made,
	// because no version tells whether it was made and deleted meanwhile.
	Fences bool

	// Claims says that the backend heeds RecordChange.Claim.
	Claims bool

	// KeyOf is the key at which the backend keeps a record, for people who look for it there.
	KeyOf func(key gatehouse.Key) string

	// ExpiresHolds says that the backend ends holds: it learns of them by RecordChange.Begin and
	// RecordChange.End, and says in Reply.Live which are left.
	ExpiresHolds bool
}

// A RecordChange is what is to become of a record.
type RecordChange struct {
	// If is the version of the record that is to be replaced, 0 when there must be none.
	If uint64

	// Read says that nothing is to be changed: the answer is the record, if its version is not If.
	Read bool

	// Next is the new record; nil means that there is to be none.
	Next []byte

	// Nonce is a random number, not 0, that no other change has. It stands in the record, at NonceAt, in
	// 8 bytes, the greatest first.
	Nonce uint64

	// Size is about how many bytes the present record has, as far as is known.
	Size int

	// Keep is for how long the record is worth something, gatehouse.Forever if that has no end.
	Keep time.Duration

	// Kept says that the present record is kept for long enough, as far as is known: a backend may leave it
	// at that instead of Keep.
	Kept bool

	// Wake are the servers to be told of the change.
	Wake []uint32

	// Claim is for how long no other server may replace the record if this change is not made because
	// another one was first; until this server's next change at the latest. 0 leaves it to the first
	// server. Server is who claims it; its own claim bars only changes that leave it out. A backend may do
	// without.
	Claim  time.Duration
	Server uint32

	// Begin are the holds that are new or were renewed, those without an end too, and End those that are
	// held no more, if the backend ends holds.
	Begin, End []control.Hold
}

// MaxClaim is the longest claim. One that seems to last for longer was made before the store's clock was set
// back, and a backend that measures claims by that clock ignores it: it would bar a record for as long as the
// clock was set back.
const MaxClaim = 10 * time.Second

// NonceAt is where in a record its nonce is.
const NonceAt = 1

// A Reply tells what became of a Change.
type Reply struct {
	// Swapped says that the change was made; for a Read, that the version is still the given one.
	Swapped bool

	// Record is the present record when Swapped is false, nil when there is none.
	Record []byte

	// Version is that of the present record, 0 when there is none. A backend that has no versions takes
	// the nonce.
	Version uint64

	// Claimed is for how much longer another server's claim bars this change, 0 if none did.
	Claimed time.Duration

	// Now is the time of the store.
	Now time.Time

	// MinFence is the least fencing token of a grant that rests on this reply; 0 means that the time makes
	// them.
	MinFence uint64

	// Live are the fencing tokens of the holds that have not ended, if the backend ends holds.
	Live map[uint64]bool
}

var (
	// ErrRefused is why a store does nothing, and will not soon: no memory, no permission.
	ErrRefused = errors.New("refused")
	// ErrNoRecord is that there is something else in the place of a record, which no call changes.
	ErrNoRecord = errors.New("not a record")
	// ErrNotSent is that the store could not be asked at present, and so has done nothing.
	ErrNotSent = errors.New("not sent")
	// ErrConflict is that other servers changed the record first until time was up; the store is there.
	ErrConflict = errors.New("other servers were faster each time")
)
