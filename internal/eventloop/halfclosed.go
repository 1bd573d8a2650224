package eventloop

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
)

// A HalfClosed connection goes on after gnet has closed it, as gnet does when a client has ended what it
// sends. What has arrived is answered then, over a descriptor of its own.
type HalfClosed struct {
	gnet.Conn // which is closed: what the handler still calls is below
	loop      gnet.EventLoop
	handler   gnet.EventHandler
	context   any
	rest      []byte // that had come, and was not discarded
	fd        int    // -1 if there was no descriptor left: then nothing can be written
	closed    bool
}

// NewHalfClosed returns what the handler has in place of a connection that is being closed: it is called in
// OnClose. The handler is told of it as of any other. All that has arrived is in it, also what gnet has not
// read because it found in a write that the client is gone.
func NewHalfClosed(conn gnet.Conn, handler gnet.EventHandler) *HalfClosed {
	c := &HalfClosed{Conn: conn, loop: conn.EventLoop(), handler: handler, context: conn.Context(), fd: -1}
	if n := conn.InboundBuffered(); n > 0 {
		came, _ := conn.Peek(n)
		c.rest = bytes.Clone(came)
	}
	c.rest = appendUnread(c.rest, conn.Fd())
	if fd, err := conn.Dup(); err == nil {
		c.fd = fd
	}
	return c
}

// Context implements [gnet.Conn].
func (c *HalfClosed) Context() any { return c.context }

// EventLoop implements [gnet.Conn].
func (c *HalfClosed) EventLoop() gnet.EventLoop { return c.loop }

// Fd implements [gnet.Conn].
func (c *HalfClosed) Fd() int { return c.fd }

// Gone implements peer.Watched: nobody waits for a client that has ended what it sends.
func (c *HalfClosed) Gone() bool { return true }

// InboundBuffered implements [gnet.Conn].
func (c *HalfClosed) InboundBuffered() int { return len(c.rest) }

// Peek implements [gnet.Conn].
func (c *HalfClosed) Peek(n int) ([]byte, error) {
	if n > len(c.rest) {
		return nil, io.ErrShortBuffer
	}
	return c.rest[:n], nil
}

// Discard implements [gnet.Conn].
func (c *HalfClosed) Discard(n int) (int, error) {
	n = min(n, len(c.rest))
	c.rest = c.rest[n:]
	return n, nil
}

// OutboundBuffered implements [gnet.Conn].
func (c *HalfClosed) OutboundBuffered() int { return 0 }

// Write implements [gnet.Conn]. It does not wait for a client that does not take its answers.
func (c *HalfClosed) Write(b []byte) (n int, err error) {
	if c.fd < 0 {
		return 0, net.ErrClosed
	}
	n, err = WriteNow(c, b)
	if err == nil && n < len(b) {
		err = io.ErrShortWrite
	}
	return n, err
}

// Dup implements [gnet.Conn].
func (c *HalfClosed) Dup() (int, error) {
	if c.fd < 0 {
		return -1, net.ErrClosed
	}
	return duplicate(c.fd)
}

// Wake implements [gnet.Conn].
func (c *HalfClosed) Wake(gnet.AsyncCallback) error {
	return c.execute(func() {
		if !c.closed && c.handler.OnTraffic(c) == gnet.Close {
			c.close()
		}
	})
}

// Close implements [gnet.Conn].
func (c *HalfClosed) Close() error { return c.execute(c.close) }

// execute has the loop call do soon.
func (c *HalfClosed) execute(do func()) error {
	return c.loop.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		do()
		return nil
	}))
}

// close ends the connection, and tells the handler.
func (c *HalfClosed) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.handler.OnClose(c, nil)
	if c.fd >= 0 {
		_ = os.NewFile(uintptr(c.fd), "").Close()
	}
}
