package memory

import (
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/minheap"
)

// A nameTable holds one kind's controllers of a shard by their names. It is a hash table of its own because a
// map would keep each name twice, once for the map and once for the checks, and would hash it once more than
// the choice of the shard has done: with it an idle token bucket takes 112 bytes and not 158.
//
//	index     ┌────┬────┬────┬────┐  by hash, with linear probing: bits of the hash, and the number
//	          │    │ 2  │    │ 0  │  of an entry
//	          └────┴─┬──┴────┴─┬──┘
//	entries   ┌──────┼─────────┘  by number, in chunks that never move
//	          ▼      ▼
//	          name, state
//	checks    a heap of instants, each with the number of an entry
//
// Every name has exactly one check, in checks or in the shard's refused.
type nameTable struct {
	index  []uint32 // 0 is a free place; the length is a power of two
	chunks []*[chunkLength]nameEntry
	free   []uint32 // numbers of entries that were dropped
	used   int      // entries that were not
	checks minheap.Heap[nameCheck]
}

// A nameEntry is one name. A nil state is that of a deleted name, which is dropped when its check comes up.
type nameEntry struct {
	name  string
	state control.State
}

// chunkLength is how many entries are allocated together: few, as most shards of a small server have only a
// name or two.
const chunkLength = 16

// numberBits is how long the number of an entry is. With 320 shards that is room for 600 million names; see
// mostNames.
const numberBits = 21

const (
	numberMask  = 1<<numberBits - 1
	leastPlaces = 8
)

// tagOf are the bits of a hash that the index has beside a number. They spare a look at most names that are
// in the way. Neither these bits nor those of placeOf are the low ones, by which the shard was chosen.
func tagOf(hash uint64) uint32 {
	return uint32(hash>>(32+numberBits)) << numberBits //nolint:gosec // the upper 11 bits
}

// placeOf is where the search for a hash begins.
func (t *nameTable) placeOf(hash uint64) int {
	return int(hash>>32) & (len(t.index) - 1) //nolint:gosec // 32 bits
}

// entry returns the entry with a number.
func (t *nameTable) entry(number uint32) *nameEntry {
	return &t.chunks[number/chunkLength][number%chunkLength]
}

// find returns the entry of a name, nil if there is none. It is valid until the name is dropped. t may be
// nil.
func (t *nameTable) find(hash uint64, name string) *nameEntry {
	if t == nil || len(t.index) == 0 {
		return nil
	}
	tag, last := tagOf(hash), len(t.index)-1
	for at := t.placeOf(hash); ; at = (at + 1) & last {
		place := t.index[at&last]
		// The end of the search: drop leaves no hole between a name and its home.
		if place == 0 {
			return nil
		}
		// The tag is a part of the hash, and spares a look at most entries of other names.
		if place&^numberMask == tag {
			e := t.entry(place&numberMask - 1)
			if e.name == name {
				return e
			}
		}
	}
}

// add makes the entry of a new name, and returns its number.
func (t *nameTable) add(hash uint64, name string, hashOf func(name string) uint64) (number uint32) {
	// A table that is filled to seven eighths still finds a free place after few steps.
	if 8*(t.used+1) > 7*len(t.index) {
		t.growIndex(hashOf)
	}
	if n := len(t.free); n > 0 {
		number = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		number = uint32(t.used) //nolint:gosec // at most numberMask
		if t.used == len(t.chunks)*chunkLength {
			t.chunks = append(t.chunks, new([chunkLength]nameEntry))
		}
	}
	t.used++
	t.entry(number).name = name
	t.indexEntry(hash, number)
	return number
}

// indexEntry puts the number of an entry that is in no place of the index into the first free one.
func (t *nameTable) indexEntry(hash uint64, number uint32) {
	at := t.placeOf(hash)
	for t.index[at] != 0 {
		at = (at + 1) & (len(t.index) - 1)
	}
	t.index[at] = tagOf(hash) | number + 1
}

// growIndex doubles the index.
func (t *nameTable) growIndex(hashOf func(name string) uint64) {
	old := t.index
	t.index = make([]uint32, max(leastPlaces, 2*len(old)))
	for _, place := range old {
		if place != 0 {
			number := place&numberMask - 1
			t.indexEntry(hashOf(t.entry(number).name), number)
		}
	}
}

// drop drops the entry with a number, whose name has this hash.
func (t *nameTable) drop(hash uint64, number uint32, hashOf func(name string) uint64) {
	last := len(t.index) - 1
	hole := t.placeOf(hash)
	for t.index[hole]&numberMask-1 != number {
		hole = (hole + 1) & last
	}
	// Those behind that are found by way of the hole move up, so that no search ends there.
	for at := (hole + 1) & last; t.index[at] != 0; at = (at + 1) & last {
		home := t.placeOf(hashOf(t.entry(t.index[at]&numberMask - 1).name))
		if (at-home)&last >= (at-hole)&last {
			t.index[hole] = t.index[at]
			hole = at
		}
	}
	t.index[hole] = 0
	*t.entry(number) = nameEntry{}
	t.free = append(t.free, number)
	t.used--
}

// visitAll shows all names, in no order, deleted ones included. t may be nil.
func (t *nameTable) visitAll(visit func(e *nameEntry)) {
	if t == nil {
		return
	}
	for _, chunk := range t.chunks {
		for i := range chunk {
			if chunk[i].name != "" { // no controller has an empty one
				visit(&chunk[i])
			}
		}
	}
}

// A nameCheck says when a name is to be looked at, and which: the instant in Unix time, in units of
// checkUnit, and behind it the number of its entry. As one number it takes a third of the memory, and
// is compared at once.
type nameCheck uint64

// checkUnit, in ns, is about a millisecond; in that many bits there is room for all instants there are.
const checkUnit = 1 << (numberBits - 1)

// newCheck is the check of an entry at an instant, Unix ns.
func newCheck(at int64, number uint32) nameCheck {
	return nameCheck(uint64(max(0, at)/checkUnit)<<numberBits | uint64(number)) //nolint:gosec // from 0
}

// at is the instant, Unix ns, rounded down.
func (c nameCheck) at() int64 { return int64(c>>numberBits) * checkUnit } //nolint:gosec // less than 2^63

// number is the number of the entry.
func (c nameCheck) number() uint32 { return uint32(c & numberMask) } //nolint:gosec // few bits

// Before implements [minheap.Item].
func (c nameCheck) Before(other nameCheck) bool { return c < other }
