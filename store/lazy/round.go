package lazy

import (
	"sync"
	"time"
)

// A round is the names with one interval that have something to tell or to learn. They go to the store
// together, in one round trip where that sends many requests at once.
type round struct {
	due   []*name
	timer *time.Timer
}

// maxAtOnce is how many exchanges of a round are under way at once.
const maxAtOnce = 512

// enter has a name exchanged within an interval. It is called with the name's lock held.
func (s *Store) enter(n *name, interval time.Duration) {
	if n.entered {
		return
	}
	n.entered = true
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.rounds[interval]
	if r == nil {
		r = &round{}
		s.rounds[interval] = r
		if !s.closed {
			s.work.Add(1)
			r.timer = time.AfterFunc(interval, func() { defer s.work.Done(); s.run(interval) })
		}
	}
	r.due = append(r.due, n)
}

// run exchanges the names of a round, which then has none.
func (s *Store) run(interval time.Duration) {
	s.mu.Lock()
	r := s.rounds[interval]
	delete(s.rounds, interval)
	s.mu.Unlock()
	s.exchange(r.due, false)
}

// exchange tells the store about names, all of them at once; last says that they are not asked about again.
func (s *Store) exchange(due []*name, last bool) {
	var work sync.WaitGroup
	slots := make(chan struct{}, maxAtOnce)
	for _, n := range due {
		slots <- struct{}{}
		work.Go(func() {
			n.exchange(last)
			<-slots
		})
	}
	work.Wait()
}
