// Package peer is what the doors do alike with the other end of a connection.
package peer

import (
	"net"
	"sync/atomic"
	"time"
)

// How long a connection that was turned away is kept, so that its client can read the answer first,
// and how many of them at a time.
const (
	linger       = time.Second
	maxLingering = 1000
)

// A Turnaway answers connections that are too many, and closes them. The zero value is ready.
type Turnaway struct{ lingering atomic.Int64 }

// Refuse answers a connection and closes it a little later, or at once when many are still being
// closed.
func (t *Turnaway) Refuse(conn *net.TCPConn, answer string) {
	if t.lingering.Add(1) > maxLingering {
		t.lingering.Add(-1)
		_ = conn.Close()
		return
	}
	_, err := conn.Write([]byte(answer)) // a new socket has room for it
	if err == nil {
		err = conn.CloseWrite()
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
