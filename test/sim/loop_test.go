package sim_test

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/panjf2000/gnet/v2"
)

// A loop does for the handler of a front what gnet's event loops do: one thing after the other, for all of
// its connections.
type loop struct {
	gnet.EventLoop
	handler gnet.EventHandler

	mu    sync.Mutex
	more  sync.Cond
	work  []func()
	ended bool
}

func newLoop(handler gnet.EventHandler) *loop {
	l := &loop{handler: handler}
	l.more.L = &l.mu
	return l
}

// run works until the loop is closed.
func (l *loop) run() {
	for {
		l.mu.Lock()
		for len(l.work) == 0 && !l.ended {
			l.more.Wait()
		}
		if len(l.work) == 0 {
			l.mu.Unlock()
			return
		}
		work := l.work[0]
		l.work = l.work[1:]
		l.mu.Unlock()
		work()
	}
}

func (l *loop) do(work func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.work = append(l.work, work)
	l.more.Signal()
}

func (l *loop) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.more.Signal()
}

// Execute implements gnet.EventLoop.
func (l *loop) Execute(ctx context.Context, runnable gnet.Runnable) error {
	l.do(func() { _ = runnable.Run(ctx) })
	return nil
}

// A looped connection is one of a loop. It has those methods of gnet's that the handler calls.
type looped struct {
	gnet.Conn
	socket *socket
	loop   *loop
	about  any
	data   []byte // that has arrived
	closed bool
}

// serve serves a connection until its client has gone.
func (l *loop) serve(s *socket) {
	c := &looped{socket: s, loop: l}
	l.do(func() {
		if _, action := l.handler.OnOpen(c); action == gnet.Close {
			c.end(nil)
		}
	})
	buffer := make([]byte, 4096)
	for {
		n, err := s.Read(buffer)
		data := append([]byte(nil), buffer[:n]...)
		l.do(func() {
			if c.data = append(c.data, data...); len(data) > 0 {
				c.traffic()
			}
			if err != nil {
				c.end(err)
			}
		})
		if err != nil {
			return
		}
	}
}

func (c *looped) traffic() {
	if !c.closed && c.loop.handler.OnTraffic(c) == gnet.Close {
		c.end(nil)
	}
}

// end closes the connection, and says so.
func (c *looped) end(why error) {
	if c.closed {
		return
	}
	c.closed = true
	_ = c.socket.Close()
	c.loop.handler.OnClose(c, why)
}

func (c *looped) Context() any              { return c.about }
func (c *looped) SetContext(about any)      { c.about = about }
func (c *looped) EventLoop() gnet.EventLoop { return c.loop }
func (c *looped) InboundBuffered() int      { return len(c.data) }
func (c *looped) OutboundBuffered() int     { return 0 }
func (c *looped) Fd() int                   { return -1 }
func (c *looped) Dup() (int, error)         { return -1, syscall.ENOTSUP }

func (c *looped) Write(b []byte) (int, error) { return c.socket.Write(b) }

func (c *looped) Peek(n int) ([]byte, error) { return c.data[:n], nil }

func (c *looped) Discard(n int) (int, error) {
	if n < 0 {
		n = len(c.data)
	}
	c.data = c.data[n:]
	return n, nil
}

func (c *looped) Wake(gnet.AsyncCallback) error {
	c.loop.do(c.traffic)
	return nil
}

func (c *looped) Close() error {
	c.loop.do(func() { c.end(nil) })
	return nil
}

func (c *looped) Gone() bool           { return c.socket.Gone() }
func (c *looped) LocalAddr() net.Addr  { return address{} }
func (c *looped) RemoteAddr() net.Addr { return address{} }
