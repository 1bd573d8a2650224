// Package peer is what all listeners do alike with the other end of a connection.
package peer

import (
	"net"
	"sync/atomic"
	"time"
)

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
