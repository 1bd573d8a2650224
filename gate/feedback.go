package gate

import (
	"cmp"

	"github.com/gatehousehq/gatehouse"
)

// completeFeedback fills in what a feedback has from the gate: the longest pause, and what the jitter is
// drawn from. The caller's is left as it is.
func (g *Gate) completeFeedback(r *Request) {
	f := *r.Command.Feedback
	longest := cmp.Or(g.config.MaxPause, gatehouse.DefaultMaxPause)
	f.MaxPause = min(cmp.Or(f.MaxPause, longest), longest)
	if f.Seed == 0 {
		f.Seed = seedOf(r.Key)
	}
	r.Command.Feedback = &f
}

// seedOf is a number other than 0 that is made of a key, the same at every server.
func seedOf(key gatehouse.Key) uint64 {
	// FNV-1a. What is drawn from it is mixed again, so that no more is needed than that names differ.
	const offset, prime = 14695981039346656037, 1099511628211
	h := (offset ^ uint64(key.Kind)) * prime
	for i := range len(key.Name) {
		h = (h ^ uint64(key.Name[i])) * prime
	}
	// 0 would stand for a feedback without jitter.
	return max(1, h)
}
