package http

import (
	"errors"
	"io"
	"net"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// decided is a client whose wait has ended, and whose answer is held back until release is called.
func (r *rig) decided(t *testing.T) (c *client, release func()) {
	t.Helper()
	c = r.dial(t)
	c.send("/v1/event/e/wait?maxwait=60000")
	r.waiting(t, 1)
	begun, held := make(chan struct{}), make(chan struct{})
	var conn *httpConn
	r.conns.forEach(func(one *httpConn) { conn = one })
	conn.addTask(func() { close(begun); <-held })
	<-begun
	// Not by a client, as its loop may be the one that is held.
	if _, err := r.gate.Do(t.Context(), gatehouse.Key{Kind: gatehouse.Event, Name: "e"},
		gatehouse.Command{Op: gatehouse.OpSend}); err != nil {
		t.Fatal(err)
	}
	await.True(t, "its answer is the loop's task", func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return len(conn.tasks) == 1
	})
	return c, func() { close(held) }
}

// A client may end its half of the connection between the decision and its answer. It gets the answer, and
// the connection ends behind it: the system does not tell of the end by itself a second time.
func TestHangupBeforeTheAnswerIsWritten(t *testing.T) {
	c, release := newRig(t, Config{}).decided(t)
	if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	release()
	c.want(204, "")
	if _, err := c.reader.ReadByte(); !errors.Is(err, io.EOF) {
		t.Errorf("behind the answer: %v, want the end", err)
	}
}
