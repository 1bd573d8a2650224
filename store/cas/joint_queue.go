package cas

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is the way of a joint transaction through the queues of its names: it enters one after the other,
// waits in them, and lets them go on.

// mayWait reports whether the transaction has time to wait in a queue, and sees that it does not wait for too
// long. It is called with the lock of that queue, so that either endWaiting finds it there or it does not
// wait.
func (t *jointTransaction) mayWait() bool {
	if t.timer == nil {
		t.timer = time.AfterFunc(t.store.config.Timeout, t.endWaiting)
	}
	return !t.late.Load()
}

// endWaiting ends a transaction that waits in a queue for too long: meanwhile the calls for its other names
// wait behind it, perhaps for a name that they are not about.
func (t *jointTransaction) endWaiting() {
	t.late.Store(true)
	i := int(t.entered.Load()) - 1
	// If it is not there it is on the way to the next queue, and ends before that.
	if i >= 0 && t.parts[i].entry.calls.leaveQueue(t) {
		t.abandon(i, t.lateError())
	}
}

func (t *jointTransaction) lateError() error {
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s and others: other calls for these names took %s",
		t.keys[0], t.store.config.Timeout)
}

// enterQueues enters the queues that are left, until it has to wait in one. Then the transaction under way
// there goes on with it.
func (t *jointTransaction) enterQueues() {
	for {
		i := int(t.entered.Load())
		if t.late.Load() {
			t.abandon(i, t.lateError())
			return
		}
		if i == len(t.parts) {
			break
		}
		// Counted first: once it waits, another goroutine may take over at any time.
		t.entered.Add(1)
		leads, waits := t.parts[i].entry.calls.beginOrJoin(queuedCall{joint: t})
		switch {
		case waits:
			return
		case !leads:
			t.abandon(i, t.lateError())
			return
		}
	}
	t.begin()
}

// leaveQueues ends its lead of the first queues, and returns what is to be done for those that come next.
func (t *jointTransaction) leaveQueues(led int, away error) (next []func()) {
	s := t.store
	for i := range led {
		e := t.parts[i].entry
		if away != nil {
			waiting := e.calls.takeAll()
			next = append(next, func() { s.failWaiting(e, waiting, away) })
			continue
		}
		if e.calls.endIfIdle() > 0 {
			// Of several queues each goes on by itself.
			next = append(next, func() { go s.startNext(e, s.newTransaction()) })
		}
	}
	return next
}

// failWaiting ends calls that wait behind one that has found the store away: they would wait as long, for the
// same answer.
func (s *Store) failWaiting(e *entry, waiting []queuedCall, away error) {
	var calls []queuedCall
	for _, c := range waiting {
		if c.joint == nil {
			calls = append(calls, c)
			continue
		}
		// It leads all queues that it has entered but the last, out of which it was taken.
		c.joint.abandon(int(c.joint.entered.Load())-1, away)
	}
	s.failCalls(e.key, calls, away)
	notifyCallers(calls)
}

// abandon ends a transaction that leads some queues and has asked nothing yet.
func (t *jointTransaction) abandon(led int, err error) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.fail()
	next, done := t.leaveQueues(led, nil), t.calls[0].change.Done
	done(err)
	for _, start := range next {
		start()
	}
}
