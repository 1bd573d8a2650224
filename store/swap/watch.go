package swap

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
)

const (
	// look is how often a name at which somebody waits is looked at although nothing was heard of it: a
	// message may have been lost, and the store must learn that the server still waits.
	look = time.Second

	// headLease is how long the store believes that a server waits that does not look any more. For so
	// long those behind it are kept waiting when it dies.
	headLease = 3 * time.Second
)

// watches are the names at which somebody waits.
type watches struct {
	mu     sync.Mutex
	closed bool
	names  map[gatehouse.Key]map[*watch]struct{}
}

// A watch is one line that wants to know of changes.
type watch struct {
	wake  func()
	timer *time.Timer
}

// Watch implements gate.Store.
func (s *Store) Watch(key gatehouse.Key, wake func()) (stop func()) {
	all, w := &s.watches, &watch{wake: wake}
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.names == nil {
		all.names = make(map[gatehouse.Key]map[*watch]struct{})
	}
	if all.names[key] == nil {
		all.names[key] = make(map[*watch]struct{}, 1)
	}
	all.names[key][w] = struct{}{}
	w.timer = time.AfterFunc(jittered(look), func() { all.look(key, w) })
	return func() {
		all.mu.Lock()
		defer all.mu.Unlock()
		w.timer.Stop()
		delete(all.names[key], w)
		if len(all.names[key]) == 0 {
			delete(all.names, key)
		}
	}
}

// jittered is a time between three quarters of d and d, so that servers do not look all at once.
func jittered(d time.Duration) time.Duration { return d - rand.N(d/4) }

// look wakes one line and sets its timer anew.
func (w *watches) look(key gatehouse.Key, one *watch) {
	w.mu.Lock()
	_, on := w.names[key][one]
	if on && !w.closed {
		one.timer.Reset(jittered(look))
	}
	w.mu.Unlock()
	if on {
		one.wake()
	}
}

// woken is called by the backend: a name was changed elsewhere, or, with the zero key, any may have been.
func (s *Store) woken(key gatehouse.Key) {
	s.cache.doubt(key)
	s.watches.tell(key)
}

func (w *watches) tell(key gatehouse.Key) {
	var wakes []func()
	add := func(lines map[*watch]struct{}) {
		for one := range lines {
			wakes = append(wakes, one.wake)
		}
	}
	w.mu.Lock()
	if key != (gatehouse.Key{}) {
		add(w.names[key])
	} else {
		for _, lines := range w.names {
			add(lines)
		}
	}
	w.mu.Unlock()
	for _, wake := range wakes {
		wake()
	}
}

func (w *watches) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	for _, lines := range w.names {
		for one := range lines {
			one.timer.Stop()
		}
	}
}
