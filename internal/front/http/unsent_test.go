package http

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
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

// A hold whose answer stands behind what is being sent is taken back if the client leaves before, however
// much of that it has read.
func TestHoldBehindWhatIsSent(t *testing.T) {
	r := newRig(t, Config{})
	r.dial(t).send("/event/e/wait")
	r.waiting(t, 1)
	w := newWaiter(r.Server)
	w.Key = gatehouse.Key{Kind: gatehouse.Lock, Name: "l"}
	w.Command = gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: "gone", Rule: gatehouse.Rule{Size: 1}, Cost: 1,
	}
	w.Decision = w.room
	r.gate.Submit(w.alone[:]...)
	reads, writes := net.Pipe()
	r.conns.forEach(func(c *httpConn) {
		c.addTask(func() {
			c.sending = true
			go c.sendQueue(writes, net.Buffers{[]byte("event")}, len(c.unsent))
			c.unsent = append(c.unsent, w)
		})
	})
	_, _ = reads.Read(make([]byte, 1))
	_ = reads.Close()
	next := r.dial(t)
	next.send("/lock/l/acquire?key=next&maxwait=20000")
	next.want(200, "next")
}

// A connection that is given up while a goroutine still sends a hold: a client that reads it keeps it, and of
// one that leaves it is taken back.
func TestHoldOfAConnectionGivenUp(t *testing.T) {
	for _, test := range []struct {
		reads   bool
		maxWait string
		next    int // the status of who wants the hold next
	}{
		{true, "0", 408}, {false, "20000", 200},
	} {
		t.Run(fmt.Sprintf("reads=%t", test.reads), func(t *testing.T) {
			r := newRig(t, Config{})
			c := r.dial(t)
			c.send("/counter/c/count")
			c.want(200, "1")
			w := newWaiter(r.Server)
			w.Key = gatehouse.Key{Kind: gatehouse.Lock, Name: "l"}
			w.Command = gatehouse.Command{
				Op: gatehouse.OpAcquire, Holder: "me", Cost: 1, Rule: gatehouse.Rule{Size: 1},
			}
			w.Decision = w.room
			r.gate.Submit(w.alone[:]...)
			if w.Err != nil || w.Decision.Outcome != gatehouse.Granted {
				t.Fatalf("%+v, %v, want it granted", w.Decision, w.Err)
			}
			given := make(chan struct{})
			r.conns.forEach(func(one *httpConn) {
				one.addTask(func() {
					defer close(given)
					filled := 1
					for filled > 0 { // until the system takes nothing
						filled, _ = eventloop.WriteNow(one.Conn, make([]byte, 64<<10))
					}
					one.unsent = append(one.unsent, w)
					one.write([]byte("the hold"))
					one.fail()
				})
			})
			<-given
			if test.reads {
				text, err := io.ReadAll(c.reader)
				if err != nil || !bytes.HasSuffix(text, []byte("the hold")) {
					t.Fatalf("the client reads %d bytes, %v, want the hold at their end", len(text), err)
				}
			} else {
				_ = c.Conn.(*net.TCPConn).SetLinger(0)
				_ = c.Close()
			}
			await.True(t, "the connection is closed", func() bool { return r.open.Load() == 0 })
			next := r.dial(t)
			next.send("/lock/l/acquire?key=next&maxwait=" + test.maxWait)
			response, err := http.ReadResponse(next.reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			_ = response.Body.Close()
			if response.StatusCode != test.next {
				t.Errorf("the next client is answered %d, want %d", response.StatusCode, test.next)
			}
		})
	}
}

// untilHungUp waits until the server can see that a client is gone.
func (r *rig) untilHungUp(t *testing.T) {
	t.Helper()
	gone := false
	for end := time.Now().Add(20 * time.Second); !gone && time.Now().Before(end); {
		r.conns.forEach(func(c *httpConn) { gone = gone || c.isGone() })
	}
	if !gone {
		t.Error("no client is seen to be gone")
	}
}
