package jarl

import (
	"container/list"
	"net"
	"sync"
	"time"
)

// A connRegistry lists the connections that outlive their answer or wait for one: those that are drained
// after their answer, oldest first, and those that wait in line. A client that does not hang up keeps its
// connection drained for a while, so drained connections are limited in number and in time.
type connRegistry struct {
	most int // that are drained at a time

	mu       sync.Mutex
	drained  list.List // of *connection, oldest first
	round    uint64    // of sweeps
	sweeping bool      // the timer runs
	closed   bool

	waiting map[*connection]struct{}
}

// How long a connection is drained at least, and at most twice as long: a round trip around the earth,
// for a client that hangs up when it has read its answer. And how many are at a time; the next one
// takes the place of the one that has been there longest.
const (
	linger     = 500 * time.Millisecond
	maxDrained = 4096
)

// addDrained lets a connection in, and has the oldest closed if that makes one too many. It reports false
// when the registry is closed.
func (l *connRegistry) addDrained(c *connection) bool {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return false
	}
	// A sweep closes what was there before the last one. With the number of the present round a
	// connection is drained for one to two times linger, whenever in the round it came.
	c.round, c.place = l.round, l.drained.PushBack(c)
	// The TCPConn is kept, not the connection: its worker may use that for the next request by the time it
	// is closed. Taking it out now also keeps that worker from taking it out twice.
	var oldest *net.TCPConn
	if l.drained.Len() > l.most {
		oldest = l.takeOldest()
	}
	// The timer runs only while there is something to sweep; an idle server has none.
	if !l.sweeping {
		l.sweeping = true
		time.AfterFunc(linger, l.sweepDrained)
	}
	l.mu.Unlock()
	// Closing is a system call, for which no other worker should wait.
	if oldest != nil {
		_ = oldest.Close()
	}
	return true
}

// removeDrained lets a connection out, if it is still in.
func (l *connRegistry) removeDrained(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c.place != nil {
		l.unlinkDrained(c)
	}
}

func (l *connRegistry) unlinkDrained(c *connection) {
	l.drained.Remove(c.place)
	c.place = nil
}

// takeOldest takes out the connection that has been drained for longest. There must be one.
func (l *connRegistry) takeOldest() *net.TCPConn {
	c := l.drained.Front().Value.(*connection)
	l.unlinkDrained(c)
	return c.TCPConn
}

// sweepDrained closes the connections that were there before the last sweep, and comes again while there are
// any.
func (l *connRegistry) sweepDrained() {
	l.mu.Lock()
	var late []*net.TCPConn
	// The oldest are first, so the first young one ends the search.
	for l.drained.Len() > 0 && l.drained.Front().Value.(*connection).round < l.round {
		late = append(late, l.takeOldest())
	}
	l.round++
	l.sweeping = l.drained.Len() > 0
	if l.sweeping {
		time.AfterFunc(linger, l.sweepDrained)
	}
	l.mu.Unlock()
	closeAll(late)
}

// makeRoom closes all that are drained: their file descriptors are needed.
func (l *connRegistry) makeRoom() { closeAll(l.takeDrained()) }

// takeDrained takes out all that are drained.
func (l *connRegistry) takeDrained() []*net.TCPConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := make([]*net.TCPConn, 0, l.drained.Len())
	for l.drained.Len() > 0 {
		all = append(all, l.takeOldest())
	}
	return all
}

// addWaiting notes a connection that waits in line. It reports false when the registry is closed.
func (l *connRegistry) addWaiting(c *connection) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.waiting[c] = struct{}{}
	return true
}

// removeWaiting forgets a connection that no longer waits.
func (l *connRegistry) removeWaiting(c *connection) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, c)
}

// closeAllConns closes all connections, and adds no more.
func (l *connRegistry) closeAllConns() {
	l.mu.Lock()
	// Set before the lists are emptied: a connection added in between would be missed.
	l.closed = true
	l.mu.Unlock()
	all := l.takeDrained()
	l.mu.Lock()
	// These stay in the map: their workers take them out as their reading fails.
	for c := range l.waiting {
		all = append(all, c.TCPConn)
	}
	l.mu.Unlock()
	closeAll(all)
}

func closeAll(conns []*net.TCPConn) {
	for _, conn := range conns {
		_ = conn.Close()
	}
}
