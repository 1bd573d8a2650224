package slidingwindow

// windowCounts are what one process knows of one window that several count in.
type windowCounts struct {
	LocalWindow       // its count is own plus what is known of others
	own         int64 // events that passed here
	pushed      int64 // of own, what the store has confirmed
	total       int64 // what the store replied last
}

// addOwn counts n events that passed here.
func (t *windowCounts) addOwn(n int64) {
	t.count = max(addSaturating(t.count, n), 0)
	t.own = max(addSaturating(t.own, n), 0)
	t.pushed = min(t.pushed, t.own)
}

// unpushed is how many of the events that passed here the store has not confirmed.
func (t *windowCounts) unpushed() int64 { return t.own - t.pushed }

// applyReply applies the reply to a push. The count never falls: a store that lost it must not make this
// process forget what it has let pass itself. What was lost is pushed again.
//
// For a read this is done only if batched: there, pushing again does no harm, whereas a plain store that
// reads from a replica would count twice what the replica has not got yet.
func (t *windowCounts) applyReply(p *Push, batched bool) {
	// Counts in a store only grow, so a smaller total than expected means that some were lost.
	lost := p.Total < addSaturating(t.total, p.Delta)
	t.total = p.Total
	if lost {
		if p.Delta > 0 || batched {
			t.pushed = min(p.Delta, t.own)
		}
		t.count = max(t.count, p.Total) // how much of the total is own is not known
		return
	}
	t.pushed = min(addSaturating(t.pushed, p.Delta), t.own)
	t.count = max(t.count, addSaturating(t.own, max(p.Total-t.pushed, 0)))
}
