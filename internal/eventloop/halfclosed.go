package eventloop

import (
	"context"
	"net"
	"os"

	"github.com/panjf2000/gnet/v2"
)

// A halfClosed connection goes on after gnet has closed it, as gnet does when a client has ended what it
// sends. What has arrived is answered then, over a descriptor of its own.
type halfClosed struct {
	gnet.Conn // which is closed: what the handler still calls is below
	loop      gnet.EventLoop
	handler   gnet.EventHandler
	context   any
	fd        int // -1 if there was no descriptor left: then nothing can be written
	closed    bool
}

// GoOn returns what the handler has in place of a connection that is being closed: it is called in OnClose.
// The handler is told of it as of any other.
func GoOn(conn gnet.Conn, handler gnet.EventHandler) gnet.Conn {
	c := &halfClosed{Conn: conn, loop: conn.EventLoop(), handler: handler, context: conn.Context(), fd: -1}
	if fd, err := conn.Dup(); err == nil {
		c.fd = fd
	}
	return c
}

// Context implements [gnet.Conn].
func (c *halfClosed) Context() any { return c.context }

// EventLoop implements [gnet.Conn].
func (c *halfClosed) EventLoop() gnet.EventLoop { return c.loop }

// Fd implements [gnet.Conn].
func (c *halfClosed) Fd() int { return c.fd }

// Gone implements peer.Watched: nobody waits for a client that has ended what it sends.
func (c *halfClosed) Gone() bool { return true }

// InboundBuffered implements [gnet.Conn]. All that has come was read before.
func (c *halfClosed) InboundBuffered() int { return 0 }

// OutboundBuffered implements [gnet.Conn].
func (c *halfClosed) OutboundBuffered() int { return 0 }

// Write implements [gnet.Conn]. WriteNow calls it where there is no descriptor.
func (c *halfClosed) Write([]byte) (int, error) { return 0, net.ErrClosed }

// Dup implements [gnet.Conn].
func (c *halfClosed) Dup() (int, error) {
	if c.fd < 0 {
		return -1, net.ErrClosed
	}
	return duplicate(c.fd)
}

// Wake implements [gnet.Conn].
func (c *halfClosed) Wake(gnet.AsyncCallback) error {
	return c.execute(func() {
		if !c.closed && c.handler.OnTraffic(c) == gnet.Close {
			c.close()
		}
	})
}

// Close implements [gnet.Conn].
func (c *halfClosed) Close() error { return c.execute(c.close) }

// execute has the loop call do soon.
func (c *halfClosed) execute(do func()) error {
	return c.loop.Execute(context.Background(), gnet.RunnableFunc(func(context.Context) error {
		do()
		return nil
	}))
}

// close ends the connection, and tells the handler.
func (c *halfClosed) close() {
	if c.closed {
		return
	}
	c.closed = true
	c.handler.OnClose(c, nil)
	if c.fd >= 0 {
		_ = os.NewFile(uintptr(c.fd), "").Close()
	}
}
