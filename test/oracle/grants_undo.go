package oracle

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// undo takes back what a call without an answer was granted.
func (s grantsState) undo(c *grantModelCall) grantsState {
	if c.Single != nil {
		return s.undoSingle(c)
	}
	i, there := s.find(c.Command.ID)
	if !there || s.records[i].ended {
		return s
	}
	g := s.records[i].copy()
	list := &g.calls
	if c.Command.Op == gatehouse.OpTopUp {
		list = &g.topups
	}
	// Its answer was taken back before, or the grant was confirmed since.
	at, ours := slices.BinarySearch(*list, c.number)
	if !ours {
		return s
	}
	*list = slices.Delete(*list, at, at+1)
	s = s.copy()
	s.records[i] = g
	switch {
	case c.Command.Op == gatehouse.OpTopUp:
		for k := range g.want {
			n, _ := costOf(&c.Command, g.want[k].Key)
			// A settle since may have left less than the topup took.
			n = min(n, g.counted[k], g.taken[k])
			g.counted[k], g.taken[k], s.used[s.names[g.want[k].Key]] = g.counted[k]-n, g.taken[k]-n,
				s.used[s.names[g.want[k].Key]]-n
		}
	case len(g.calls) == 0:
		s.dropGrant(i)
		s.records = slices.Delete(s.records, i, i+1)
	}
	return s
}

// dropGrant gives back all that a grant has. The state may be changed.
func (s grantsState) dropGrant(i int) {
	g := &s.records[i]
	for k := range g.want {
		at := s.names[g.want[k].Key]
		if g.want[k].Key.Kind.Limiter() {
			s.used[at] -= g.counted[k]
		} else if place, held := s.holds[at].findHolder(grantHolder(g.id)); held {
			s.holds[at] = s.holds[at].withoutHold(place)
		}
	}
}

// undoSingle takes back what a command on one name was granted.
func (s grantsState) undoSingle(c *grantModelCall) grantsState {
	key, cmd := c.Single.Key, c.Single.Command
	i := s.names[key]
	if !key.Kind.Limiter() {
		cmd.Op = gatehouse.OpUndo
		s = s.copy()
		s.holds[i] = s.holds[i].stepUndo(&modelCall{Command: cmd, number: c.number})
		return s
	}
	// One that took nothing has nothing to give back.
	at, took := slices.BinarySearch(s.loose, c.number)
	if !took {
		return s
	}
	s = s.copy()
	s.loose = slices.Delete(s.loose, at, at+1)
	s.used[i] -= cmd.Cost
	return s
}
