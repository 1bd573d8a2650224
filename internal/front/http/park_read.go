package http

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse/internal/peer"
)

// Reading watches a parked connection by a goroutine that waits for a byte or for the end. It is for systems
// without epoll, and for connections in memory.
type reading struct {
	ended chan struct{} // closed when the goroutine no longer reads; nil when there never was one
}

// read begins to watch a connection.
func (r *reading) read(p *parked) {
	r.ended = make(chan struct{})
	go p.await(r.ended) // ends with the first byte, the connection, or stop
}

func (p *parked) await(ended chan<- struct{}) {
	var b [1]byte
	n, err := p.Conn.Read(b[:])
	p.mu.Lock()
	p.rest = append(p.rest, b[:n]...)
	idle := p.gone == nil
	p.mu.Unlock()
	close(ended)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded): // stop
	case errors.Is(err, errMalformed): // it is refused after the answer to this request
	case err != nil:
		p.event(true)
	case idle:
		p.event(false)
	}
}

// stop ends the watching. It must be called before the connection is closed.
func (r *reading) stop(p *parked) {
	if r.ended == nil {
		return
	}
	if err := p.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return // it is closed
	}
	<-r.ended
	if err := p.SetReadDeadline(time.Time{}); err != nil {
		p.server.log.Debug(fmt.Sprintf("unparking a connection: %v", err))
	}
}

// watched reports whether the client of a connection that knows it is gone. known is false for a socket.
func (p *parked) watched() (gone, known bool) {
	c := paced(p.Conn)
	if c == nil {
		return false, false
	}
	w, known := c.Conn.(peer.Watched)
	return known && w.Gone(), known
}
