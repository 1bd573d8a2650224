package lazy

import (
	"sync"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// ApplyJoint has the store decide a change over several names. Before that it is told what was let through
// here of those that are decided about here, and given back what is left of their chunks; until it has
// decided nothing is taken of them here.
func (s *Store) ApplyJoint(c *control.JointChange) {
	var names []*namedLimiter
	for i := range c.Parts {
		if n := s.knownLimiter(c.Parts[i].Key); n != nil {
			names = append(names, n)
		}
	}
	if len(names) == 0 {
		s.SharedStore.ApplyJoint(c)
		return
	}
	go s.applyJointAfter(names, c) // ends with the answer of the store
}

// knownLimiter is what is known of a name; nil when it is not decided about here at present.
func (s *Store) knownLimiter(key gatehouse.Key) *namedLimiter {
	if !key.Kind.Limiter() {
		return nil
	}
	sh := s.shardOf(key)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	return sh.names[key]
}

// applyJointAfter applies a joint change after an exchange of the names that are decided about here, which
// are in the order of their keys.
func (s *Store) applyJointAfter(names []*namedLimiter, c *control.JointChange) {
	errs := make([]error, len(names))
	// In this order, so that two joint changes do not wait for each other.
	for _, n := range names {
		n.exchangeLock <- struct{}{}
	}
	var work sync.WaitGroup
	for i, n := range names {
		work.Go(func() { errs[i] = n.leaveToStore() })
	}
	work.Wait()
	done := c.Done
	end := func(err error) {
		for _, n := range names {
			n.resumeAfterJoint()
			<-n.exchangeLock
		}
		done(err)
	}
	for _, err := range errs {
		if err != nil {
			end(err)
			return
		}
	}
	c.Done = end
	s.SharedStore.ApplyJoint(c)
}

// leaveToStore has nothing taken here any more until resumeAfterJoint, and brings the store up to date. It is
// called with exchangeLock held.
func (n *namedLimiter) leaveToStore() error {
	n.mu.Lock()
	n.jointUnderWay = true
	forgotten, told := n.forgotten, n.unreported.isEmpty()
	n.mu.Unlock()
	switch {
	case forgotten:
		return nil // all was told before
	case n.rule.Chunk > 0:
		return n.returnChunk()
	case told:
		return nil
	}
	return n.makeRoundTrip()
}

// resumeAfterJoint lets commands be decided here again, by what the store says next. It is called with
// exchangeLock held.
func (n *namedLimiter) resumeAfterJoint() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.jointUnderWay, n.refused = false, nil
	if n.rule.Chunk == 0 {
		n.state = nil // it does not have what the joint change took or gave back
	}
	n.store.scheduleExchange(n)
}
