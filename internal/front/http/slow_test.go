package http

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A farStore is a memory store that is slow, and holds up commands for names that begin with "held" until
// it is let go.
type farStore struct {
	*memory.Store
	under atomic.Int64 // calls that are held up
	held  chan struct{}
	fails error // what those are answered with; nil is what is decided
	letGo func()
}

func newFar() *farStore {
	s := &farStore{Store: memory.New(memory.Config{}), held: make(chan struct{})}
	s.letGo = sync.OnceFunc(func() { close(s.held) })
	return s
}

func (s *farStore) Apply(c *control.Change) {
	go func() { c.Done(s.serve(c.Key, c.Turns)) }() // ends when it is let go
}

// serve serves a queue, after it was let go.
func (s *farStore) serve(key gatehouse.Key, queue []control.Turn) error {
	if strings.HasPrefix(key.Name, "held") {
		s.under.Add(1)
		<-s.held
		s.under.Add(-1)
		if s.fails != nil {
			return s.fails
		}
	}
	return (&control.Change{Key: key, Turns: queue}).ApplyTo(s.Store)
}

// inHand waits until so many calls are held up.
func (s *farStore) inHand(t *testing.T, n int64) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d calls are under way", n), func() bool { return s.under.Load() == n })
}

// A request whose store hangs keeps no other waiting, neither on its connection's processor nor at other
// names, and is answered when the store answers.
func TestHangingStoreBlocksNoOther(t *testing.T) {
	for path, want := range map[string]string{
		"/semaphore/held/acquire?key=k":           "k",
		"/semaphore/held/acquire?key=k&maxwait=0": "k",
		"/counter/held/count":                     "1",
		"/pace/held/reserve":                      "0",
	} {
		t.Run(path, func(t *testing.T) {
			s := newFar()
			r := newRigOn(t, Config{}, s)
			defer s.letGo()
			stuck := r.dial(t)
			stuck.send(path, "/counter/behind/count")
			s.inHand(t, 1)
			for i := range 8 {
				c := r.dial(t)
				c.send(fmt.Sprintf("/counter/c%d/count", i), fmt.Sprintf("/lock/l%d/acquire?key=me", i))
				c.want(200, "1")
				c.want(200, "me")
			}
			s.letGo()
			stuck.want(200, want)
			stuck.want(200, "1")
		})
	}
}

// A client that hangs up while the store works holds nothing afterwards, whether its request may wait or not.
func TestHangUpWhileTheStoreWorks(t *testing.T) {
	for _, maxWait := range []string{"&maxwait=0", "&maxwait=60000", ""} {
		t.Run(maxWait, func(t *testing.T) {
			s := newFar()
			r := newRigOn(t, Config{}, s)
			defer s.letGo()
			gone := r.dial(t)
			gone.send("/lock/held/acquire?key=gone&expires=0" + maxWait)
			s.inHand(t, 1)
			_ = gone.Close()
			s.letGo()
			next := r.dial(t)
			next.send("/lock/held/acquire?key=next&maxwait=20000")
			next.want(200, "next")
		})
	}
}

// A store that fails is a 503, and when to try again.
func TestErrorOfASlowStore(t *testing.T) {
	s := newFar()
	s.fails = gatehouse.Errorf(gatehouse.CodeUnavailable, "the wire is cut")
	s.letGo()
	r := newRigOn(t, Config{}, s)
	for _, maxWait := range []string{"0", "60000"} {
		c := r.dial(t)
		c.send("/lock/held/acquire?key=k&maxwait=" + maxWait)
		if got := c.want(503, "the wire is cut").Get("Retry-After"); got != "1" {
			t.Errorf("Retry-After is %q, want 1", got)
		}
	}
}

// A server stops in time while a store hangs, and answers what that still decides.
func TestShutdownWhileTheStoreWorks(t *testing.T) {
	s := newFar()
	r := newRigOn(t, Config{}, s)
	waits, passes := r.dial(t), r.dial(t)
	waits.send("/lock/held/acquire?key=k")
	passes.send("/counter/held/count")
	s.inHand(t, 2)
	r.Stopping()
	r.gate.Close() // returns though the store hangs
	s.letGo()
	waits.want(200, "k")
	passes.want(200, "1")
}

// More requests may come behind one for which the store is asked than behind one that waits in line.
func TestManyRequestsBehindOneAtTheStore(t *testing.T) {
	s := newFar()
	r := newRigOn(t, Config{}, s)
	defer s.letGo()
	c := r.dial(t)
	const count = 3 * maxBehind / 50 // so long is each
	c.send(slices.Repeat([]string{"/counter/held/count"}, count)...)
	s.inHand(t, 1)
	s.letGo()
	for i := range count {
		c.want(200, strconv.Itoa(i+1))
	}
}
