//go:build linux || darwin

package election

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
)

const (
	// patience is how long anything may take that has no bound of its own in a test.
	patience = 60 * time.Second
	// stall is how long a busy machine may let a process wait. What should come at once comes by then.
	stall = 5 * time.Second
)

// A candidate is one that takes part in this process, and all it was told.
type candidate struct {
	name     string
	election *Election
	cancel   context.CancelFunc
	ended    chan struct{}
	err      error // of Run, once it has ended

	mu      sync.Mutex
	told    []telling
	changed chan struct{} // closed at the next telling
}

// A telling is a status and when it was told.
type telling struct {
	MasterStatus
	at time.Time
}

// enter starts a candidate, which leaves at the end of the test if it has not left before.
func enter(t *testing.T, url, name string, options ...grpc.DialOption) *candidate {
	t.Helper()
	e, err := openWith(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c := &candidate{
		name: name, election: e, cancel: cancel, ended: make(chan struct{}), changed: make(chan struct{}),
	}
	go func() {
		defer close(c.ended)
		c.err = e.Run(ctx, name, c.hear)
	}()
	t.Cleanup(func() {
		cancel()
		<-c.ended
		_ = e.Close() // it may be closed
	})
	return c
}

func (c *candidate) hear(s MasterStatus) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told = append(c.told, telling{s, time.Now()})
	close(c.changed)
	c.changed = make(chan struct{})
}

// leave gives back what the candidate has.
func (c *candidate) leave(t *testing.T) {
	t.Helper()
	c.cancel()
	<-c.ended
	if c.err != nil {
		t.Errorf("Run of %s = %v, want none", c.name, c.err)
	}
	_ = c.election.Close()
}

// last is what was told last, and a channel that is closed at the next telling.
func (c *candidate) last() (last telling, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.told) == 0 {
		return telling{}, c.changed
	}
	return c.told[len(c.told)-1], c.changed
}

// hears waits until the last telling is as wanted.
func (c *candidate) hears(t *testing.T, want string, holds func(s MasterStatus) bool) telling {
	t.Helper()
	end := time.After(patience)
	for {
		last, changed := c.last()
		if holds(last.MasterStatus) {
			return last
		}
		select {
		case <-changed:
		case <-end:
			t.Fatalf("%s was told %v after %v, want %s; all:\n%s", c.name, last, patience, want, c)
		}
	}
}

func (c *candidate) leads(t *testing.T) telling {
	t.Helper()
	return c.hears(t, "to be master", func(s MasterStatus) bool { return s.Leading })
}

func (c *candidate) follows(t *testing.T, leader string) {
	t.Helper()
	c.hears(t, "to follow "+leader, func(s MasterStatus) bool { return !s.Leading && s.Leader == leader })
}

// lost waits until the candidate was told that a mastership is over, and says when. By then it may have
// another. Led is what it was told about the mastership last.
func (c *candidate) lost(t *testing.T) (led, over telling) {
	t.Helper()
	c.hears(t, "that a mastership is over", func(MasterStatus) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for n := 1; n < len(c.told); n++ {
			if led, over = c.told[n-1], c.told[n]; led.Leading && !over.Leading {
				return true
			}
		}
		return false
	})
	return led, over
}

// String is all that the candidate was told, one a line.
func (c *candidate) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var text strings.Builder
	for _, s := range c.told {
		fmt.Fprintf(&text, "%s at %s: leading %t until %s, leader %q, %v\n", c.name,
			s.at.Format("05.000"), s.Leading, s.Until.Format("05.000"), s.Leader, s.Err)
	}
	return text.String()
}

// An interval is a time in which a candidate could believe to be master.
type interval struct {
	name       string
	begin, end time.Time
}

// intervals are all of a candidate's, by what it was told: each ends when it is told so, or when the last
// Until has passed, whichever is first.
func (c *candidate) intervals() []interval {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []interval
	leading, until := false, time.Time{}
	for _, s := range c.told {
		switch {
		case s.Leading && !leading:
			all = append(all, interval{c.name, s.at, s.Until})
		case s.Leading:
			all[len(all)-1].end = s.Until
		case leading && s.at.Before(until):
			all[len(all)-1].end = s.at
		}
		leading, until = s.Leading, s.Until
	}
	return all
}

// apart fails the test when two intervals overlap, and returns how many there are.
func apart(t *testing.T, candidates ...*candidate) int {
	t.Helper()
	var all []interval
	for _, c := range candidates {
		all = append(all, c.intervals()...)
	}
	slices.SortFunc(all, func(a, b interval) int { return a.begin.Compare(b.begin) })
	for i := 1; i < len(all); i++ {
		before, after := all[i-1], all[i]
		if over := before.end.Sub(after.begin); over > 0 {
			t.Errorf("%s led for %v beside %s, want one at a time", before.name, over, after.name)
		}
	}
	return len(all)
}
