package http

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A pacedConn is cut when its client is too slow. Deadlines set for every request cost more than the
// decision does, so instead the connection notes what it is doing, and a timer looks now and then
// whether it is still at the same thing. So a client that is too slow is cut up to half of the read
// timeout late.
type pacedConn struct {
	net.Conn
	server    *Server
	closeOnce sync.Once

	// activity is what the connection is at, in the last two bits, and above them how often that has
	// changed. It is written by whoever serves the connection, and only by that.
	activity atomic.Uint32

	framing   framing // of what was read
	sawEOF    bool    // the client has sent all it will
	loopback  bool    // it came to an address that only this machine reaches
	knownHost string  // the last Host that was found right

	// charged is how much of the budget the answer under way has.
	charged atomic.Int64

	// onGone is called when the connection is closed while a request waits that is not parked yet.
	onGone atomic.Pointer[func()]

	mu           sync.Mutex
	timer        *time.Timer // nil while nobody is to be cut, because the answer is what takes long
	lastActivity uint32      // doing at the last look
	checks       int         // how many looks ago it was first seen
	unsentUndos  []func()    // take back the holds whose answers have not begun to leave
}

// What a connection is doing.
const (
	fresh     = iota // nothing has come yet
	receiving        // a request
	idle             // between two requests
	sending          // an answer

	activityBits = 2
)

// continueLine is the last of what is written before the body of a request with Expect: 100-continue.
const continueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// pacedConnOf returns the paced connection under one that may have been parked.
func pacedConnOf(conn net.Conn) *pacedConn {
	if p, ok := conn.(*parkedConn); ok {
		conn = p.Conn
	}
	c, _ := conn.(*pacedConn)
	return c
}

// SyscallConn implements [syscall.Conn] for a connection that has a descriptor.
func (c *pacedConn) SyscallConn() (syscall.RawConn, error) {
	if sc, ok := c.Conn.(syscall.Conn); ok {
		return sc.SyscallConn()
	}
	return nil, errNoDescriptor
}

// errNoDescriptor is about a connection in memory.
var errNoDescriptor = errors.New("connection has no file descriptor")

// setActivity notes that the connection begins to do something else.
func (c *pacedConn) setActivity(what uint32) {
	c.activity.Store((c.activity.Load()>>activityBits+1)<<activityBits | what)
}

func activityOf(doing uint32) uint32 { return doing & (1<<activityBits - 1) }

// startTimer begins to look at the connection, and at what it does.
func (c *pacedConn) startTimer(doing uint32) {
	c.setActivity(doing)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.timer = time.AfterFunc(c.checkInterval(), c.checkPace)
}

// stopTimer ends the looking, while the connection is parked.
func (c *pacedConn) stopTimer() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

func (c *pacedConn) checkInterval() time.Duration { return max(1, c.server.config.ReadTimeout/4) }

// checkPace cuts the connection if it has been at the same thing for too long.
func (c *pacedConn) checkPace() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer == nil {
		return
	}
	doing := c.activity.Load()
	if doing != c.lastActivity {
		c.lastActivity = doing
		c.checks = 0
	}
	c.checks++
	config := &c.server.config
	allowed := [...]time.Duration{
		fresh: config.ReadTimeout, receiving: config.ReadTimeout,
		idle: config.IdleTimeout, sending: config.WriteTimeout,
	}[activityOf(doing)]
	if time.Duration(c.checks-1)*c.checkInterval() < allowed {
		c.timer.Reset(c.checkInterval())
		return
	}
	c.cutConn(activityOf(doing))
}

// cutConn ends what the connection is doing by a deadline that has passed; whoever does it closes it.
// Where nothing was asked, nothing is answered.
func (c *pacedConn) cutConn(doing uint32) {
	switch doing {
	case sending:
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	default:
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
}

// cutIdle ends the connection if no request is in hand, and none has come that was not read yet: such a one
// is answered, as the last.
func (c *pacedConn) cutIdle() {
	doing := activityOf(c.activity.Load())
	if (doing == fresh || doing == idle) && !peer.Ask(c.Conn, peer.Unread) {
		c.cutConn(doing)
	}
}

// Read implements [net.Conn]. From the first byte on that is not framed as HTTP/1.1 nothing more is
// delivered; a null byte in its place makes the HTTP library refuse the request there, whatever it was
// reading.
func (c *pacedConn) Read(b []byte) (int, error) {
	if c.framing.at == atMalformed {
		return 0, errMalformed
	}
	c.releaseCharged() // answers are, before more is read
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && activityOf(c.activity.Load()) == fresh {
		return 0, io.EOF // where nothing was asked, nothing is answered
	}
	c.sawEOF = c.sawEOF || errors.Is(err, io.EOF)
	if good := c.framing.scanBytes(b[:n]); good < n {
		b[good] = 0
		n = good + 1
	}
	if now := activityOf(c.activity.Load()); n > 0 && (now == idle || now == fresh) {
		c.setActivity(receiving)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *pacedConn) Write(b []byte) (int, error) {
	unsent := c.takeUnsentUndos()
	c.setActivity(sending)
	n, err := c.Conn.Write(b)
	if bytes.HasSuffix(b, []byte(continueLine)) {
		c.setActivity(receiving) // the body, which may take no longer than one that comes unasked
	} else {
		c.setActivity(idle)
		if c.server.stopping.Load() && c.server.listenersClosed() { // Shutdown may have seen it sending
			c.cutIdle()
		}
	}
	if n == 0 {
		c.undoUnsent(unsent)
	} // otherwise the client may have read these answers
	return n, err
}

// takeBackUnsent has a hold taken back if the connection ends before anything more is written to it. What a
// client may have read, it keeps: of answers that leave together, some of which are lost, all count as read.
func takeBackUnsent(conn net.Conn, undo func()) {
	if c := pacedConnOf(conn); c != nil {
		c.mu.Lock()
		c.unsentUndos = append(c.unsentUndos, undo)
		c.mu.Unlock()
	}
}

// takeUnsentUndos returns what takes back the holds whose answers have not left, and forgets it.
func (c *pacedConn) takeUnsentUndos() (unsent []func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	unsent, c.unsentUndos = c.unsentUndos, nil
	return unsent
}

// undoUnsent takes back holds whose answers will not leave.
func (c *pacedConn) undoUnsent(unsent []func()) {
	for _, undo := range unsent {
		c.server.metrics.Hangups.Inc()
		undo()
	}
}

// Close implements [net.Conn].
func (c *pacedConn) Close() error {
	c.closeOnce.Do(func() {
		c.stopTimer()
		c.server.countClosed(c.Conn)
		c.server.pacedConns.Delete(c)
		c.releaseCharged()
		if gone := c.onGone.Swap(nil); gone != nil {
			(*gone)()
		}
	})
	err := c.Conn.Close() // first, so that no answer leaves after its grant was taken back
	c.undoUnsent(c.takeUnsentUndos())
	return err
}
