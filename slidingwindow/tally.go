package slidingwindow

// A tally is what one process knows of one window that several count in.
type tally struct {
	LocalWindow       // the count is own and what is known of others
	own         int64 // of the count, what passed here
	pushed      int64 // of own, what the store is known to hold
	total       int64 // what the store answered last
}

// add counts n events that passed here.
func (t *tally) add(n int64) {
	t.count = max(plus(t.count, n), 0)
	t.own = max(plus(t.own, n), 0)
	t.pushed = min(t.pushed, t.own)
}

// unpushed is how many of the events that passed here the store has not confirmed.
func (t *tally) unpushed() int64 { return t.own - t.pushed }

// learn takes the answer to a push. The count only ever rises: a store that lost it must not make this
// process forget what it has let pass itself. What was lost is pushed again.
//
// Answers to reads are believed for that only if batched: there, pushing again does no harm, whereas a
// plain store that reads from a replica would count twice what the replica has not got yet.
func (t *tally) learn(p *Push, batched bool) {
	lost := p.Total < plus(t.total, p.Delta)
	t.total = p.Total
	if lost {
		if p.Delta > 0 || batched {
			t.pushed = min(p.Delta, t.own)
		}
		t.count = max(t.count, p.Total) // how much of the total is own is not known
		return
	}
	t.pushed = min(plus(t.pushed, p.Delta), t.own)
	t.count = max(t.count, plus(t.own, max(p.Total-t.pushed, 0)))
}
