package breaker

import (
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// ApplyJoint applies a change over several names to the store, or fails at once if that is known to be
// unreachable. What becomes of it counts as that of a call.
func (b *Breaker) ApplyJoint(c *control.JointChange) {
	absent := b.unreachable.Load()
	if absent != nil && b.keepJointUndo(c.Parts) {
		away := time.Since(absent.since).Round(time.Millisecond)
		c.Done(gatehouse.Errorf(gatehouse.CodeUnavailable,
			"%s and others: the store has not responded for %s: %w", c.Parts[0].Key, away, absent.err))
		return
	}
	c.Done = b.judged(c.Done)
	b.ProbedStore.ApplyJoint(c)
}

// judged is what is called in the place of done: it judges the result of a call that begins now.
func (b *Breaker) judged(done func(error)) func(error) {
	began := time.Since(b.start)
	return func(err error) {
		ended := time.Since(b.start)
		if b.config.Observe != nil {
			b.config.Observe(ended - began)
		}
		b.judgeResult(err, began, ended)
		done(err)
	}
}

// keepJointUndo remembers a change that takes a grant back and is not sent to the store. It reports false,
// and remembers nothing, if the store has come back, as keepUndos does.
func (b *Breaker) keepJointUndo(parts []control.Part) (away bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unreachable.Load() == nil {
		return false
	}
	// Of a grant that waited nothing is left that would not go by itself.
	if turn := &parts[0].Turn; turn.Op != gatehouse.OpUndo || turn.Granted == nil {
		return true
	}
	if len(b.pendingUndos) < maxPendingUndos {
		b.pendingUndos = append(b.pendingUndos, deferredUndo{joint: control.CopyUndo(parts)})
	}
	return true
}

// sendJoint sends an undo of a grant, and waits.
func (b *Breaker) sendJoint(parts []control.Part) {
	done := make(chan struct{})
	b.ApplyJoint(&control.JointChange{
		Parts: slices.Clone(parts), Done: func(error) { close(done) },
	})
	<-done
}
