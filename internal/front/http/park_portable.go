//go:build !linux || portable

package http

import "net"

// A poller watches parked connections with one goroutine each.
type poller struct{}

// pollState is what the poller keeps of a connection.
type pollState struct{ readWatch }

func newPoller() (*poller, error) { return new(poller), nil }

func (p *poller) closePoller() {}

// watchConn begins to watch a connection for a client that hangs up, or sends something.
func (p *poller) watchConn(c *parkedConn) error {
	c.watch.startReading(c)
	return nil
}

// awaitData has nothing to do: the goroutine of a connection reports data as well.
func (p *poller) awaitData(*parkedConn) error { return nil }

// unwatchConn stops watching a connection. It must be called before the connection is closed.
func (p *poller) unwatchConn(c *parkedConn) { c.watch.stopReading(c) }

// hasTooMuchUnread is false: of what comes while a request waits one byte is read.
func hasTooMuchUnread(net.Conn) bool { return false }

// writeNow writes nothing, so that the caller starts a goroutine which may block.
func (p *parkedConn) writeNow([]byte) (sent int, err error) { return 0, nil }
