package grpc

import (
	"context"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/proto"
)

// gRPC bounds a message and the calls of a connection, but neither the calls of a server nor the bytes of
// all of them: a client may send a million messages by halves, and ask for answers that it does not read.
// So each connection has a meter, which follows its frames.

const (
	// maxCalls is how many calls may be under way in all of the server. One whose message never comes costs
	// 11 KiB.
	maxCalls = 10_000
	// frameCost is what is kept for each frame with a part of a message, beside that part.
	frameCost = 128
	// messageHead is what gRPC sends before each message.
	messageHead = 5
)

// lastingMethods are the calls that have no end of their own: they watch, or ask again and again.
var lastingMethods = map[string]bool{
	"/grpc.health.v1.Health/Watch":                                   true,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      true,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": true,
}

// A connMeter knows the calls of one connection, and how many bytes of them are kept.
type connMeter struct {
	mu       sync.Mutex
	in, out  frameScanner
	calls    map[uint32]int // bytes that came, by call
	received int            // sum of these
	unsent   int            // bytes of answers that were made and not written
	lasting  int            // calls
	refused  int            // calls, as long as the connection lasts
	budgeted int            // of came and unsent, at the budget
	written  uint64         // bytes of answers
	timer    *time.Timer    // looks for answers that are not taken; nil while there are none
	closed   bool
}

// noteReceived follows what a client has sent. It reports false when the connection is to be cut.
func (c *countedConn) noteReceived(piece []byte) bool {
	m := &c.meter
	m.mu.Lock()
	defer m.mu.Unlock()
	m.in.scanPiece(piece, func(f frameHead) {
		size, known := m.calls[f.stream]
		switch {
		case f.kind == frameHeaders && !known:
			if m.calls == nil {
				m.calls = make(map[uint32]int)
			}
			m.calls[f.stream] = 0
		case f.kind == frameData && known:
			m.calls[f.stream] = size + f.length + frameCost
			m.received += f.length + frameCost
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
		if f.kind == frameData {
			m.written += uint64(f.length) // #nosec G115 -- 24 bits
			m.unsent = max(0, m.unsent-f.length)
		}
		ends := f.kind == frameHeaders || f.kind == frameData
		if f.kind == frameReset || ends && f.flags&flagEndStream != 0 {
			c.forgetCall(f.stream)
		}
	})
	c.updateBudget()
}

// forgetCall forgets a call. What was never written of an answer, because its client took back the call, is not
// known by call, and is forgotten when there are no more.
func (c *countedConn) forgetCall(stream uint32) {
	m := &c.meter
	size, known := m.calls[stream]
	if !known {
		return
	}
	delete(m.calls, stream)
	m.received -= size
	if len(m.calls) <= m.lasting {
		m.unsent = 0
	}
}

// updateBudget counts what is kept. It reports false when the connection is to be cut.
func (c *countedConn) updateBudget() bool {
	m := &c.meter
	held := m.received + m.unsent
	if m.closed {
		held = 0
	}
	more := held - m.budgeted
	m.budgeted = held
	within := c.conns.budget.Move(more, held)
	if m.unsent > 0 && m.timer == nil && !m.closed {
		c.watchProgress()
	}
	if more <= 0 || within {
		return true
	}
	c.conns.budget.Refuse()
	return false
}

// watchProgress has the connection cut if its client takes nothing of its answers for as long as the write timeout.
// The meter is locked.
func (c *countedConn) watchProgress() {
	m := &c.meter
	then := m.written
	m.timer = time.AfterFunc(c.conns.writeTimeout, func() {
		m.mu.Lock()
		m.timer = nil
		stuck := m.unsent > 0 && m.written == then && !m.closed
		if m.unsent > 0 && !stuck && !m.closed {
			c.watchProgress()
		}
		m.mu.Unlock()
		if stuck {
			c.cutConn()
		}
	})
}

// noteAnswer notes an answer that is about to be written.
func (c *countedConn) noteAnswer(size int) {
	if c == nil {
		return
	}
	m := &c.meter
	m.mu.Lock()
	m.unsent += size + messageHead
	ok := c.updateBudget()
	m.mu.Unlock()
	if !ok {
		c.cutConn()
	}
}

// cutConn closes a connection whose client goes too far. gRPC closes c itself, which ends its being counted.
func (c *countedConn) cutConn() {
	c.conns.cuts.Add(1)
	c.conns.slow.Inc()
	_ = c.Conn.Close()
}

// forgetCalls forgets all calls.
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

// A clientAddr is the address of a client, by which its connection is known to its calls.
type clientAddr struct {
	net.Addr
	conn *countedConn
}

// connOf is the connection that a call came by; nil if it is none of ours.
func connOf(ctx context.Context) *countedConn {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return nil
	}
	address, ok := p.Addr.(clientAddr)
	if !ok {
		return nil
	}
	return address.conn
}

// admitCall lets a call in before anything of its message is read, for as long as a request may take to come
// and its answer to go. gRPC itself gives a call no time.
func (s *Server) admitCall(ctx context.Context, call *tap.Info) (context.Context, error) {
	conn := connOf(ctx)
	calls := &s.conns.calls
	if calls.Add(1) > s.conns.mostCalls {
		calls.Add(-1)
		s.metrics.refusedCalls.Inc()
		conn.noteRefusedCall()
		return nil, status.Errorf(codes.ResourceExhausted,
			"server has %d calls under way, which is the most; try again soon", s.conns.mostCalls)
	}
	if lastingMethods[call.FullMethodName] {
		conn.countLasting(1)
		context.AfterFunc(ctx, func() {
			conn.countLasting(-1)
			calls.Add(-1)
		})
		return ctx, nil
	}
	ctx, end := context.WithTimeout(ctx, s.config.ReadTimeout+s.config.WriteTimeout)
	context.AfterFunc(ctx, func() { // the call has ended, or its time
		end()
		calls.Add(-1)
	})
	return ctx, nil
}

// noteRefusedCall notes a call that was refused. gRPC keeps something of each for as long as the connection lasts.
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

// countLasting counts calls that have no end of their own.
func (c *countedConn) countLasting(more int) {
	if c == nil {
		return
	}
	c.meter.mu.Lock()
	defer c.meter.mu.Unlock()
	c.meter.lasting += more
}

// A meteredStream notes the answers of a call that has several.
type meteredStream struct{ grpc.ServerStream }

// SendMsg implements [grpc.ServerStream].
func (s meteredStream) SendMsg(message any) error {
	connOf(s.Context()).noteAnswer(messageSize(message))
	return s.ServerStream.SendMsg(message)
}

// messageSize is the size of an answer of health checks or reflection.
func messageSize(message any) int {
	if m, ok := message.(proto.Message); ok {
		return proto.Size(m)
	}
	return 0
}
