package outage

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/sony/gobreaker/v2"
)

// The breaker opens when a call has failed that took its time, and the store has answered nobody since that
// call began. So one name whose commands fail opens nothing while others are answered, and what fails at
// once, which costs nobody any time, never does. While it is open no command goes to the store: it is
// probed in the background, and the first answer closes the breaker.

// probeAfter is how long after a failure the store is probed again; up to twice that, so that servers do not
// do so together.
const probeAfter = 250 * time.Millisecond

// slowShare is the share of its time budget, as a divisor, from which on a failed call has cost time.
const slowShare = 2

func (s *Store) newBreaker() *gobreaker.TwoStepCircuitBreaker[struct{}] {
	return gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		MaxRequests: 1,
		Timeout:     probeAfter,
		ReadyToTrip: func(gobreaker.Counts) bool { return true },
	})
}

// judge learns from the end of a call.
func (s *Store) judge(err error, began, ended time.Duration) {
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		s.heard.Store(int64(ended))
		return
	}
	if ended-began < s.config.Timeout/slowShare || s.heard.Load() > int64(began) {
		return
	}
	done, refused := s.breaker.Allow()
	if refused != nil {
		return // another call was first
	}
	done(err)
	s.leave(err)
}

// leave notes that the store is away, and begins to probe it.
func (s *Store) leave(err error) {
	if cause := errors.Unwrap(err); cause != nil {
		err = cause
	}
	if !s.away.CompareAndSwap(nil, &absence{since: time.Now(), err: err}) {
		return
	}
	if s.config.Changed != nil {
		s.config.Changed(err)
	}
	s.arm()
}

// arm has the store probed after a while.
func (s *Store) arm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.work.Add(1)
	s.timer = time.AfterFunc(probeAfter+rand.N(probeAfter), func() {
		defer s.work.Done()
		s.probe()
	})
}

// probeNames is how many names are probed in turn: in a cluster they are on different machines.
const probeNames = 64

// probe asks the store about a name that does not exist, which changes nothing.
func (s *Store) probe() {
	done, refused := s.breaker.Allow()
	if refused != nil {
		s.arm()
		return
	}
	s.probes++
	name := "gatehouse/probe/" + strconv.FormatUint(s.probes%probeNames, 10)
	key := gatehouse.Key{Kind: gatehouse.Counter, Name: name}
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	err := s.keeper.Apply(context.Background(), key, turns)
	if gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		err = nil // it answers
	}
	done(err)
	if err != nil {
		s.arm()
		return
	}
	s.heard.Store(int64(s.elapsed()))
	s.away.Store(nil)
	if s.config.Changed != nil {
		s.config.Changed(nil)
	}
}

// unreachable is the error of a command while the store is away, otherwise nil.
func (s *Store) unreachable(key gatehouse.Key) error {
	away := s.away.Load()
	if away == nil {
		return nil
	}
	return gatehouse.Errorf(gatehouse.CodeUnavailable, "%s: the store has not answered for %s: %w",
		key, time.Since(away.since).Round(time.Millisecond), away.err)
}

// Close ends probing. Nobody may use the store after it.
func (s *Store) Close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil && s.timer.Stop() {
		s.work.Done()
	}
	s.mu.Unlock()
	s.work.Wait()
}
