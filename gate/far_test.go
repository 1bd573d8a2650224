package gate_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A farStore is a memory store at the end of a long wire, except for the name near.
type farStore struct {
	*memory.Store
	there, back func() time.Duration // until it decides, and until that is known
	fails       func() (before, after bool)
	answers     func(queue []control.Turn) // changes what was decided

	mu             sync.Mutex
	asked          int // how often
	under, most    int // calls under way
	lines, crowded int // calls under way for those who have a ticket
	tickets        []control.Ticket
	watches        int
	wakes          []func() // of all watches there ever were
}

var errFar = gatehouse.Errorf(gatehouse.CodeUnavailable, "the wire is cut")

// after is a delay that is always the same.
func after(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// newFar returns a store that decides after a while, and is heard after another.
func newFar(there, back time.Duration) (*farStore, *gate.Gate) {
	s := &farStore{Store: memory.New(memory.Config{}), there: after(there), back: after(back)}
	return s, gate.New(s, gate.Config{})
}

func (s *farStore) Apply(c *control.Change) {
	leave := s.enter(c.Turns)
	serve := func() {
		err := s.serve(c.Key, c.Turns)
		leave()
		c.Done(err)
	}
	if c.Key.Name != "near" {
		go serve() // ends with its answer
	} else {
		serve()
	}
}

// serve serves a queue after a while.
func (s *farStore) serve(key gatehouse.Key, queue []control.Turn) error {
	before, after := s.outcome()
	// Not by receiving from time.After: a timer of a bubble that is due at once crashes the race detector
	// (https://go.dev/issue/78156).
	time.Sleep(s.there())
	if before {
		return errFar
	}
	err := (&control.Change{Key: key, Turns: queue}).ApplyTo(s.Store)
	time.Sleep(s.back())
	if after {
		return errFar
	}
	if s.answers != nil {
		s.answers(queue)
	}
	return err
}

// outcome is whether a call is to fail.
func (s *farStore) outcome() (before, after bool) {
	s.mu.Lock()
	fails := s.fails
	s.mu.Unlock()
	if fails == nil {
		return false, false
	}
	return fails()
}

// fail sets which calls are to fail. It returns how many there were.
func (s *farStore) fail(how func() (before, after bool)) (asked int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fails = how
	return s.asked
}

// enter keeps the books of a call, until what it returns is called.
func (s *farStore) enter(queue []control.Turn) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	line := 0
	for _, turn := range queue {
		if ticket := turn.Ticket; ticket != 0 && turn.Op != gatehouse.OpUndo {
			line = 1
			if !slices.Contains(s.tickets, ticket) {
				s.tickets = append(s.tickets, ticket)
			}
		}
	}
	s.asked++
	s.under++
	s.lines += line
	s.most, s.crowded = max(s.most, s.under), max(s.crowded, s.lines)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.under--
		s.lines -= line
	}
}

func (s *farStore) Watch(key gatehouse.Key, wake func()) (stop func()) {
	s.mu.Lock()
	s.watches++
	s.wakes = append(s.wakes, wake)
	s.mu.Unlock()
	unpin := s.Store.Watch(key, wake)
	return func() {
		unpin()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.watches--
	}
}

// wake wakes all lines, and those that there were.
func (s *farStore) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, wake := range s.wakes {
		wake()
	}
}

// left checks that nothing is left of those who came and went.
func (s *farStore) left(t *testing.T, g *gate.Gate, key gatehouse.Key) {
	t.Helper()
	if err := g.Drain(t.Context()); err != nil {
		t.Error(err)
	}
	s.fail(nil)
	d, err := g.Do(t.Context(), key, gatehouse.Command{Op: gatehouse.OpStats})
	if err != nil {
		t.Error(err)
	}
	for _, stat := range d.Stats {
		if (stat.Name == "held" || stat.Name == "waiting") && stat.Value != int64(0) {
			t.Errorf("%s = %v, want 0", stat.Name, stat.Value)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches != 0 || s.under != 0 || g.Waiting() != 0 {
		t.Errorf("%d watches, %d calls, %d in line are left, want none", s.watches, s.under, g.Waiting())
	}
}

// quickly fails the test if what it does takes any time.
func quickly(t *testing.T, what string, do func()) {
	t.Helper()
	start := time.Now()
	do()
	if time.Since(start) > 0 {
		t.Errorf("%s took %s with a slow store, want it to return at once", what, time.Since(start))
	}
}

// ApplyJoint serves a joint change after a while.
func (s *farStore) ApplyJoint(c *control.JointChange) {
	leave := s.enter(nil)
	go func() { // ends with its answer
		before, after := s.outcome()
		time.Sleep(s.there())
		if before {
			leave()
			c.Done(errFar)
			return
		}
		done := c.Done
		c.Done = func(err error) {
			time.Sleep(s.back())
			if after {
				err = errFar
			}
			leave()
			done(err)
		}
		s.Store.ApplyJoint(c)
	}()
}
