//go:build !linux || portable

package http

// A poller watches parked connections by one goroutine each.
type poller struct{}

// watch is what the poller knows of a connection.
type watch struct{ reading }

func newPoller() (*poller, error) { return new(poller), nil }

func (p *poller) close() {}

// add begins to watch a connection for a client that hangs up, or sends something.
func (p *poller) add(c *parked) error {
	c.watch.read(c)
	return nil
}

// awaitData has nothing to do: the goroutine of a connection tells of data as well.
func (p *poller) awaitData(*parked) error { return nil }

// remove stops watching a connection. It must be called before the connection is closed.
func (p *poller) remove(c *parked) { c.watch.stop(c) }

// hungUp cannot be known of a socket at an instant here; its goroutine tells of it.
func (p *parked) hungUp() bool {
	gone, _ := p.watched()
	return gone
}

// writeNow leaves the sending to a goroutine.
func (p *parked) writeNow([]byte) (sent int, err error) { return 0, nil }
