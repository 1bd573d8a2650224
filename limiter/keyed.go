package limiter

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"math/bits"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A Keyed is the same limit for each of many keys, such as users or addresses. Make one with NewKeyed.
// It is safe for use by many goroutines.
//
// A key is kept only while it is worth something: once all that it took has come back, it is as if it
// had never been, and is dropped in passing by later calls. When as many keys are kept as may be, a key
// that is not among them is refused, and nothing is kept about it. So is one of more than MaxKey bytes.
type Keyed struct {
	gcra    atomic.Pointer[gcraParams]
	clock   clock
	seed    maphash.Seed
	maxKeys int64
	shards  []keyShard
	_       [64]byte // what is before is only read
	keys    atomic.Int64
}

// DefaultMaxKeys is how many keys NewKeyed(rate, 0) keeps at most. They take some 60 MB with keys of 20
// bytes.
const DefaultMaxKeys = 1_000_000

// MaxKey is the longest key, in bytes.
const MaxKey = gatehouse.MaxName

// NewKeyed returns a limiter in which no key has taken anything yet, and that keeps at most maxKeys of
// them; 0 is DefaultMaxKeys. The error is of code [gatehouse.CodeInvalid].
func NewKeyed(rate Rate, maxKeys int) (*Keyed, error) {
	g, err := newGCRA(rate)
	if err != nil {
		return nil, err
	}
	if maxKeys < 0 {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid, "maxKeys is %d, want 0 or more", maxKeys)
	}
	maxKeys = cmp.Or(maxKeys, DefaultMaxKeys)
	k := &Keyed{
		clock: newClock(), seed: maphash.MakeSeed(), maxKeys: int64(maxKeys),
		shards: newShards(maxKeys),
	}
	k.gcra.Store(g)
	return k, nil
}

// Allow reports whether one of key may go now, and counts it if so.
func (k *Keyed) Allow(key string) bool { return k.allowNanos(key, k.clock.nowNanos(), 1) }

// AllowN reports whether n of key may go now, and counts them if so: all of them or none. An n of 0
// counts nothing; one below 0 or above Burst + 1 is never allowed.
func (k *Keyed) AllowN(key string, n int64) bool { return k.allowNanos(key, k.clock.nowNanos(), n) }

// AllowAt is AllowN at another time than now. Times should not go back: what is worth nothing at one
// time may be dropped, and is then missing at an earlier one.
func (k *Keyed) AllowAt(key string, now time.Time, n int64) bool {
	return k.allowNanos(key, k.clock.toNanos(now), n)
}

func (k *Keyed) allowNanos(key string, now, n int64) bool {
	g := k.gcra.Load()
	cost, ok := g.costOf(n)
	if !ok {
		return false
	}
	latest := now + g.tolerance - cost
	return k.updateKey(k.shardOf(key), key, now, func(tat int64) (int64, bool) {
		next := max(tat, now)
		return next + cost, next <= latest
	})
}

// Decide is AllowN with the numbers that a refused caller wants to know. For a key that cannot be kept
// they are those of a limit that never allows anything.
func (k *Keyed) Decide(key string, n int64) Decision {
	return k.decideNanos(key, k.clock.nowNanos(), n)
}

// DecideAt is Decide at another time than now, with what AllowAt says about it.
func (k *Keyed) DecideAt(key string, now time.Time, n int64) Decision {
	return k.decideNanos(key, k.clock.toNanos(now), n)
}

func (k *Keyed) decideNanos(key string, now, n int64) (d Decision) {
	g := k.gcra.Load()
	ok := k.updateKey(k.shardOf(key), key, now, func(tat int64) (next int64, allowed bool) {
		d, next = g.decideRequest(tat, now, n, true)
		return next, d.Allowed
	})
	// The rate allowed it, but the key could not be kept. Letting it pass would let it pass each time.
	if d.Allowed && !ok {
		return Decision{Limit: g.limit, RetryAfter: gatehouse.Forever, ResetAfter: gatehouse.Forever}
	}
	return d
}

// Peek answers as Decide would if the key can be kept, and takes nothing. An n of 0 asks for the
// numbers alone.
func (k *Keyed) Peek(key string, n int64) Decision { return k.peekNanos(key, k.clock.nowNanos(), n) }

// PeekAt is Peek at another time than now, with what AllowAt says about it.
func (k *Keyed) PeekAt(key string, now time.Time, n int64) Decision {
	return k.peekNanos(key, k.clock.toNanos(now), n)
}

func (k *Keyed) peekNanos(key string, now, n int64) (d Decision) {
	k.updateKey(k.shardOf(key), key, now, func(tat int64) (int64, bool) {
		d, _ = k.gcra.Load().decideRequest(tat, now, n, false)
		return 0, false
	})
	return d
}

// Delay returns how long it is until n of key may go, if no one else takes anything meanwhile: 0 now,
// [gatehouse.Forever] never. It takes nothing; Reserve does.
func (k *Keyed) Delay(key string, n int64) time.Duration { return k.Peek(key, n).RetryAfter }

// Reserve takes the earliest place there is for n of key. ok is false, and nothing taken, when they can
// never go: an n below 0 or above Burst + 1, a Size of 0, a wait of more than a hundred years, a key
// that cannot be kept.
func (k *Keyed) Reserve(key string, n int64) (r *Reservation, ok bool) {
	return k.ReserveAt(key, k.clock.now(), n)
}

// ReserveAt is Reserve at another time than now, with what AllowAt says about it.
func (k *Keyed) ReserveAt(key string, now time.Time, n int64) (r *Reservation, ok bool) {
	p, wait, ok := k.reserveWithin(key, k.clock.toNanos(now), n, int64(gatehouse.MaxDuration))
	if !ok || wait > int64(gatehouse.MaxDuration) {
		return nil, false
	}
	return &Reservation{place: p, key: key, clock: k.clock, owner: k}, true
}

// reserveWithin takes a place for n of key unless the wait, in ns, is more than most.
func (k *Keyed) reserveWithin(key string, now, n, most int64) (at reservedTime, wait int64, ok bool) {
	p := k.shardOf(key)
	kept := k.updateKey(p, key, now, func(tat int64) (int64, bool) {
		at, wait, ok = k.gcra.Load().reserveTime(tat, now, n)
		// Resets are counted for each part of the keys, not for the rate as in a Limiter.
		at.epoch = p.epoch
		return at.next, ok && wait <= most
	})
	// Not kept because of the wait is still ok, so that the caller can tell a timeout from a key without
	// room.
	return at, wait, ok && (kept || wait > most)
}

// giveBack implements owner.
func (k *Keyed) giveBack(r *Reservation, now int64) {
	p := k.shardOf(r.key)
	k.updateKey(p, r.key, now, func(tat int64) (int64, bool) {
		return tat - r.place.returnableCost(tat), p.epoch == r.place.epoch
	})
}

// Wait returns nil as soon as n of key may go. It is as Limiter's; the error is of code
// [gatehouse.CodeInvalid] also when the key cannot be kept.
func (k *Keyed) Wait(ctx context.Context, key string, n int64) error {
	most, err := longestWait(ctx)
	if err != nil {
		return err
	}
	at, wait, ok := k.reserveWithin(key, k.clock.nowNanos(), n, most)
	if wait == 0 && ok {
		return nil
	}
	if err := checkWait(n, wait, most, ok); err != nil {
		return err
	}
	return (&Reservation{place: at, key: key, clock: k.clock, owner: k}).waitForStart(ctx)
}

// Refund gives back n that key took and did not use, as far as they still count; see Limiter's.
func (k *Keyed) Refund(key string, n int64) { k.RefundAt(key, k.clock.now(), n) }

// RefundAt is Refund at another time than now, with what AllowAt says about it.
func (k *Keyed) RefundAt(key string, now time.Time, n int64) {
	at := k.clock.toNanos(now)
	k.updateKey(k.shardOf(key), key, at, func(tat int64) (int64, bool) {
		return k.gcra.Load().refundedTAT(tat, at, n), true
	})
}

// Reset forgets all that key took and reserved. To cancel a reservation made before gives nothing back;
// now and then that is also true of one that another key made before.
func (k *Keyed) Reset(key string) {
	now := k.clock.nowNanos()
	p := k.shardOf(key)
	k.updateKey(p, key, now, func(int64) (int64, bool) {
		// Under the lock of the part, as all of this function is.
		p.epoch++
		return now, true
	})
}

// Rate returns the rate in force.
func (k *Keyed) Rate() Rate { return k.gcra.Load().rate }

// SetRate puts another rate in force, for all keys; see Limiter's.
func (k *Keyed) SetRate(rate Rate) error {
	g, err := newGCRA(rate)
	if err != nil {
		return err
	}
	k.gcra.Store(g)
	return nil
}

// Len returns how many keys are kept, those that wait to be dropped included.
func (k *Keyed) Len() int { return int(k.keys.Load()) }

const (
	// maxShards is how many locks the keys are spread over, so that cores seldom meet at one. With a
	// round number of keys, such as a million, the maps of so many parts are well filled.
	maxShards = 320
	// leastShardKeys is how many keys a part has at least when the table is full.
	leastShardKeys = 64
)

// Keys are dropped without a goroutine: calls pay for the scan of a part in advance. Each call is worth
// the look at one key, and one that adds a key the look at newKeyWork more. When perKeyWork has been
// saved up for every key, they are looked at. So a part at most doubles between two scans, and what a
// scan costs a call does not depend on the number of keys.
const (
	newKeyWork = 7
	perKeyWork = 4
	leastWork  = 64
)

// looks is how many keys are looked at to find room for a new one in a full table.
const looks = 16

// A keyShard is one part of the keys.
type keyShard struct {
	mu    sync.Mutex
	tats  map[string]int64 // the theoretical arrival time of each key
	work  int              // saved up for the next scan
	epoch uint64           // how often a key was reset
	_     [32]byte         // two parts in one cache line would be one lock to two cores
}

// newShards returns the parts of a table of maxKeys keys.
func newShards(maxKeys int) []keyShard {
	// One at least, also for a table of few keys.
	parts := make([]keyShard, min(maxShards, 1+maxKeys/leastShardKeys))
	for i := range parts {
		parts[i].tats = make(map[string]int64)
	}
	return parts
}

func (k *Keyed) shardOf(key string) *keyShard {
	// The high word of hash times length is evenly spread below length, and cheaper than a remainder.
	i, _ := bits.Mul64(maphash.String(k.seed, key), uint64(len(k.shards)))
	return &k.shards[i]
}

// updateKey has change look at the theoretical arrival time of a key, and puts another in its place if
// change says so. It reports whether that was done.
func (k *Keyed) updateKey(
	p *keyShard, key string, now int64, change func(tat int64) (next int64, ok bool),
) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	// Refused calls save up for the scan, too: otherwise a part that only refuses would never be scanned.
	p.work++
	tat, known := p.tats[key]
	// A key that is not kept has taken nothing; change cannot tell it from one that was dropped.
	if !known {
		tat = idle
	}
	next, ok := change(tat)
	switch {
	case !ok:
	// A time that is not ahead of now is worth nothing: such a key is not kept, or no longer.
	case next > now && known:
		p.tats[key] = next
	case next > now:
		ok = k.addKey(p, key, now, next)
	case known:
		delete(p.tats, key)
		k.keys.Add(-1)
	}
	if p.work >= perKeyWork*len(p.tats)+leastWork {
		k.dropIdleKeys(p, now)
	}
	return ok
}

// addKey puts a key into the part if it can be kept.
func (k *Keyed) addKey(p *keyShard, key string, now, tat int64) bool {
	// Paid for even if there is no room, as makeRoom looks at keys in vain.
	p.work += newKeyWork
	if len(key) > MaxKey || !k.makeRoom(p, now) {
		return false
	}
	p.tats[strings.Clone(key)] = tat // it may be cut out of something large
	return true
}

// makeRoom counts one more key unless there are too many.
func (k *Keyed) makeRoom(p *keyShard, now int64) bool {
	// Counted before it is compared: parts have locks of their own, and two of them could otherwise both
	// take the last room.
	if k.keys.Add(1) <= k.maxKeys {
		return true
	}
	k.keys.Add(-1)
	left := looks
	// Only this part is searched, whose lock is held. A map is iterated from a random place, so calls do not
	// look at the same keys each time.
	for key, tat := range p.tats {
		if tat <= now {
			delete(p.tats, key) // the new one takes its place in the count
			return true
		}
		left--
		if left == 0 {
			return false
		}
	}
	return false
}

// dropIdleKeys drops the part's keys that are worth nothing.
func (k *Keyed) dropIdleKeys(p *keyShard, now int64) {
	before := len(p.tats)
	maps.DeleteFunc(p.tats, func(_ string, tat int64) bool { return tat <= now })
	p.work = 0
	dropped := before - len(p.tats)
	k.keys.Add(int64(-dropped))
	if dropped > len(p.tats) { // a map never gives back memory
		kept := make(map[string]int64, len(p.tats))
		maps.Copy(kept, p.tats)
		p.tats = kept
	}
}
