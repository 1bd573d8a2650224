package http

import (
	"maps"
	"slices"
	"sync"
)

// A connSet holds connections, so that Shutdown can find them.
type connSet struct {
	mu    sync.Mutex
	conns map[*httpConn]struct{}
}

func (l *connSet) addConn(c *httpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = make(map[*httpConn]struct{})
	}
	l.conns[c] = struct{}{}
}

func (l *connSet) removeConn(c *httpConn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// forEach calls do for a copy of the set. It holds no lock meanwhile, as do may remove connections.
func (l *connSet) forEach(do func(*httpConn)) {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}
