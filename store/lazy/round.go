package lazy

import (
	"sync"
	"sync/atomic"
	"time"
)

// A syncRound is the names with one interval that have something to tell or to learn. They go to the store
// together, in few round trips where that sends many requests at once.
type syncRound struct {
	due   []*namedLimiter
	timer *time.Timer
}

const (
	// maxExchanges is how many exchanges are under way at once, so that other requests for the store do not
	// wait behind all of them.
	maxExchanges = 512
	// maxClosing is how long the last exchanges may take.
	maxClosing = 5 * time.Second
)

// scheduleExchange has a name exchanged within an interval. It is called with the name's lock held.
func (s *Store) scheduleExchange(n *namedLimiter) {
	if n.scheduled || n.forgotten {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return // the last exchange is about to come
	}
	n.scheduled = true
	interval := n.rule.Interval
	r := s.rounds[interval]
	if r == nil {
		r = &syncRound{}
		s.rounds[interval] = r
		s.work.Add(1)
		r.timer = time.AfterFunc(interval, func() { defer s.work.Done(); s.runRound(interval) })
	}
	r.due = append(r.due, n)
}

// runRound exchanges the names of a round, which then has none.
func (s *Store) runRound(interval time.Duration) {
	s.mu.Lock()
	r := s.rounds[interval]
	if r == nil {
		s.mu.Unlock()
		return // the store is being closed
	}
	delete(s.rounds, interval)
	s.mu.Unlock()
	s.exchangeEach(r.due, (*namedLimiter).exchangeOnce)
}

// exchangeAllLast exchanges all names for the last time.
func (s *Store) exchangeAllLast() {
	end := time.Now().Add(maxClosing)
	s.exchangeEach(s.allLimiters(), func(n *namedLimiter) {
		// A store that does not answer must not keep the server from ending: chunks come back by themselves.
		if time.Now().Before(end) {
			n.exchangeLast()
		}
	})
}

// exchangeEach does something with all names, and returns when that is done.
func (s *Store) exchangeEach(due []*namedLimiter, exchange func(*namedLimiter)) {
	var work sync.WaitGroup
	var next atomic.Int64
	for range min(maxExchanges, len(due)) {
		work.Go(func() {
			for i := next.Add(1); i <= int64(len(due)); i = next.Add(1) {
				// Rounds of several intervals share the slots: the bound is for the whole server.
				s.slots <- struct{}{}
				exchange(due[i-1])
				<-s.slots
			}
		})
	}
	work.Wait()
}
