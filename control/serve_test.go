package control

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// Who waited when an event was sent gets it, although a delete comes with the send.
func TestServeDeleteBehindASend(t *testing.T) {
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
	late := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
	send, del := gatehouse.Command{Op: gatehouse.OpSend}, gatehouse.Command{Op: gatehouse.OpDelete}
	queue := []Turn{{Command: &wait, Again: true}, {Command: &send}, {Command: &del}, {Command: &late}}
	Serve(epoch(), gatehouse.Event, nil, queue)
	for i, want := range []gatehouse.Outcome{
		gatehouse.Granted, gatehouse.Granted, gatehouse.Granted, gatehouse.Refused,
	} {
		if got := queue[i].Decision.Outcome; got != want {
			t.Errorf("%s = %s, want %s", queue[i].Op, got, want)
		}
	}
}

// Before a send, a delete tells those who wait that it came.
func TestServeDeleteBeforeASend(t *testing.T) {
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
	send, del := gatehouse.Command{Op: gatehouse.OpSend}, gatehouse.Command{Op: gatehouse.OpDelete}
	state := State(new(Event))
	queue := []Turn{{Command: &wait, Again: true}, {Command: &del}, {Command: &send}}
	Serve(epoch(), gatehouse.Event, state, queue)
	for i, want := range []gatehouse.Outcome{gatehouse.Deleted, gatehouse.Granted, gatehouse.Granted} {
		if got := queue[i].Decision.Outcome; got != want {
			t.Errorf("%s = %s, want %s", queue[i].Op, got, want)
		}
	}
}

// TestDeletedAndMadeAnew: what follows a delete in one queue is of the same instant. Its fencing tokens and
// its numbers are others even so, and an undo of what was granted before the delete does nothing to it.
func TestDeletedAndMadeAnew(t *testing.T) {
	hold := gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "k", Cost: 1, Rule: gatehouse.Rule{Size: 1}}
	for _, kind := range []gatehouse.Kind{gatehouse.Lock, gatehouse.Semaphore} {
		s, queue := aroundDelete(kind, hold)
		if before, after := queue[0].Decision.Fence, queue[2].Decision.Fence; after <= before {
			t.Errorf("%s: fencing token %d after a delete, want more than %d", kind, after, before)
		}
		s.undo(epoch(), hold, &queue[0].Decision)
		if len(s.state.(*Semaphore).holds.heap) != 1 {
			t.Errorf("%s: an undo of a hold before the delete ended the one after it", kind)
		}
	}
	for _, v := range varieties() {
		take := gatehouse.Command{
			Op: gatehouse.OpAcquire, Cost: 1,
			Rule: gatehouse.Rule{Size: 1, Interval: time.Second, Mode: v.mode},
		}
		s, queue := aroundDelete(v.kind, take)
		s.undo(epoch(), take, &queue[0].Decision)
		if d := s.with(epoch(), gatehouse.OpPeek, 1); d.Outcome != gatehouse.Refused {
			t.Errorf("%s: an undo of what was taken before the delete gave back what was taken after it", v)
		}
		take.Op, take.Holder = gatehouse.OpReserve, "k"
		s, queue = aroundDelete(v.kind, take, take)
		if before, after := queue[1].Decision.Reservation, queue[4].Decision.Reservation; after <= before {
			t.Errorf("%s: place %d after a delete, want more than %d", v, after, before)
		}
		s.undo(epoch(), take, &queue[1].Decision)
		if !hasPlace(s.state, queue[4].Decision.Reservation) {
			t.Errorf("%s: an undo of a place before the delete gave back the one after it", v)
		}
	}
}

// aroundDelete serves commands, a delete, and the same commands again, as one queue.
func aroundDelete(kind gatehouse.Kind, cmds ...gatehouse.Command) (subject, []Turn) {
	var queue []Turn
	for range 2 {
		for i := range cmds {
			queue = append(queue, Turn{Command: &cmds[i]})
		}
		queue = append(queue, Turn{Command: &gatehouse.Command{Op: gatehouse.OpDelete}})
	}
	queue = queue[:len(queue)-1]
	return subject{kind: kind, state: Serve(epoch(), kind, nil, queue)}, queue
}

// TestAnswersSaturate: a hold or a place that was answered more often than is counted can still be stored,
// and stays.
func TestAnswersSaturate(t *testing.T) {
	hold := gatehouse.Command{Op: gatehouse.OpAcquire, Holder: "k", Cost: 1, Rule: gatehouse.Rule{Size: 1}}
	place := gatehouse.Command{
		Op: gatehouse.OpReserve, Holder: "k", Cost: 1, Rule: gatehouse.Rule{Size: 1, Interval: time.Second},
	}
	lock, limit := subject{kind: gatehouse.Lock}, subject{kind: gatehouse.FixedWindow}
	lock.step(epoch(), hold)
	limit.step(epoch(), place)
	limit.step(epoch(), place)
	lock.state.(*Semaphore).holds.find("k").grants = maxAnswers - 1
	windows := limit.state.(*limiterState[fixedWindowMeter, *fixedWindowMeter])
	windows.extra.reservations[0].answers = maxAnswers - 1
	for _, c := range []struct {
		s   *subject
		cmd gatehouse.Command
	}{{&lock, hold}, {&limit, place}} {
		var d gatehouse.Decision
		for range 3 {
			d = c.s.step(epoch(), c.cmd)
		}
		for range 2 {
			c.s.undo(epoch(), c.cmd, &d)
		}
		read, err := Decode(c.s.kind, Encode(nil, c.s.state))
		if err != nil {
			t.Fatal(err)
		}
		c.s.state = read
		if again := c.s.step(epoch(), c.cmd); again.Fence != d.Fence || again.Reservation != d.Reservation {
			t.Errorf("%s: %+v in the end, want %+v", c.s.kind, again, d)
		}
	}
}

// TestAlwaysSteps: no command that is said to step a state in any case is answered without one.
func TestAlwaysSteps(t *testing.T) {
	for op := gatehouse.OpAcquire; op <= gatehouse.OpUndo; op++ {
		for _, kind := range []gatehouse.Kind{gatehouse.Semaphore, gatehouse.TokenBucket, gatehouse.Counter} {
			v, s := queueServer{now: epoch(), kind: kind}, New(kind)
			turn := Turn{Command: &gatehouse.Command{Op: op}}
			next, answered := v.beginTurn(&turn, s)
			if alwaysSteps(op) && (answered || next != s) {
				t.Errorf("%s of a %s is answered without a step", op, kind)
			}
		}
	}
}
