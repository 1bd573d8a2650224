package control

import (
	"testing"

	"github.com/gatehousehq/gatehouse"
)

// Who waited when an event was sent gets it, although a delete comes with the send.
func TestServeDeleteBehindASend(t *testing.T) {
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever, Again: true}
	late := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever}
	send, del := gatehouse.Command{Op: gatehouse.OpSend}, gatehouse.Command{Op: gatehouse.OpDelete}
	queue := []Turn{{Command: &wait}, {Command: &send}, {Command: &del}, {Command: &late}}
	Serve(epoch(), gatehouse.Event, nil, queue)
	for i, want := range []gatehouse.Outcome{
		gatehouse.Granted, gatehouse.Granted, gatehouse.Granted, gatehouse.Refused,
	} {
		if got := queue[i].Decision.Outcome; got != want {
			t.Errorf("%s = %s, want %s", queue[i].Command.Op, got, want)
		}
	}
}

// Before a send, a delete tells those who wait that it came.
func TestServeDeleteBeforeASend(t *testing.T) {
	wait := gatehouse.Command{Op: gatehouse.OpWait, MaxWait: gatehouse.Forever, Again: true}
	send, del := gatehouse.Command{Op: gatehouse.OpSend}, gatehouse.Command{Op: gatehouse.OpDelete}
	state := State(new(Event))
	queue := []Turn{{Command: &wait}, {Command: &del}, {Command: &send}}
	Serve(epoch(), gatehouse.Event, state, queue)
	for i, want := range []gatehouse.Outcome{gatehouse.Deleted, gatehouse.Granted, gatehouse.Granted} {
		if got := queue[i].Decision.Outcome; got != want {
			t.Errorf("%s = %s, want %s", queue[i].Command.Op, got, want)
		}
	}
}
