//go:build linux

package main

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// An attackCount counts the steps and errors of one attack.
type attackCount struct {
	name         string
	done, failed atomic.Int64
	last         atomic.Pointer[string]
}

// recordStep counts a step. An error is no fault of the server: to be cut off is what an attacker can expect.
func (t *attackCount) recordStep(err error) {
	t.done.Add(1)
	// At its end an attack cancels what it is doing. That is no error.
	if err != nil && !errors.Is(err, context.Canceled) {
		t.failed.Add(1)
		text := err.Error()
		t.last.Store(&text)
	}
}

func (t *attackCount) lastError() string {
	if last := t.last.Load(); last != nil {
		return *last
	}
	return ""
}

// An attackField is the server and the scale that one attack works with.
type attackField struct {
	ctx    context.Context
	server *attackedServer
	scale  int // percent
	tally  *attackCount
}

// scaleNumber is how many of a thing there are in this run.
func (f *attackField) scaleNumber(full int) int { return max(1, full*f.scale/100) }

// hasEnded reports whether the attack is to end.
func (f *attackField) hasEnded() bool { return f.ctx.Err() != nil }

// pauseFor waits, and reports false when the attack is to end.
func (f *attackField) pauseFor(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// shrinkReceiveBuffer makes a connection whose system takes as few bytes as it can for a client that does not
// read.
func shrinkReceiveBuffer(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		// Small, so that unread answers soon stay in the buffers of the server.
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2304)
	})
	return errors.Join(err, failed)
}

// dialNarrow opens a connection that ends with the attack.
func (f *attackField) dialNarrow(address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second, Control: shrinkReceiveBuffer}
	conn, err := dialer.DialContext(f.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	// Closing the connection is what ends a write that blocks.
	context.AfterFunc(f.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// occupyConns opens connections, sends something on each, and holds them without reading. It starts again
// after a time, so that the server meets new ones.
func (f *attackField) occupyConns(address string, conns int, send string, stay time.Duration) {
	for !f.hasEnded() {
		var open []net.Conn
		for range f.scaleNumber(conns) {
			conn, err := f.dialNarrow(address)
			if err == nil {
				// The server may stop reading. Then the write must not last longer than the stay.
				_ = conn.SetWriteDeadline(time.Now().Add(stay))
				_, err = io.WriteString(conn, send)
				open = append(open, conn)
			}
			f.tally.recordStep(err)
			if f.hasEnded() {
				break
			}
		}
		f.pauseFor(stay)
		for _, conn := range open {
			_ = conn.Close()
		}
	}
}

// dripBytes opens connections and sends a piece on each once a second, until the attack ends.
func (f *attackField) dripBytes(address string, conns int, begin, piece string) {
	var all sync.WaitGroup
	for range f.scaleNumber(conns) {
		all.Go(func() {
			for !f.hasEnded() {
				f.tally.recordStep(f.dripOnce(address, begin, piece))
				f.pauseFor(time.Second)
			}
		})
	}
	all.Wait()
}

func (f *attackField) dripOnce(address, begin, piece string) error {
	conn, err := f.dialNarrow(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// It goes on until the server cuts the connection off, which is what is expected.
	for _, err = io.WriteString(conn, begin); err == nil; _, err = io.WriteString(conn, piece) {
		if !f.pauseFor(time.Second) {
			return nil
		}
	}
	return err
}

// pourBatches sends one batch after the other and reads the answers, over one connection at a time, with a
// pause.
func (f *attackField) pourBatches(address string, pause time.Duration, batch func(round int) string) {
	for round := 0; !f.hasEnded(); {
		conn, err := f.dialNarrow(address)
		if err != nil {
			f.tally.recordStep(err)
			// A server that is full refuses connections. Dialing all the time would only keep this process
			// busy.
			f.pauseFor(time.Second)
			continue
		}
		// Read apart: writing would block once unread answers fill the buffers.
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		for err == nil && !f.hasEnded() {
			_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
			_, err = io.WriteString(conn, batch(round))
			f.tally.recordStep(err)
			// Rounds go on over connections: their names must stay new.
			round++
			f.pauseFor(pause)
		}
		_ = conn.Close()
	}
}
