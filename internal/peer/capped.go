// Package peer is what all listeners do alike with the other end of a connection.
package peer

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// A Refusal is the error of a connection beyond a limit. It is the answer to it, "" for none.
type Refusal string

// Error implements error.
func (r Refusal) Error() string { return "connection refused: " + string(r) }

// A CappedListener is a listener that limits its connections. It answers those beyond a limit and closes
// them. When accepting fails, for want of file descriptors say, it pauses and goes on. Make one with
// CapListener.
type CappedListener struct {
	net.Listener
	config   CapConfig
	turnaway turnaway
	accepted chan struct{} // has an element when a connection was accepted since DrainBacklog looked
	closed   chan struct{}
	close    func() error
}

// A CapConfig says what a CappedListener does with connections. All fields are needed.
type CapConfig struct {
	// Admit counts a connection, and returns it, or what stands for it. Its error is a Refusal for one that
	// is beyond a limit. After any other error the connection is closed, and the listener pauses.
	Admit func(conn net.Conn) (admitted net.Conn, err error)

	// Failed is called when accepting a connection failed, before the pause.
	Failed func(err error)
}

// CapListener returns a listener that accepts what another one does, and limits it.
func CapListener(listener net.Listener, config CapConfig) *CappedListener {
	l := &CappedListener{
		Listener: listener, config: config, accepted: make(chan struct{}, 1), closed: make(chan struct{}),
	}
	l.close = sync.OnceValue(func() error {
		close(l.closed)
		return listener.Close()
	})
	return l
}

// Pauses after a failure to accept, doubling. The last is short, because clients that connect meanwhile wait
// for it, and ten failures a second cost nothing.
const (
	firstAcceptPause = 5 * time.Millisecond
	lastAcceptPause  = 100 * time.Millisecond
)

// Accept implements [net.Listener]. It fails only when the listener is closed.
func (l *CappedListener) Accept() (net.Conn, error) {
	for pause := firstAcceptPause; ; {
		conn, err := l.admitNext()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return conn, err
		}
		// Accepting has worked, so there is no reason to pause.
		if _, refused := errors.AsType[Refusal](err); refused {
			pause = firstAcceptPause
			continue
		}
		// Listeners that are not of package net may have an error of their own for this.
		if l.isClosed() {
			return nil, net.ErrClosed
		}
		l.config.Failed(err)
		// A shortage of file descriptors lasts until a connection is closed. Accepting again at once would
		// use up a core.
		l.pauseAccepting(pause)
		pause = min(2*pause, lastAcceptPause)
	}
}

// admitNext accepts the next connection, and turns it away if it is beyond a limit.
func (l *CappedListener) admitNext() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	admitted, err := l.config.Admit(conn)
	select {
	case l.accepted <- struct{}{}:
	default: // DrainBacklog has one notice that it has not read yet, which is enough
	}
	var refusal Refusal
	switch {
	case err == nil:
		return admitted, nil
	case errors.As(err, &refusal) && refusal != "":
		// It closes the connection a little later, so that the client can read the answer first.
		l.turnaway.refuseConn(conn, string(refusal))
	default:
		_ = conn.Close()
	}
	return nil, err
}

// maxDrainTime is how long connections are accepted at most before a listener is closed.
const maxDrainTime = 5 * time.Second

// DrainBacklog waits until Accept has returned every connection that the system has accepted: its client may
// have sent a request (docs/decisions/0028). Call it before Close. New ones may keep coming, so it waits for
// at most 5 seconds, and half of the time until the deadline of ctx: the other half is for answers.
func (l *CappedListener) DrainBacklog(ctx context.Context) {
	patience := maxDrainTime
	if deadline, ok := ctx.Deadline(); ok {
		patience = min(patience, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for AnyPending(l.Listener) {
		select {
		case <-l.accepted:
		case <-ctx.Done():
			return
		}
	}
}

// isClosed reports whether Close was called.
func (l *CappedListener) isClosed() bool {
	select {
	case <-l.closed:
		return true
	default:
		return false
	}
}

// pauseAccepting waits for a while, or until the listener is closed.
func (l *CappedListener) pauseAccepting(pause time.Duration) {
	select {
	case <-time.After(pause):
	case <-l.closed:
	}
}

// Close implements [net.Listener]. It ends a pause.
func (l *CappedListener) Close() error { return l.close() }

// A Watched connection knows whether its other end is gone: one in memory, that has no descriptor to ask.
type Watched interface {
	// Gone reports whether the other end has closed the connection, or its half.
	Gone() bool
}

// How long a connection that was turned away is kept, so that its client can read the answer first,
// and how many of them at a time.
const (
	linger       = time.Second
	maxLingering = 1000
)

// A turnaway answers connections that are too many, and closes them. The zero value is ready.
type turnaway struct{ lingering atomic.Int64 }

// refuseConn answers a connection and closes it a little later, or at once when many are still being
// closed.
func (t *turnaway) refuseConn(conn net.Conn, answer string) {
	if t.lingering.Add(1) > maxLingering {
		t.lingering.Add(-1)
		_ = conn.Close()
		return
	}
	_, err := conn.Write([]byte(answer)) // a new socket has room for it
	// The client sees the end at once, and the rest stays open: closing with unread input sends a reset,
	// which may destroy the answer on its way.
	if half, ok := conn.(interface{ CloseWrite() error }); ok && err == nil {
		err = half.CloseWrite()
	}
	wait := linger
	if err != nil {
		wait = 0
	}
	time.AfterFunc(wait, func() {
		t.lingering.Add(-1)
		_ = conn.Close()
	})
}
