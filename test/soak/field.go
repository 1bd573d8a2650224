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

// A tally is what became of one attack.
type tally struct {
	name         string
	done, failed atomic.Int64
	last         atomic.Pointer[string]
}

// note counts a step. An error is no fault of the server: to be cut off is what an attacker can expect.
func (t *tally) note(err error) {
	t.done.Add(1)
	if err != nil && !errors.Is(err, context.Canceled) {
		t.failed.Add(1)
		text := err.Error()
		t.last.Store(&text)
	}
}

func (t *tally) text() string {
	if last := t.last.Load(); last != nil {
		return *last
	}
	return ""
}

// A field is what one attack works with.
type field struct {
	ctx    context.Context
	server *server
	scale  int // percent
	tally  *tally
}

// n is how many of a thing there are in this run.
func (f *field) n(full int) int { return max(1, full*f.scale/100) }

// ended reports whether the attack is to end.
func (f *field) ended() bool { return f.ctx.Err() != nil }

// pause waits, and reports false when the attack is to end.
func (f *field) pause(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-f.ctx.Done():
		return false
	}
}

// narrow makes a connection whose system takes as few bytes as it can for a client that does not read.
func narrow(_, _ string, raw syscall.RawConn) error {
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 2304)
	})
	return errors.Join(err, failed)
}

// dial opens a connection that ends with the attack.
func (f *field) dial(address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second, Control: narrow}
	conn, err := dialer.DialContext(f.ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	context.AfterFunc(f.ctx, func() { _ = conn.Close() })
	return conn, nil
}

// occupy opens connections, sends something on each, and holds them without reading. It begins anew after a
// time, so that the server meets new ones.
func (f *field) occupy(address string, conns int, send string, stay time.Duration) {
	for !f.ended() {
		var open []net.Conn
		for range f.n(conns) {
			conn, err := f.dial(address)
			if err == nil {
				_ = conn.SetWriteDeadline(time.Now().Add(stay))
				_, err = io.WriteString(conn, send)
				open = append(open, conn)
			}
			if f.tally.note(err); f.ended() {
				break
			}
		}
		f.pause(stay)
		for _, conn := range open {
			_ = conn.Close()
		}
	}
}

// drip opens connections and sends on each a piece at a time, once a second, for ever.
func (f *field) drip(address string, conns int, begin, piece string) {
	var all sync.WaitGroup
	for range f.n(conns) {
		all.Go(func() {
			for !f.ended() {
				f.tally.note(f.dripOnce(address, begin, piece))
				f.pause(time.Second)
			}
		})
	}
	all.Wait()
}

func (f *field) dripOnce(address, begin, piece string) error {
	conn, err := f.dial(address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	for _, err = io.WriteString(conn, begin); err == nil; _, err = io.WriteString(conn, piece) {
		if !f.pause(time.Second) {
			return nil
		}
	}
	return err
}

// pour sends one batch after the other and reads the answers, over one connection at a time, with a pause.
func (f *field) pour(address string, pause time.Duration, batch func(round int) string) {
	for round := 0; !f.ended(); {
		conn, err := f.dial(address)
		if err != nil {
			f.tally.note(err)
			f.pause(time.Second)
			continue
		}
		go func() { _, _ = io.Copy(io.Discard, conn) }() // ends with the connection
		for err == nil && !f.ended() {
			_ = conn.SetWriteDeadline(time.Now().Add(10 * time.Second))
			_, err = io.WriteString(conn, batch(round))
			f.tally.note(err)
			round++
			f.pause(pause)
		}
		_ = conn.Close()
	}
}
