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
	"unique"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A pacedConn is a connection that is cut when its client is too slow. A deadline set for every request costs
// more than the decision does. Instead the connection notes what it is doing in one atomic word, and a timer
// looks four times per ReadTimeout whether it is still at the same activity. So a slow client is cut up to
// half of ReadTimeout late.
//
//	         first byte          answer begins
//	fresh -------------> receiving ----------> sending
//	                       ^   ^                |   |
//	            first byte |   |  100 Continue  |   | answer was written
//	                       |   `----------------'   |
//	                      idle <--------------------'
//
// While the connection is parked, it has no timer.
type pacedConn struct {
	net.Conn
	server *Server
	ended  atomic.Bool // it was closed

	// activity holds what the connection is doing in its last two bits, and above them how often that has
	// changed. Only the goroutine that serves the connection writes it.
	activity atomic.Uint32

	framing  framing // follows the bytes that were read
	sawEOF   bool    // the client has ended its sending half
	loopback bool    // it was accepted on a loopback address

	healthAlone bool // it is of ServeHealth
	cut         bool // by cutConn; guarded by paceMu

	knownHost unique.Handle[string] // the last Host that passed checkHost; mostly that of all

	caller atomic.Pointer[access.Caller] // nil if rights are off, or before the first request

	// answerCharged is how many bytes the answer that is being written took from the budget.
	answerCharged atomic.Int64

	// parking is how the connection is to be parked, from the return of its request's handler until the HTTP
	// library closes it.
	parking atomic.Pointer[parkedConn]

	paceMu       sync.Mutex
	timer        *time.Timer // nil while the connection is parked or closed
	unsent       []*waiter   // with the holds whose answers were not written yet
	lastActivity uint32      // activity at the last check
	checks       uint32      // how many checks in a row have seen lastActivity
}

// The activities of a connection.
const (
	fresh     = iota // nothing has come yet
	receiving        // a request
	idle             // between two requests
	sending          // an answer

	activityBits = 2
)

// continueLine ends what is written before the body of a request with Expect: 100-continue.
const continueLine = "HTTP/1.1 100 Continue\r\n\r\n"

// pacedConnOf returns the pacedConn below a connection, which may have been parked; nil if there is none.
func pacedConnOf(conn net.Conn) *pacedConn {
	if p, ok := conn.(*parkedConn); ok {
		return p.pacedConn
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

// errNoDescriptor is the error of a connection in memory.
var errNoDescriptor = errors.New("connection has no file descriptor")

// setActivity notes that an activity begins. The count makes it differ from an earlier one of the same sort,
// so that a busy connection whose checks always find it receiving is not cut.
func (c *pacedConn) setActivity(what uint32) {
	c.activity.Store((c.activity.Load()>>activityBits+1)<<activityBits | what)
}

// activityOf returns the activity without the count.
func activityOf(doing uint32) uint32 { return doing & (1<<activityBits - 1) }

// startTimer begins an activity, and the checks.
func (c *pacedConn) startTimer(doing uint32) {
	c.setActivity(doing)
	c.paceMu.Lock()
	defer c.paceMu.Unlock()
	c.timer = time.AfterFunc(c.checkInterval(), c.checkPace)
}

// stopTimer ends the checks: the connection is parked or closed.
func (c *pacedConn) stopTimer() {
	c.paceMu.Lock()
	defer c.paceMu.Unlock()
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// checkInterval is the time between two checks.
func (c *pacedConn) checkInterval() time.Duration { return max(1, c.server.config.ReadTimeout/4) }

// checkPace cuts the connection if the same activity has lasted for too long. The timer calls it.
func (c *pacedConn) checkPace() {
	c.paceMu.Lock()
	defer c.paceMu.Unlock()
	if c.timer == nil { // stopTimer came too late to keep this call back
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
	// The activity began somewhere before its first check. Only the intervals since then are known to have
	// passed, so the first check does not count: a client is cut late and never early.
	if time.Duration(c.checks-1)*c.checkInterval() < allowed {
		c.timer.Reset(c.checkInterval())
		return
	}
	if c.cut {
		_ = c.SetDeadline(time.Unix(1, 0))
		return
	}
	c.cutConn(activityOf(doing))
	// What ends the reading may be answered, and TLS may answer while it reads: neither may last.
	c.cut = true
	c.timer.Reset(config.WriteTimeout)
}

// cutConn interrupts an activity by a deadline in the past. The goroutine that reads or writes gets an error
// and closes the connection, after an answer with 408 if part of a request was read.
func (c *pacedConn) cutConn(doing uint32) {
	switch doing {
	case sending:
		_ = c.SetWriteDeadline(time.Unix(1, 0))
	// Nothing will be answered. A client that stops while it shakes hands may also not read.
	case fresh:
		_ = c.SetDeadline(time.Unix(1, 0))
	default:
		_ = c.SetReadDeadline(time.Unix(1, 0))
	}
}

// cutIdle ends the connection unless it has a request: one that is being served, or one that has arrived and
// was not read yet. That request is answered, and its answer is the last. Shutdown calls it.
func (c *pacedConn) cutIdle() {
	doing := activityOf(c.activity.Load())
	if (doing == fresh || doing == idle) && !peer.Ask(c.Conn, peer.Unread) {
		c.cutConn(doing)
	}
}

// Read implements [net.Conn]. It delivers the bytes before the first one that is not framed as HTTP/1.1, then
// a null byte, then errMalformed. The HTTP library refuses a null byte wherever it stands, so the client gets
// 400 and the requests in front get their answers (docs/decisions/0029).
func (c *pacedConn) Read(b []byte) (int, error) {
	if c.framing.at == atMalformed {
		return 0, errMalformed
	}
	// The HTTP library reads again only after it has written what it had to.
	c.releaseCharged()
	n, err := c.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) && activityOf(c.activity.Load()) == fresh {
		// Nothing was asked, so nothing is answered: a timeout would make the HTTP library send 408.
		return 0, io.EOF
	}
	c.sawEOF = c.sawEOF || errors.Is(err, io.EOF)
	if good := c.framing.scanBytes(b[:n]); good < n {
		b[good] = 0
		n = good + 1
	}
	// The body of a request, and its headers in pieces, are the same activity: a client that sends one byte
	// at a time gains no time by it.
	if now := activityOf(c.activity.Load()); n > 0 && (now == idle || now == fresh) {
		c.setActivity(receiving)
	}
	return n, err
}

// Write implements [net.Conn].
func (c *pacedConn) Write(b []byte) (int, error) {
	// These belong to the answers in b. A hold granted from now on is for a later write.
	unsent := c.takeUnsent()
	// A hold is not kept back: its client may leave meanwhile.
	if len(unsent) == 0 {
		c.server.gathering.awaitOthers()
	}
	c.setActivity(sending)
	n, err := c.Conn.Write(b)
	if bytes.HasSuffix(b, []byte(continueLine)) {
		// The body comes now, and may take as long as one that is sent without being asked for.
		c.setActivity(receiving)
	} else {
		c.setActivity(idle)
		// Shutdown may have passed by while this connection was sending, and then left it alone.
		if c.server.listenersEnded.Load() {
			c.cutIdle()
		}
	}
	// If any byte was written, the client may have read these answers and relies on its holds.
	if n == 0 {
		c.undoUnsent(unsent)
		return n, err
	}
	for _, w := range unsent {
		w.recycle()
	}
	return n, err
}

// takeBackUnsent arranges for the hold of a waiter to be taken back if the connection ends before anything
// more is written to it. A client keeps the holds of which it may have read. If only a part of several
// answers in one write gets out, all of them count as read. It reports false if the connection cannot tell.
func takeBackUnsent(conn net.Conn, w *waiter) bool {
	c := pacedConnOf(conn)
	if c == nil {
		return false
	}
	c.paceMu.Lock()
	defer c.paceMu.Unlock()
	c.unsent = append(c.unsent, w)
	return true
}

// takeUnsent returns the waiters whose answers were not written yet, and forgets them.
func (c *pacedConn) takeUnsent() (unsent []*waiter) {
	c.paceMu.Lock()
	defer c.paceMu.Unlock()
	unsent, c.unsent = c.unsent, nil
	return unsent
}

// undoUnsent takes back holds whose answers will never be written.
func (c *pacedConn) undoUnsent(unsent []*waiter) {
	for _, w := range unsent {
		c.server.metrics.Hangups.Inc()
		w.cancel()
	}
}

// Close implements [net.Conn]. The HTTP library calls it when it has no more use for the connection, which is
// also how one gets to be parked.
func (c *pacedConn) Close() error {
	p := c.parking.Swap(nil)
	if p != nil && p.ready {
		p.waiter.parkConn(p)
		return nil
	}
	if !c.ended.Swap(true) {
		c.stopTimer()
		c.server.countClosed(c.Conn)
		c.server.pacedConns.removeConn(c)
		c.releaseCharged()
		c.caller.Load().End()
		if p != nil {
			p.waiter.onHangup()
		}
	}
	// Close first: no answer may leave after its grant was taken back.
	err := c.Conn.Close()
	c.undoUnsent(c.takeUnsent())
	return err
}
