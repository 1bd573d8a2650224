package telemetry

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// Totals returns how many commands were granted and refused, but for those that only read: their answers are
// no decisions that people count.
func (p *Protocol) Totals() (granted, refused uint64) {
	p.mu.Lock()
	shards := slices.Clone(p.shards)
	p.mu.Unlock()
	for kind := range gatehouse.Kinds {
		for op := range gatehouse.OpUndo {
			if op.Reads() {
				continue
			}
			for _, s := range seriesOfOp(shards, kind, op) {
				granted += s.outcomes[gatehouse.Granted].Load()
				refused += s.outcomes[gatehouse.Refused].Load()
			}
		}
	}
	return granted, refused
}
