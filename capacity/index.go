package capacity

import "hash/maphash"

// An index finds rows by their clients. It takes 8 bytes for each slot, of which three in eight to six in
// eight are used, where a map of strings takes 25.
type index struct {
	seed  maphash.Seed
	slots []slot // a power of two of them, or none
	used  int
}

// A slot is a row at the place its hash says, or after it if that was taken.
type slot struct {
	hash uint32
	row  int32 // its number and one more; 0 is free
}

const leastSlots = 4

func newIndex() index { return index{seed: maphash.MakeSeed()} }

func (x *index) hash(client string) uint32 { return uint32(maphash.String(x.seed, client)) }

// find is the row of a client.
func (x *index) find(client string, rows *slab[row]) (i int32, ok bool) {
	if x.used == 0 {
		return 0, false
	}
	hash, mask := x.hash(client), len(x.slots)-1
	for k := int(hash) & mask; x.slots[k].row != 0; k = (k + 1) & mask {
		if s := x.slots[k]; s.hash == hash && rows.at(s.row-1).client == client {
			return s.row - 1, true
		}
	}
	return 0, false
}

// add notes a row, whose client has none yet.
func (x *index) add(client string, i int32) {
	if (x.used+1)*4 > len(x.slots)*3 {
		x.resize(max(leastSlots, 2*len(x.slots)))
	}
	x.put(slot{x.hash(client), i + 1})
	x.used++
}

func (x *index) put(s slot) {
	mask := len(x.slots) - 1
	k := int(s.hash) & mask
	for x.slots[k].row != 0 {
		k = (k + 1) & mask
	}
	x.slots[k] = s
}

// remove forgets a row.
func (x *index) remove(client string, i int32) {
	mask := len(x.slots) - 1
	free := int(x.hash(client)) & mask
	for x.slots[free].row != i+1 {
		free = (free + 1) & mask
	}
	// What follows moves up, unless that would be before its place.
	for k := (free + 1) & mask; x.slots[k].row != 0; k = (k + 1) & mask {
		if home := int(x.slots[k].hash) & mask; (k-home)&mask >= (k-free)&mask {
			x.slots[free] = x.slots[k]
			free = k
		}
	}
	x.slots[free] = slot{}
	x.used--
	if len(x.slots) > leastSlots && x.used*8 < len(x.slots) {
		x.resize(len(x.slots) / 2)
	}
}

func (x *index) resize(n int) {
	old := x.slots
	x.slots = make([]slot, n)
	for _, s := range old {
		if s.row != 0 {
			x.put(s)
		}
	}
}
