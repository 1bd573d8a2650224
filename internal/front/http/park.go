package http

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// A parkedConn is a connection that was taken away from the HTTP server while its request waits. On Linux it
// costs neither a goroutine nor the HTTP server's buffers (park_linux.go). On other systems, and with the
// build tag portable, it costs one goroutine (park_portable.go).
//
//	     HTTP server
//	          |
//	          | parkConn
//	          v        answer is written
//	       waiting ------------------------> idle
//	        |   |                            |  |
//	client  |   | answer is written,         |  | client hangs up,
//	hangs   |   | and the next request       |  | IdleTimeout,
//	up      |   | was read ahead             |  | or Shutdown
//	        |   |                            |  |
//	        |   `---------.   .--------------'  |
//	        |             v   v  next request   |
//	        |          handed back   begins     |
//	        |               |                   |
//	        v               v                   v
//	     closed        HTTP server           closed
//
// While it is waiting, waiter is set. While it is idle, waiter is nil and idleTimer runs. handedBack and
// closed are final, and the first of them decides which of them closes the connection.
type parkedConn struct {
	*pacedConn
	watch pollState // what the system needs to watch it

	mu         sync.Mutex
	readAhead  []byte  // the start of the next request, read already
	charged    int     // bytes of readAhead that were taken from the budget
	waiter     *waiter // its onHangup is called once, if the client hangs up while it waits; nil once idle
	ready      bool    // to be parked: readAhead is there
	reported   bool    // the poller has reported what is still in the socket
	hungUp     bool    // the poller has reported that the client hung up
	closed     bool
	handedBack bool // the HTTP server has the connection again
	idleTimer  *time.Timer
}

// keepUnread keeps what the HTTP library has read ahead, and makes the connection ready: the library closes
// it next, and Close parks it then. conn is the connection as it was accepted, or as it was handed back after
// an earlier wait; hijacked is the library's view of it, which still has the read buffer. If this fails, the
// connection is closed.
func (p *parkedConn) keepUnread(conn, hijacked net.Conn) {
	// Waiting has no timeout except the request's own. Before the look at the buffer: a check that comes
	// behind it would leave a deadline for the next request.
	p.stopTimer()
	// The library's buffer is used again. What it holds of pipelined requests must be kept until the answer
	// is written, and counts, because a client chooses how much that is.
	rest, err := readBuffered(conn, hijacked)
	if err != nil {
		return
	}
	if !p.server.config.Budget.Take(len(rest)) {
		_, _ = io.WriteString(conn, tooManyBytes)
		return
	}
	p.readAhead, p.charged, p.ready = rest, len(rest), true
}

// parkConn parks a connection. From then on onHangup of its waiter is called if the client hangs up before
// the answer, possibly before parkConn returns. On an error the connection is closed without that call.
func (s *Server) parkConn(p *parkedConn) error {
	// In the set before it is watched: a hang-up that is seen at once removes it again.
	s.parkedConns.addConn(p)
	err := s.poller.watchConn(p)
	if err != nil {
		p.closeParked()
	}
	return err
}

// tooManyBytes is the answer to a request that has to wait when the budget has no room for the bytes sent
// behind it.
const tooManyBytes = "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n" +
	"Content-Type: text/plain; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n" +
	"Content-Length: 57\r\n\r\nserver buffers as many bytes as it allows; try again soon"

// readBuffered returns what the HTTP server has read ahead. It does not wait for more: once the deadline has
// passed, only the bytes in the buffer are returned. The result has no spare capacity.
func readBuffered(conn, hijacked net.Conn) ([]byte, error) {
	if err := conn.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return nil, fmt.Errorf("parking a connection: %w", err)
	}
	server := pacedConnOf(conn).server
	// Borrowed: an array here would be allocated for each connection, as Read may keep it.
	chunk := server.bodyPool.Get().(*[firstBufferBytes]byte)
	defer server.bodyPool.Put(chunk)
	var rest []byte
	for {
		n, err := hijacked.Read(chunk[:])
		rest = append(rest, chunk[:n]...)
		// The deadline means that the buffer is empty. Malformed bytes behind this request do not spoil it:
		// they are refused after its answer, when the connection is read again.
		if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, errMalformed) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("parking a connection: %w", err)
		}
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return nil, fmt.Errorf("parking a connection: %w", err)
	}
	return bytes.Clone(rest), nil
}

// Read implements [net.Conn] for the HTTP server, once the connection is handed back: first what was read
// ahead, then what comes.
func (p *parkedConn) Read(b []byte) (int, error) {
	p.mu.Lock()
	n := copy(b, p.readAhead)
	p.readAhead = p.readAhead[n:]
	// The bytes leave the budget when the last of them is read: the slice keeps its array until then.
	if len(p.readAhead) == 0 {
		p.readAhead = nil
		p.releaseBudget()
	}
	p.mu.Unlock()
	if n > 0 {
		return n, nil
	}
	return p.pacedConn.Read(b)
}

// releaseBudget gives the bytes of readAhead back to the budget. The caller holds the lock.
func (p *parkedConn) releaseBudget() {
	p.server.config.Budget.Release(p.charged)
	p.charged = 0
}

// Close implements [net.Conn]. The HTTP server calls it once the connection is handed back.
func (p *parkedConn) Close() error {
	p.mu.Lock()
	p.readAhead = nil
	p.releaseBudget()
	p.mu.Unlock()
	return p.pacedConn.Close()
}

// awaitRequest makes the connection idle after its answer: it goes back to the HTTP server when its client
// sends something, and is closed when that takes longer than IdleTimeout.
func (p *parkedConn) awaitRequest() {
	p.mu.Lock()
	// From here on the request is answered, so a hang-up cancels nothing any more.
	p.waiter = nil
	// The poller may have seen the next request already.
	if p.closed || p.handedBack {
		p.mu.Unlock()
		return
	}
	// The poller reports only what is still in the socket. A request that was read ahead is not there, so
	// the connection would wait for it until the idle timeout.
	if len(p.readAhead) > 0 {
		p.mu.Unlock()
		p.handBack()
		return
	}
	p.idleTimer = time.AfterFunc(p.server.config.IdleTimeout, p.closeParked)
	reported, hungUp := p.reported, p.hungUp
	p.mu.Unlock()
	// drainParked may have looked before the timer was set and taken this connection for a waiting one. So
	// it looks for itself; a request that has arrived is still served.
	stopped := p.server.stopping.Load() && !peer.Ask(p.pacedConn, peer.Unread)
	// What was reported before is not reported again by itself. Mostly nothing was.
	if stopped || hungUp || reported && p.server.poller.awaitData(p) != nil {
		p.closeParked()
	}
}

// maxUnread is how many bytes may come behind a request that waits, beside those that were read with it. What
// comes is left in the socket. When that is full, a hang-up behind it would not be seen: the system takes the
// first 64 KiB or so.
const maxUnread = 32 << 10

// hidesHangup reports whether a client has sent so much behind its request that its hang-up may be unseen.
func hidesHangup(conn net.Conn) bool {
	c := pacedConnOf(conn)
	return c != nil && hasTooMuchUnread(c.Conn)
}

// handleEvent is called by the poller when the client hung up or sent something.
func (p *parkedConn) handleEvent(hungUp bool) {
	p.mu.Lock()
	hungUp = hungUp || p.readRecords()
	// It is taken under the lock: a client that hangs up is reported once. The connection is idle only once
	// the timer runs: until then the answer is still being written, and awaitRequest has what came reported
	// again.
	w, idle := p.waiter, p.idleTimer != nil
	// Noted before onHangup is called, too: a waiter that has its decision answers all the same.
	p.reported, p.hungUp = true, p.hungUp || hungUp
	if !idle && (w == nil || !hungUp && !p.hasTooMuchBehind()) {
		p.mu.Unlock()
		return
	}
	p.waiter = nil
	p.mu.Unlock()
	switch {
	case w != nil:
		// It closes the connection itself, through closeParked, and takes the request out of line first.
		w.onHangup()
	case hungUp:
		p.closeParked()
	default:
		p.handBack()
	}
}

// leavePark takes the connection out of its park and sets how it left, closed or handedBack. It reports false
// if it had left already.
func (p *parkedConn) leavePark(how *bool) bool {
	p.mu.Lock()
	if p.closed || p.handedBack {
		p.mu.Unlock()
		return false
	}
	// Set under the lock, so that only one of several callers goes on.
	*how = true
	if p.idleTimer != nil {
		p.idleTimer.Stop()
	}
	p.mu.Unlock()
	// The poller goes first: it must not report bytes that the HTTP server is about to read.
	p.server.poller.unwatchConn(p)
	p.server.parkedConns.removeConn(p)
	return true
}

// handBack gives the connection back to the HTTP server, in a new goroutine. It does nothing if the
// connection is closed or was handed back already.
func (p *parkedConn) handBack() {
	if !p.leavePark(&p.handedBack) {
		return
	}
	if t := p.secure(); t != nil {
		t.Unpark()
	}
	// Its next request has begun, so it counts as receiving and not as idle.
	p.startTimer(receiving)
	go p.server.http.ServeConn(p) //nolint:errcheck // it ends when the connection does, and says why there
}

// closeParked closes a connection unless it was handed back: then the HTTP server closes it.
func (p *parkedConn) closeParked() {
	if !p.leavePark(&p.closed) {
		return
	}
	// Only now: a closed descriptor may be given to a new connection at once, and removing it from the epoll
	// would then hit that one.
	_ = p.Close()
}

// drainParked closes the parked connections that are idle and waits until the others have been answered. When
// ctx ends first, it closes those too.
func (s *Server) drainParked(ctx context.Context) {
	// A client whose request has arrived unread cannot know whether it took effect, so it is served.
	s.parkedConns.forEach(func(p *parkedConn) {
		p.mu.Lock()
		idle := p.waiter == nil && p.idleTimer != nil
		p.mu.Unlock()
		if idle && !peer.Ask(p.pacedConn, peer.Unread) {
			p.closeParked()
		}
	})
	// The connections that are left wait for an answer.
	if !s.parkedConns.awaitEmpty(ctx) {
		s.parkedConns.forEach((*parkedConn).closeParked)
	}
}

// A readWatch watches a parked connection by a goroutine that waits for a byte or for the end. It is for
// systems without epoll, and for connections in memory.
type readWatch struct {
	stopped chan struct{} // closed when the goroutine no longer reads; nil if there never was one
}

// startReading begins to watch a connection.
func (r *readWatch) startReading(p *parkedConn) {
	r.stopped = make(chan struct{})
	go p.awaitByte(r.stopped) // ends with the first byte, the connection, or stopReading
}

// awaitByte reads one byte of a parked connection. It is the watching itself where there is no epoll.
func (p *parkedConn) awaitByte(ended chan<- struct{}) {
	var b [1]byte
	n, err := p.pacedConn.Read(b[:])
	// The byte belongs to the next request. While this one waits, it stays in readAhead and a hang-up behind
	// it is not seen any more; once idle, the connection goes back to the HTTP server with it.
	p.mu.Lock()
	p.readAhead = append(p.readAhead, b[:n]...)
	idle := p.waiter == nil
	p.mu.Unlock()
	// Before the event: handing back and closing wait for this goroutine in stopReading.
	close(ended)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // stopReading
	case errors.Is(err, errMalformed): // it is refused after the answer to this request
	case err != nil:
		p.handleEvent(true)
	case idle:
		p.handleEvent(false)
	}
}

// stopReading ends the watching and waits for its goroutine. It must be called before the connection is
// closed, and before the HTTP server reads from it.
func (r *readWatch) stopReading(p *parkedConn) {
	if r.stopped == nil {
		return
	}
	// A deadline in the past interrupts the read without losing a byte.
	if err := p.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return // it is closed
	}
	<-r.stopped
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		p.server.log.Debug(fmt.Sprintf("unparking a connection: %v", err))
	}
}
