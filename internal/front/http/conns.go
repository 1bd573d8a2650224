package http

import (
	"context"
	"maps"
	"slices"
	"sync"
)

// A connSet holds connections, so that Shutdown can find them.
type connSet[C comparable] struct {
	mu    sync.Mutex
	conns map[C]struct{}
	empty chan struct{} // closed when the last one is removed; nil unless awaitEmpty waits for that
}

func (l *connSet[C]) addConn(c C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conns == nil {
		l.conns = make(map[C]struct{})
	}
	l.conns[c] = struct{}{}
}

func (l *connSet[C]) removeConn(c C) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
	if l.empty != nil && len(l.conns) == 0 {
		close(l.empty)
		l.empty = nil
	}
}

// forEach calls do for a copy of the set. It holds no lock meanwhile, as do may remove connections.
func (l *connSet[C]) forEach(do func(C)) {
	l.mu.Lock()
	conns := slices.Collect(maps.Keys(l.conns))
	l.mu.Unlock()
	for _, c := range conns {
		do(c)
	}
}

// awaitEmpty waits until no connection is left, and reports whether that came before ctx ended.
func (l *connSet[C]) awaitEmpty(ctx context.Context) bool {
	l.mu.Lock()
	empty := make(chan struct{})
	if len(l.conns) == 0 {
		close(empty)
	} else {
		l.empty = empty
	}
	l.mu.Unlock()
	select {
	case <-empty:
		return true
	case <-ctx.Done():
		return false
	}
}
