//go:build !linux || portable

package bouncer

import (
	"errors"
	"fmt"
	"os"
	"time"
)

// A poller watches parked connections by one goroutine each, which waits for a byte or for the end.
type poller struct{}

// watch is what the poller knows of a connection.
type watch struct {
	ended chan struct{} // closed when its goroutine no longer reads; nil when it never did
}

func newPoller() (*poller, error) { return new(poller), nil }

func (p *poller) close() {}

// add begins to watch a connection for a client that hangs up, or sends something.
func (p *poller) add(c *parked) error {
	c.watch.ended = make(chan struct{})
	go c.await() // ends with the first byte, the connection, or remove
	return nil
}

func (p *parked) await() {
	var b [1]byte
	n, err := p.Conn.Read(b[:])
	p.mu.Lock()
	p.rest = append(p.rest, b[:n]...)
	idle := p.gone == nil
	p.mu.Unlock()
	close(p.watch.ended)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // remove
	case err != nil:
		p.event(true)
	case idle:
		p.event(false)
	}
}

// awaitData has nothing to do: await tells of data as well.
func (p *poller) awaitData(*parked) error { return nil }

// remove stops watching a connection. It must be called before the connection is closed.
func (p *poller) remove(c *parked) {
	if c.watch.ended == nil {
		return
	}
	if err := c.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return // it is closed
	}
	<-c.watch.ended
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		c.server.log.Debug(fmt.Sprintf("unparking a connection: %v", err))
	}
}

// hungUp cannot be known at an instant here; await tells of it.
func (p *parked) hungUp() bool { return false }

// writeNow leaves the sending to a goroutine.
func (p *parked) writeNow([]byte) (sent int, err error) { return 0, nil }
