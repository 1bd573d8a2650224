package capacity

import "hash/maphash"

// A clientIndex finds leases by their clients. It is a hash table with open addressing, of 8 bytes per slot,
// filled to between three and six eighths; a map of strings takes 25 bytes.
type clientIndex struct {
	seed  maphash.Seed
	slots []indexSlot // their number is a power of two, or 0
	used  int
}

// An indexSlot holds a record at the place its hash says, or in the next free slot after it.
type indexSlot struct {
	hash   uint32
	record int32 // its number plus one; 0 means free
}

const minSlots = 4

func newClientIndex() clientIndex { return clientIndex{seed: maphash.MakeSeed()} }

func (x *clientIndex) hashClient(client string) uint32 { return uint32(maphash.String(x.seed, client)) }

// findClient returns the record of a client.
func (x *clientIndex) findClient(client string, rows *slab[leaseRecord]) (i int32, ok bool) {
	if x.used == 0 {
		return 0, false
	}
	hash, mask := x.hashClient(client), len(x.slots)-1
	for k := int(hash) & mask; x.slots[k].record != 0; k = (k + 1) & mask {
		// The hash is compared first: most slots on the way belong to others, and their strings lie elsewhere
		// in memory.
		if s := x.slots[k]; s.hash == hash && rows.at(s.record-1).client == client {
			return s.record - 1, true
		}
	}
	return 0, false
}

// add enters a record, whose client must not have one yet.
func (x *clientIndex) add(client string, i int32) {
	if (x.used+1)*4 > len(x.slots)*3 {
		x.resizeTo(max(minSlots, 2*len(x.slots)))
	}
	x.insertSlot(indexSlot{x.hashClient(client), i + 1})
	x.used++
}

func (x *clientIndex) insertSlot(s indexSlot) {
	mask := len(x.slots) - 1
	k := int(s.hash) & mask
	for x.slots[k].record != 0 {
		k = (k + 1) & mask
	}
	x.slots[k] = s
}

// remove takes a record out.
func (x *clientIndex) remove(client string, i int32) {
	mask := len(x.slots) - 1
	free := int(x.hashClient(client)) & mask
	for x.slots[free].record != i+1 {
		free = (free + 1) & mask
	}
	// What follows moves up, unless that would be before its place.
	// Linear probing has no tombstones here: a search stops at the first free slot. So what follows moves up
	// into the gap, unless that would put it before the slot its hash says.
	for k := (free + 1) & mask; x.slots[k].record != 0; k = (k + 1) & mask {
		if home := int(x.slots[k].hash) & mask; (k-home)&mask >= (k-free)&mask {
			x.slots[free] = x.slots[k]
			free = k
		}
	}
	x.slots[free] = indexSlot{}
	x.used--
	if len(x.slots) > minSlots && x.used*8 < len(x.slots) {
		x.resizeTo(len(x.slots) / 2)
	}
}

func (x *clientIndex) resizeTo(n int) {
	old := x.slots
	x.slots = make([]indexSlot, n)
	for _, s := range old {
		if s.record != 0 {
			x.insertSlot(s)
		}
	}
}
