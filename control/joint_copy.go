package control

import "slices"

// CopyUndo returns parts that take a grant back, or those of such a change, as copies that keep nothing of
// the caller's. What is taken back is in their Turn.Granted.
func CopyUndo(parts []Part) []Part {
	copies := make([]Part, len(parts))
	for i := range parts {
		p, one := &parts[i], &copies[i]
		*one = Part{Key: p.Key, Turn: UndoOf(&p.Turn, nil), Optional: p.Optional, NonBlocking: p.NonBlocking}
		if p.Turn.Granted != nil {
			// The caller may use the room of its decision again.
			granted := *p.Turn.Granted
			one.Turn.Granted = &granted
		}
		if p.Turn.Grant != nil {
			grant, cmd := *p.Turn.Grant, *p.Turn.Grant.Command
			cmd.Want, cmd.Costs = slices.Clone(cmd.Want), slices.Clone(cmd.Costs)
			// The parts that it was served with are those of another change.
			grant.Command, grant.served = &cmd, nil
			one.Turn.Grant = &grant
		}
	}
	return copies
}
