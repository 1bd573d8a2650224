package telemetry

import (
	"slices"

	"github.com/gatehousehq/gatehouse"
)

// questions are the operations that take nothing: their answers are no decisions that people count.
var questions = []gatehouse.Op{
	gatehouse.OpPeek, gatehouse.OpDelay, gatehouse.OpValue, gatehouse.OpStats,
	gatehouse.OpHolders, gatehouse.OpWaiters,
}

// Totals returns how many commands were granted and refused, of all operations but those that only ask.
func (p *Protocol) Totals() (granted, refused uint64) {
	p.mu.Lock()
	shards := slices.Clone(p.shards)
	p.mu.Unlock()
	for kind := range gatehouse.Kinds {
		for op := range gatehouse.OpUndo {
			if slices.Contains(questions, op) {
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
