//go:build !linux || portable

package http

// A poller watches parked connections by one goroutine each.
type poller struct{}

// pollState is what the poller knows of a connection.
type pollState struct{ readWatch }

func newPoller() (*poller, error) { return new(poller), nil }

func (p *poller) closePoller() {}

// watchConn begins to watch a connection for a client that hangs up, or sends something.
func (p *poller) watchConn(c *parkedConn) error {
	c.watch.startReading(c)
	return nil
}

// awaitData has nothing to do: the goroutine of a connection tells of data as well.
func (p *poller) awaitData(*parkedConn) error { return nil }

// unwatchConn stops watching a connection. It must be called before the connection is closed.
func (p *poller) unwatchConn(c *parkedConn) { c.watch.stopReading(c) }

// clientGone cannot be known of a socket at an instant here; its goroutine tells of it.
func (p *parkedConn) clientGone() bool {
	gone, _ := p.memoryClientGone()
	return gone
}

// writeNow leaves the sending to a goroutine.
func (p *parkedConn) writeNow([]byte) (sent int, err error) { return 0, nil }
