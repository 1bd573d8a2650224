package lazy

import (
	"sync"
	"sync/atomic"
	"time"
)

// A round is the names with one interval that have something to tell or to learn. They go to the store
// together, in few round trips where that sends many requests at once.
type round struct {
	due   []*name
	timer *time.Timer
}

const (
	// maxAtOnce is how many exchanges are under way at once, so that other requests for the store do not
	// wait behind all of them.
	maxAtOnce = 512
	// maxFinish is how long the last exchanges may take.
	maxFinish = 5 * time.Second
)

// enter has a name exchanged within an interval. It is called with the name's lock held.
func (s *Store) enter(n *name) {
	if n.entered || n.gone {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // the last exchange is about to come
	}
	n.entered = true
	interval := n.rule.Interval
	r := s.rounds[interval]
	if r == nil {
		r = &round{}
		s.rounds[interval] = r
		s.work.Add(1)
		r.timer = time.AfterFunc(interval, func() { defer s.work.Done(); s.run(interval) })
	}
	r.due = append(r.due, n)
}

// run exchanges the names of a round, which then has none.
func (s *Store) run(interval time.Duration) {
	s.mu.Lock()
	r := s.rounds[interval]
	if r == nil {
		s.mu.Unlock()
		return // the store is being closed
	}
	delete(s.rounds, interval)
	s.mu.Unlock()
	s.each(r.due, (*name).exchange)
}

// finish exchanges all names for the last time.
func (s *Store) finish() {
	end := time.Now().Add(maxFinish)
	s.each(s.all(), func(n *name) {
		if time.Now().Before(end) {
			n.finish()
		}
	})
}

// each does something with all names, and returns when that is done.
func (s *Store) each(due []*name, exchange func(*name)) {
	var work sync.WaitGroup
	var next atomic.Int64
	for range min(maxAtOnce, len(due)) {
		work.Go(func() {
			for i := next.Add(1); i <= int64(len(due)); i = next.Add(1) {
				s.slots <- struct{}{}
				exchange(due[i-1])
				<-s.slots
			}
		})
	}
	work.Wait()
}
