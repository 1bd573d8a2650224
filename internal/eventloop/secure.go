package eventloop

import (
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/panjf2000/gnet/v2"
)

// A Secure is a connection of an event loop whose bytes are records of TLS. A front has it in place of the
// loop's, and does not know the difference.
type Secure struct {
	gnet.Conn
	tls     *tlsconn.Connection
	records *recordSocket

	plain []byte // what has come, decrypted: in the loop's room, where nothing is left after a round
	begun bool   // what came behind the handshake was looked at
	ended bool   // the client sends no more, or what is no record

	queued int64          // bytes that were written
	unsent []writtenChunk // the oldest first
}

// A writtenChunk is a part of what was written, in records.
type writtenChunk struct {
	begin, end           int64 // of its records
	plainBegin, plainEnd int64 // of what is in them
}

// NewSecure returns the connection of an event loop that shook hands before.
func NewSecure(c gnet.Conn, secure *tlsconn.Connection) *Secure {
	s := &Secure{Conn: c, tls: secure, records: &recordSocket{conn: c}}
	secure.Attach(s.records)
	return s
}

// Receive decrypts what has come, into room that all connections of a loop share.
func (c *Secure) Receive(room *[]byte) {
	// At the first look something may lie within TLS, which has read on behind the handshake.
	if c.begun && c.records.conn.InboundBuffered() == 0 {
		return
	}
	c.begun = true
	const least = 1 << 10 // room for each read
	data := (*room)[:0]
	data = append(data, c.plain...) // nothing, unless a round was broken off
	for !c.ended {
		if cap(data)-len(data) < least {
			data = append(make([]byte, 0, 2*cap(data)+ReadSize), data...)
		}
		n, err := c.tls.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if errors.Is(err, os.ErrDeadlineExceeded) { // no whole record is left
			break
		}
		c.ended = err != nil
	}
	// What comes behind the end is read by nobody, and the loop would keep all of it.
	if n := c.records.conn.InboundBuffered(); c.ended && n > 0 {
		_, _ = c.records.conn.Discard(n)
	}
	c.plain = data
	// One client's much must not keep its room for as long as the loop runs.
	*room = data
	if cap(data) > 4*ReadSize {
		*room = nil
	}
}

// MoveTo has the records go over another connection from now on.
func (c *Secure) MoveTo(conn gnet.Conn) { c.records.conn = conn }

// OutboundBuffered implements gnet.Writer.
func (c *Secure) OutboundBuffered() int { return c.records.conn.OutboundBuffered() }

// InboundBuffered implements gnet.Reader.
func (c *Secure) InboundBuffered() int { return len(c.plain) }

// Peek implements gnet.Reader.
func (c *Secure) Peek(n int) ([]byte, error) {
	if n > len(c.plain) {
		return nil, io.ErrShortBuffer
	}
	return c.plain[:n], nil
}

// Discard implements gnet.Reader.
func (c *Secure) Discard(n int) (int, error) {
	n = min(n, len(c.plain))
	c.plain = c.plain[n:]
	return n, nil
}

// chunkSize is how much is written as one chunk. It is a record at most.
const chunkSize = 16 << 10

// Write implements gnet.Writer.
func (c *Secure) Write(b []byte) (written int, err error) {
	for len(b) > 0 {
		n := min(len(b), chunkSize)
		// What was sent is known in bytes of records, and asked for in bytes of answers: each chunk notes
		// both.
		begin := c.records.written
		if _, err := c.tls.Write(b[:n]); err != nil {
			return written, err
		}
		written, b = written+n, b[n:]
		plainBegin := c.queued
		c.queued += int64(n)
		c.noteChunk(begin, plainBegin)
	}
	return written, nil
}

// noteChunk notes what was written from there on, unless all of it is sent.
func (c *Secure) noteChunk(begin, plainBegin int64) {
	sent := c.records.sentBytes()
	if sent == c.records.written {
		c.unsent = nil
		return
	}
	// Small ones behind each other, of which nothing is sent yet, are one: there may be many.
	if i := len(c.unsent) - 1; i >= 0 && sent <= c.unsent[i].begin && begin-c.unsent[i].begin < chunkSize/4 {
		c.unsent[i].end, c.unsent[i].plainEnd = c.records.written, c.queued
		return
	}
	c.unsent = append(c.unsent, writtenChunk{begin, c.records.written, plainBegin, c.queued})
}

// SentBytes is how many of the bytes that were written the client may have read: of a chunk that is sent in
// part that is all.
func (c *Secure) SentBytes() int64 {
	sent := c.records.sentBytes()
	for len(c.unsent) > 0 && c.unsent[0].end <= sent {
		c.unsent = c.unsent[1:]
	}
	switch {
	case len(c.unsent) == 0:
		return c.queued
	case c.unsent[0].begin < sent:
		return c.unsent[0].plainEnd
	}
	return c.unsent[0].plainBegin
}

// EndSending tells the client that nothing more comes.
func (c *Secure) EndSending() {
	if c.OutboundBuffered() == 0 {
		_ = c.tls.CloseWrite()
	}
}

// Forget ends the connection, which the loop has closed.
func (c *Secure) Forget() {
	c.records.closed = true
	c.tls.Abandon()
}

// Ended reports whether the client sends no more, or what is no record.
func (c *Secure) Ended() bool { return c.ended }

// Certificate is what the client has shown; nil if there is none.
func (c *Secure) Certificate() *x509.Certificate { return c.tls.Certificate() }

// A recordSocket is what TLS reads from and writes to on an event loop. It never waits.
type recordSocket struct {
	conn    gnet.Conn
	written int64
	closed  bool
}

// sentBytes is how many bytes of records the system has taken.
func (r *recordSocket) sentBytes() int64 { return r.written - int64(r.conn.OutboundBuffered()) }

// Read implements [net.Conn]. It is a timeout when nothing is there.
func (r *recordSocket) Read(b []byte) (int, error) {
	if r.closed {
		return 0, net.ErrClosed
	}
	n := min(len(b), r.conn.InboundBuffered())
	if n == 0 {
		return 0, os.ErrDeadlineExceeded
	}
	data, err := r.conn.Peek(n)
	if err != nil {
		return 0, err
	}
	copy(b, data)
	return r.conn.Discard(n)
}

// Write implements [net.Conn].
func (r *recordSocket) Write(b []byte) (int, error) {
	if r.closed {
		return 0, net.ErrClosed
	}
	n, err := r.conn.Write(b)
	r.written += int64(n)
	return n, err
}

// Close implements [net.Conn]. The loop closes the connection.
func (r *recordSocket) Close() error { return nil }

// LocalAddr implements [net.Conn].
func (r *recordSocket) LocalAddr() net.Addr { return r.conn.LocalAddr() }

// RemoteAddr implements [net.Conn].
func (r *recordSocket) RemoteAddr() net.Addr { return r.conn.RemoteAddr() }

// SetDeadline implements [net.Conn]. Nothing waits, so there is nothing to end.
func (r *recordSocket) SetDeadline(time.Time) error { return nil }

// SetReadDeadline implements [net.Conn].
func (r *recordSocket) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline implements [net.Conn].
func (r *recordSocket) SetWriteDeadline(time.Time) error { return nil }
