package http

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

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
	n, err := p.Conn.Read(b[:])
	// The byte belongs to the next request. While this one waits, it stays in readAhead and a hang-up behind
	// it is not seen any more; once idle, the connection goes back to the HTTP server with it.
	p.mu.Lock()
	p.readAhead = append(p.readAhead, b[:n]...)
	idle := p.onGone == nil
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

// memoryClientGone reports whether the client of a connection in memory is gone. known is false for a socket.
func (p *parkedConn) memoryClientGone() (gone, known bool) {
	c := pacedConnOf(p.Conn)
	if c == nil {
		return false, false
	}
	w, known := c.Conn.(peer.Watched)
	return known && w.Gone(), known
}
