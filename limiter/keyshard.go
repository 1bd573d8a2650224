package limiter

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"strings"
	"sync"
)

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
