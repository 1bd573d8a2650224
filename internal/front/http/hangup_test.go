package http

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// decided is a client whose wait has ended, and whose answer is held back until release is called.
func (r *rig) decided(t *testing.T) (c *client, p *parkedConn, release func()) {
	t.Helper()
	c, other := r.dial(t), r.dial(t)
	c.send("/v1/event/e/wait?maxwait=60000")
	await.True(t, "it is parked", func() bool {
		r.parkedConns.forEach(func(one *parkedConn) { p = one })
		return p != nil
	})
	// Answers stay in the queue as long as all writers are busy.
	ws := &r.writers
	ws.mu.Lock()
	ws.busy += ws.maxBusy
	ws.mu.Unlock()
	other.send("/v1/event/e/send")
	other.want(204, "")
	return c, p, func() {
		ws.mu.Lock()
		ws.busy -= ws.maxBusy - 1
		ws.mu.Unlock()
		go ws.writeQueued() // ends when the queue is empty
	}
}

// givenUp waits until the poller has told the waiter of a connection to give up.
func givenUp(t *testing.T, p *parkedConn) {
	t.Helper()
	await.True(t, "it was reported", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.waiter == nil
	})
}

// A client may end its half of the connection between the decision and its answer. It gets the answer, and
// the connection ends behind it: the system does not tell of the end by itself a second time.
func TestHangupBeforeTheAnswerIsWritten(t *testing.T) {
	c, p, release := newRig(t, Config{}).decided(t)
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	givenUp(t, p)
	release()
	c.want(204, "")
	if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the answer: %v, want the end", err)
	}
}
