package cas

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
)

const (
	// recheckInterval is how often a name at which somebody waits is looked at although nothing was heard
	// of it: a message may have been lost, and the store must learn that the server still waits.
	recheckInterval = time.Second

	// headLifetime is how long the store believes that a server waits that does not look any more. For so
	// long those behind it are kept waiting when it dies.
	headLifetime = 3 * time.Second
)

// watches are the names at which somebody waits.
type watches struct {
	mu     sync.Mutex
	closed bool
	names  map[gatehouse.Key]*line
	count  atomic.Int64 // of names
}

// A nameWatch is somebody who wants to know of changes.
type nameWatch struct {
	wake  func()
	timer *time.Timer
}

// Watch implements gate.Store.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) {
	all, w := &s.watches, &nameWatch{wake: wake}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.names == nil {
		all.names = make(map[gatehouse.Key]*line)
	}
	l := all.names[key]
	if l == nil {
		l = &line{watches: make(map[*nameWatch]struct{}, 1)}
		all.names[key] = l
		all.count.Add(1)
	}
	l.watches[w] = struct{}{}
	if !all.closed {
		w.timer = time.AfterFunc(jittered(recheckInterval), func() { all.recheckName(key, w) })
	}
	// stop may be called twice, and beside a wake; both are settled under the lock.
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		if _, on := l.watches[w]; !on {
			return
		}
		if w.timer != nil {
			w.timer.Stop()
		}
		delete(l.watches, w)
		if len(l.watches) == 0 {
			delete(all.names, key)
			all.count.Add(-1)
		}
	}
}

// jittered is a time between three quarters of d and d, so that servers do not look all at once.
func jittered(d time.Duration) time.Duration {
	// One more, because what is left of a claim may be a nanosecond, and there is no number below 0.
	return d - rand.N(d/4+1)
}

// recheckName wakes one watch and sets its timer again.
func (w *watches) recheckName(key gatehouse.Key, one *nameWatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.names[key]; l != nil && !w.closed {
		if _, on := l.watches[one]; on {
			one.timer.Reset(jittered(recheckInterval))
			one.wake()
		}
	}
}

// onWake is called by the backend: a name was changed elsewhere, or, with the zero key, any may have been.
func (s *Store) onWake(key gatehouse.Key) {
	s.cache.markStale(key)
	s.watches.wakeWatchers(key)
}

// wakeWatchers wakes those who watch a name, or all of them. It does so under the lock, so that nobody is
// woken whose watch has been stopped; a wake never blocks.
func (w *watches) wakeWatchers(key gatehouse.Key) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	// A wake for all follows a lost connection: any message may have been missed.
	if key != (gatehouse.Key{}) {
		w.names[key].wakeAll()
		return
	}
	for _, l := range w.names {
		l.wakeAll()
	}
}

// wakeAll wakes all who watch a line.
func (l *line) wakeAll() {
	if l == nil {
		return
	}
	for one := range l.watches {
		one.wake()
	}
}

func (w *watches) stopTimers() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, l := range w.names {
		for one := range l.watches {
			if one.timer != nil {
				one.timer.Stop()
			}
		}
	}
}
