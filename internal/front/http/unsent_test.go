package http

import (
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/storetest"
)

// A hold whose answer cannot be written is taken back, and so are those before it in a pipeline.
func TestHoldWhoseAnswerIsNotWritten(t *testing.T) {
	for name, locks := range map[string][]string{
		"alone":    {"left"},
		"in a row": {"other", "left"},
	} {
		t.Run(name, func(t *testing.T) {
			s := storetest.NewLeftStore()
			r := newRigOn(t, Config{}, s)
			gone, left := r.dial(t), make(chan struct{})
			s.Leave <- func() {
				defer close(left)
				_ = gone.Conn.(*net.TCPConn).SetLinger(0)
				_ = gone.Close()
				r.untilHungUp(t)
			}
			var requests []string
			for _, lock := range locks {
				requests = append(requests, "/lock/"+lock+"/acquire?key=gone&expires=0")
			}
			gone.send(requests...)
			<-left
			for _, lock := range locks {
				next := r.dial(t)
				next.send("/lock/" + lock + "/acquire?key=next&maxwait=20000")
				next.want(200, "next")
			}
		})
	}
}

// A client that was answered, and then resets its connection, keeps what it has.
func TestHoldWhoseAnswerIsWritten(t *testing.T) {
	r := newRig(t, Config{})
	c := r.dial(t)
	c.send("/lock/l/acquire?key=me&expires=0")
	c.want(200, "me")
	_ = c.Conn.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	await.True(t, "the connection is closed", func() bool { return r.open.Load() == 0 })
	next := r.dial(t)
	next.send("/lock/l/acquire?key=next&maxwait=0")
	next.want(408, "lock/l: acquire not granted at once; "+
		"only another request can change that")
}

// untilHungUp waits until the server can see that a client is gone.
func (r *rig) untilHungUp(t *testing.T) {
	t.Helper()
	gone := false
	for end := time.Now().Add(20 * time.Second); !gone && time.Now().Before(end); {
		r.pacedConns.forEach(func(c *pacedConn) { gone = gone || clientGone(c) })
	}
	if !gone {
		t.Error("no client is seen to be gone")
	}
}
