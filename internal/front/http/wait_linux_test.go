package http

import (
	"bytes"
	"net"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	dto "github.com/prometheus/client_model/go"
)

// A client that sends much behind a request that waits, and leaves, is not waited for: the system tells of a
// hang-up only when what was sent before has been taken, which is not while the request waits.
func TestBytesBehindAWaiterAreBounded(t *testing.T) {
	r := newRig(t, Config{})
	c, other := r.dial(t), r.dial(t)
	other.send("/lock/l/acquire?key=k")
	other.want(200, "k")
	c.send("/lock/l/acquire?key=left&maxwait=60000")
	r.waiting(t, 1)
	// Half of the limit is left alone, also when it comes in pieces.
	for range 2 {
		if _, err := c.Write(bytes.Repeat([]byte("\r\n"), maxBehind/8)); err != nil {
			t.Fatal(err)
		}
	}
	other.send("/lock/l/renew?key=k")
	other.want(204, "")
	r.waiting(t, 1)
	// More than the system takes: the end that Close sends stays behind it.
	if err := c.SetWriteDeadline(time.Now().Add(time.Second)); err != nil {
		t.Fatal(err)
	}
	_, _ = c.Write(bytes.Repeat([]byte("\r\n"), 4<<20))
	_ = c.Close()
	r.waiting(t, 0)
	other.send("/lock/l/release?key=k", "/lock/l/acquire?key=next")
	other.want(204, "")
	other.want(200, "next")
}

// The same holds for what comes together with the request.
func TestBytesBehindAShortWait(t *testing.T) {
	r := newRig(t, Config{})
	other := r.dial(t)
	for i := range 20 {
		other.send("/lock/l/acquire?key=k")
		other.want(200, "k")
		c := r.dial(t)
		// All of it is the system's at once, so that Close is at once, too.
		if err := c.Conn.(*net.TCPConn).SetWriteBuffer(1 << 20); err != nil {
			t.Fatal(err)
		}
		c.send("/lock/l/acquire?key=left&maxwait=60000")
		if _, err := c.Write(bytes.Repeat([]byte("\r\n"), 256<<10)); err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
		// On a busy machine it may be parked and given up before this looks.
		await.True(t, "it waits, or has waited", func() bool {
			var hangups dto.Metric
			if err := r.metrics.Hangups.Write(&hangups); err != nil {
				t.Fatal(err)
			}
			return r.gate.Waiting() == 1 || hangups.GetCounter().GetValue() > float64(i)
		})
		other.send("/lock/l/release?key=k")
		other.send("/lock/l/acquire?key=next&maxwait=9000", "/lock/l/release?key=next")
		other.want(204, "")
		other.want(200, "next")
		other.want(204, "")
	}
}

// Requests that come between the decision and its answer are answered behind it, also if they are more than
// may come behind a request that waits.
func TestManyRequestsBeforeTheAnswerIsWritten(t *testing.T) {
	c, release := newRig(t, Config{}).decided(t)
	paths := make([]string, maxBehind/32)
	for i := range paths {
		paths[i] = "/v1/event/e/wait"
	}
	c.send(paths...)
	release()
	for range len(paths) + 1 {
		c.want(204, "")
	}
}
