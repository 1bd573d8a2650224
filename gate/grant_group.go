package gate

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/gatehousehq/gatehouse/control"
)

// A sameNames is the grants that want the same names. They are granted in order of arrival, whatever their
// costs are, so that only the first of them need be looked at when something has moved: however many wait,
// that is one look. It is guarded by the lock of the grantOrder.
type sameNames struct {
	lines  lineList
	grants []*GrantRequest // in order of their numbers
}

// joinGroup has a grant, which stands in all of its lines, wait in its group.
func (o *grantOrder) joinGroup(r *GrantRequest) {
	var lines lineList
	for i := range r.places { // in the order of the names
		lines.add(r.places[i].line)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	group := o.groups[lines]
	if group == nil {
		if o.groups == nil {
			o.groups = make(map[lineList]*sameNames)
		}
		group = &sameNames{lines: lines}
		o.groups[lines] = group
	}
	r.group = group
	// Numbers are given before the lines are entered, so that an older grant may come after a younger one.
	at, _ := slices.BinarySearchFunc(group.grants, r.number, compareGrant)
	group.grants = slices.Insert(group.grants, at, r)
	if at == 0 {
		r.noteFirst()
	}
}

// noteFirst notes in its lines that no other grant that wants the same names stands before this one. One that
// is no longer the first, as an older one has come late, stays there: it may keep a line.
func (r *GrantRequest) noteFirst() {
	for i := range r.places {
		if p := &r.places[i]; !p.first {
			p.first = true
			p.line.firsts = insertPlace(p.line.firsts, p)
		}
	}
}

// insertPlace adds a place to others, which are in the order of their numbers.
func insertPlace(places []*grantPlace, p *grantPlace) []*grantPlace {
	at, _ := slices.BinarySearchFunc(places, p.grant.number, comparePlace)
	return slices.Insert(places, at, p)
}

func comparePlace(p *grantPlace, number control.Ticket) int {
	return cmp.Compare(p.grant.number, number)
}

func compareGrant(r *GrantRequest, number control.Ticket) int { return cmp.Compare(r.number, number) }

// leaveGroup takes a grant, which stands in no line any more, out of its group. The next one is looked at if
// this was the first.
func (o *grantOrder) leaveGroup(r *GrantRequest) {
	o.mu.Lock()
	defer o.mu.Unlock()
	group := r.group
	r.group = nil
	at, _ := slices.BinarySearchFunc(group.grants, r.number, compareGrant)
	group.grants = removeAt(group.grants, at)
	switch {
	case len(group.grants) == 0:
		delete(o.groups, group.lines)
	case at == 0 && !group.grants[0].leaving: // one that is leaving does this for the one behind it
		next := group.grants[0]
		for i := range next.places {
			next.places[i].moved = true // nothing was looked at there as long as it was not the first
		}
		next.noteFirst()
		o.addDirty(next)
	}
}

// removeAt is slices.Delete of one element, and moves nothing when that is the first.
func removeAt[T any](s []*T, at int) []*T {
	if at > 0 {
		return slices.Delete(s, at, at+1)
	}
	s[0] = nil
	return s[1:]
}

// isFirst reports whether no other grant that wants the same names stands before it.
func (r *GrantRequest) isFirst() bool { return r.group.grants[0] == r }

// A placeHeap is the places of a line whose grants are to be looked at. Its first is the one that came first.
type placeHeap []*grantPlace

// pushDirty adds the place to the heap of its line. While the grant enters its lines, a place may have none.
func (p *grantPlace) pushDirty() {
	if p.line != nil {
		heap.Push(&p.line.dirty, p)
	}
}

func (h *placeHeap) Len() int           { return len(*h) }
func (h *placeHeap) Less(i, j int) bool { return (*h)[i].grant.number < (*h)[j].grant.number }

func (h *placeHeap) Swap(i, j int) {
	s := *h
	s[i], s[j] = s[j], s[i]
	s[i].dirtyAt, s[j].dirtyAt = i, j
}

// Push implements [heap.Interface].
func (h *placeHeap) Push(x any) {
	p := x.(*grantPlace)
	p.dirtyAt = len(*h)
	*h = append(*h, p)
}

// Pop implements [heap.Interface].
func (h *placeHeap) Pop() any {
	n := len(*h) - 1
	p := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return p
}
