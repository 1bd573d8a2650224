package grpc

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// gRPC bounds a message and the calls of a connection, but neither the calls of a server nor the bytes of
// all of them: a client may send a million messages by halves, and ask for answers that it does not read.
// So each connection has a meter, which follows its frames.

const (
	// maxCalls is how many calls may be under way in the whole server. One whose message never comes costs
	// 11 KiB.
	maxCalls = 10_000
	// frameCost is what is counted for each call, and for each frame with a part of a message, in addition to
	// that part.
	frameCost = 128
	// fieldCost is what is counted for each header field of a call, in addition to its text: what gRPC keeps
	// of it was measured, with fields of two letters.
	fieldCost = 224
	// maxFields is how many header fields a call may have.
	maxFields = 128
	// messageHead is the size of what gRPC sends before each message.
	messageHead = 5
)

// How many calls without an end there may be. They keep their places for as long as their clients like, so
// without a limit of their own a few connections could take all places from those who ask for capacity.
const (
	// maxLasting is the most of one connection.
	maxLasting = 10
	// lastingShare is the divisor of the calls of the whole server that gives how many may watch, and how
	// many reflect.
	lastingShare = 2
	// maxReflecting is the most that reflect. People do, and each may keep 64 KiB of answers unread.
	maxReflecting = 100
	// maxLastingHead is the most bytes of headers that one may bring, because they are kept as long.
	maxLastingHead = 8 << 10
)

// lastingMethods are the methods whose calls have no end of their own: they watch, or ask again and again.
var lastingMethods = map[string]lastingCall{
	"/grpc.health.v1.Health/Watch":                                   watches,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      reflects,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": reflects,
}

// A lastingCall is why a call has no end of its own.
type lastingCall int

const (
	endsByItself lastingCall = iota
	watches
	reflects
	numLasting
)

// A connMeter knows the calls of one connection, and how many of their bytes are kept.
//
//	client ──frames──> in:  received += DATA ─────┐
//	             noteHeaders: headers += size ────┼─> budgeted, in the server's budget
//	noteAnswer: unsent += size ──> out: -= DATA ──┘
//	END_STREAM of the server, or RST_STREAM of either: the call is forgotten
type connMeter struct {
	mu       sync.Mutex
	in, out  frameScanner
	calls    map[uint32]int // bytes counted as received, by stream
	received int            // their sum
	headers  int            // bytes of headers of the calls with an end, which gRPC keeps as long as them
	unsent   int            // bytes of answers that are made and not written yet
	lasting  int            // calls
	refused  int            // refused calls, in the connection's whole life
	budgeted int            // received and unsent, as the budget has them
	written  uint64         // bytes of answers
	timer    *time.Timer    // checks that unsent answers make progress; nil while there are none
	closed   bool
}

// noteReceived follows what a client has sent. It returns false if the connection is to be closed.
func (c *countedConn) noteReceived(piece []byte) bool {
	m := &c.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in.scanPiece(piece, func(f frameHead) {
		size, known := m.calls[f.stream]
		switch {
		// A new call. HEADERS of a known stream are trailers, which do not reset its count. It costs
		// something at once: gRPC neither answers nor ends one that comes behind its GOAWAY.
		case f.kind == frameHeaders && !known:
			if m.calls == nil {
				m.calls = make(map[uint32]int)
			}
			m.calls[f.stream] = frameCost
			m.received += frameCost
		case f.kind == frameData && known:
			// Counted when the frame's head arrives, before its bytes do.
			m.calls[f.stream] = size + f.length + frameCost
			m.received += f.length + frameCost
		// The client takes back its call. gRPC drops what it has of it.
		case f.kind == frameReset:
			c.forgetCall(f.stream)
		}
	})
	return c.updateBudget()
}

// noteSent follows what was written to a client.
func (c *countedConn) noteSent(piece []byte) {
	m := &c.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.out.scanPiece(piece, func(f frameHead) {
		// max, because unsent may have been set to 0 while this answer was queued: see forgetCall.
		if f.kind == frameData {
			m.written += uint64(f.length) // 24 bits
			m.unsent = max(0, m.unsent-f.length)
		}
		// A server's last frame of a call says END_STREAM, as trailers or with data.
		ends := f.kind == frameHeaders || f.kind == frameData
		if f.kind == frameReset || ends && f.flags&flagEndStream != 0 {
			c.forgetCall(f.stream)
		}
	})
	// A write only frees bytes, so it is no reason to close the connection.
	c.updateBudget()
}

// forgetCall forgets a call. Bytes of an answer that will never be written, because its client reset the
// call, are not known by call; they are forgotten when no call with an end is left.
func (c *countedConn) forgetCall(stream uint32) {
	m := &c.meter
	size, known := m.calls[stream]
	if !known {
		return
	}
	// gRPC has handed on or dropped the bytes of the message; they are kept no longer.
	delete(m.calls, stream)
	m.received -= size
	if len(m.calls) <= m.lasting {
		m.unsent = 0
	}
}

// updateBudget moves what the connection keeps in the server's budget. It returns false if the connection is
// to be closed. The meter is locked.
func (c *countedConn) updateBudget() bool {
	m := &c.meter
	held := m.received + m.headers + m.unsent
	if m.closed {
		held = 0
	}
	more := held - m.budgeted
	m.budgeted = held
	within := c.conns.budget.Move(more, held)
	// There is something to write: from now on the client must read.
	if m.unsent > 0 && m.timer == nil && !m.closed {
		c.watchProgress()
	}
	// A connection is only closed for growing. When the budget is full of others, one that shrinks may go
	// on.
	if more <= 0 || within {
		return true
	}
	c.conns.budget.Refuse()
	return false
}

// watchProgress closes the connection if its client reads nothing of its answers for as long as the write
// timeout. The meter is locked.
func (c *countedConn) watchProgress() {
	m := &c.meter
	then := m.written
	m.timer = time.AfterFunc(c.conns.writeTimeout, func() {
		m.mu.Lock()
		m.timer = nil
		// Any byte of an answer counts as progress, so a slow client with a large answer is not cut. The
		// next look is a whole timeout later, which makes it up to two timeouts.
		stuck := m.unsent > 0 && m.written == then && !m.closed
		if m.unsent > 0 && !stuck && !m.closed {
			c.watchProgress()
		}
		m.mu.Unlock()
		// Outside the lock: closing ends in forgetCalls, which takes it.
		if stuck {
			c.cutConn()
		}
	})
}

// noteAnswer notes an answer that is about to be written.
func (c *countedConn) noteAnswer(size int) { c.noteKept(0, size+messageHead) }

// noteHeaders notes how many more bytes of headers are kept.
func (c *countedConn) noteHeaders(more int) { c.noteKept(more, 0) }

// noteKept notes more bytes of headers, and of answers that are not written yet. c may be nil, for calls in
// tests.
func (c *countedConn) noteKept(headers, unsent int) {
	if c == nil {
		return
	}
	c.meter.mu.Lock()
	c.meter.headers += headers
	c.meter.unsent += unsent
	ok := c.updateBudget()
	c.meter.mu.Unlock()
	if !ok {
		c.cutConn()
	}
}

// cutConn closes a connection whose client goes beyond the limits. What it has kept is counted no more: gRPC
// drops it as it closes c in its turn.
func (c *countedConn) cutConn() {
	c.forgetCalls()
	c.conns.cuts.Add(1)
	c.conns.slow.Inc()
	_ = c.Conn.Close()
}

// forgetCalls forgets all calls, when the connection closes.
func (c *countedConn) forgetCalls() {
	m := &c.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return
	}
	m.closed = true
	c.updateBudget()
	if m.timer != nil {
		m.timer.Stop()
	}
}

// A clientAddr is the address of a client. Through it a call finds its connection: gRPC hands down nothing
// else.
type clientAddr struct {
	net.Addr
	conn *countedConn
}

// connOf returns the connection that a call came by; nil if it is not one of ours.
func connOf(ctx context.Context) *countedConn {
	if p, ok := peer.FromContext(ctx); ok {
		address, _ := p.Addr.(clientAddr)
		return address.conn
	}
	return nil
}

// admitCall admits a call before anything of its message is read, and bounds its time. gRPC itself bounds
// neither the number of calls nor their time.
func (s *Server) admitCall(ctx context.Context, call *tap.Info) (context.Context, error) {
	conn := connOf(ctx)
	calls := &s.conns.calls
	// Add first and take back, so that two calls at once cannot both take the last place.
	if calls.Add(1) > s.conns.mostCalls {
		s.refuseCall(conn)
		return nil, status.Errorf(codes.ResourceExhausted,
			"server has %d calls under way, which is the most; try again soon", s.conns.mostCalls)
	}
	size, fields := headSize(call.Header)
	if fields > maxFields {
		s.refuseCall(conn)
		return nil, status.Errorf(codes.ResourceExhausted, "call has %d header fields, want at most %d",
			fields, maxFields)
	}
	// These end with their stream's context, and not before.
	if why := lastingMethods[call.FullMethodName]; why != endsByItself {
		if fault := s.conns.takeLasting(conn, why, size); fault != "" {
			s.refuseCall(conn)
			return nil, status.Error(codes.ResourceExhausted, fault)
		}
		context.AfterFunc(ctx, func() {
			s.conns.leaveLasting(conn, why)
			calls.Add(-1)
		})
		return ctx, nil
	}
	// The context also ends when the call does. AfterFunc runs once for either, so the place is given back
	// once.
	ctx, end := context.WithTimeout(ctx, s.config.ReadTimeout+s.config.WriteTimeout)
	conn.noteHeaders(size)
	context.AfterFunc(ctx, func() { // the call has ended, or its time
		end()
		conn.noteHeaders(-size)
		calls.Add(-1)
	})
	return ctx, nil
}

// refuseCall takes back the place of a call that is not admitted, and counts its refusal.
func (s *Server) refuseCall(conn *countedConn) {
	s.conns.calls.Add(-1)
	s.metrics.refusedCalls.Inc()
	conn.noteRefusedCall()
}

// noteRefusedCall notes a call that was refused, and closes the connection after too many. gRPC keeps
// something of each for as long as the connection lasts.
func (c *countedConn) noteRefusedCall() {
	if c == nil {
		return
	}
	c.meter.mu.Lock()
	c.meter.refused++
	often := c.meter.refused > maxStreams
	c.meter.mu.Unlock()
	if often {
		c.cutConn()
	}
}

// takeLasting counts a call that has no end of its own, and headers of that size, unless there are as many
// as allowed: then it says so.
func (s *conns) takeLasting(conn *countedConn, why lastingCall, size int) (fault string) {
	if size > maxLastingHead {
		return fmt.Sprintf("headers of a call that lasts have %d bytes, want at most %d",
			size, maxLastingHead)
	}
	if !conn.addLasting() {
		return fmt.Sprintf("connection has %d calls that last, which is the most", maxLasting)
	}
	most := s.mostCalls / lastingShare
	if why == reflects {
		most = min(most, maxReflecting)
	}
	// Add first and take back, so that two calls at once cannot both take the last place.
	if s.lasting[why].Add(1) > most {
		s.leaveLasting(conn, why)
		return fmt.Sprintf("server has %d calls that last, which is the most; try again later", most)
	}
	return ""
}

// leaveLasting takes back what takeLasting has counted.
func (s *conns) leaveLasting(conn *countedConn, why lastingCall) {
	s.lasting[why].Add(-1)
	if conn == nil {
		return
	}
	conn.meter.mu.Lock()
	defer conn.meter.mu.Unlock()
	conn.meter.lasting--
}

// addLasting counts one more call that lasts, and reports whether the connection may have it.
func (c *countedConn) addLasting() bool {
	if c == nil {
		return true
	}
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	if c.meter.lasting >= maxLasting {
		return false
	}
	c.meter.lasting++
	return true
}

// headSize returns about what the headers of a call take in memory, and how many there are.
func headSize(head metadata.MD) (size, fields int) {
	for name, values := range head {
		fields += len(values)
		for _, value := range values {
			size += len(name) + len(value) + fieldCost
		}
	}
	return size, fields
}
