package jarl_test

import (
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A farStore is a memory store that is slow, and holds up who asks until told to go on.
type farStore struct {
	*memory.Store
	asked chan chan error // of whoever asks; what it is answered with, nil being what is decided
}

func (s *farStore) Apply(c *control.Change) {
	go func() { c.Done(s.serve(c.Key, c.Turns)) }() // ends when it is told to go on
}

// serve serves a queue, after it was told to go on.
func (s *farStore) serve(key gatehouse.Key, queue []control.Turn) error {
	held := make(chan error)
	s.asked <- held
	if err := <-held; err != nil {
		return err
	}
	return (&control.Change{Key: key, Turns: queue}).ApplyTo(s.Store)
}

// Connections are accepted, and come to the store, while it still works for others.
func TestHangingStoreBlocksNoOther(t *testing.T) {
	const clients = 20
	clock := new(clock)
	s := &farStore{memory.New(memory.Config{Now: clock.now}), make(chan chan error)}
	l := newListenerOn(t, jarl.PaceLimit{Name: "api", Requests: 3, Period: time.Second}, s, io.Discard)
	var all sync.WaitGroup
	var mu sync.Mutex
	var got, want []string
	for i := range clients {
		all.Go(func() {
			answer, err := l.request(t.Context())
			if err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, answer)
		})
		want = append(want, fmt.Sprintf("%d.000", i/3))
		if i < 3 {
			want[i] = "0.0"
		}
	}
	var held []chan error
	for range clients { // all of them are under way at once
		select {
		case h := <-s.asked:
			held = append(held, h)
		case <-time.After(patience):
			t.Fatalf("%d of %d have come to the store that hangs", len(held), clients)
		}
	}
	for _, h := range held {
		h <- nil
	}
	all.Wait()
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("the answers are %v, want %v", got, want)
	}
	conn := l.dial(t)
	(<-s.asked) <- gatehouse.Errorf(gatehouse.CodeUnavailable, "the wire is cut")
	if got := rest(t, conn); got != "" {
		t.Errorf("without a decision a client was told %q, want nothing", got)
	}
	l.end(t)
}

// A listener that ends while the store works answers whom it has accepted.
func TestShutdownWhileTheStoreWorks(t *testing.T) {
	clock := new(clock)
	s := &farStore{memory.New(memory.Config{Now: clock.now}), make(chan chan error)}
	l := newListenerOn(t, jarl.PaceLimit{Name: "api", Requests: 3, Period: time.Second}, s, io.Discard)
	conn := l.dial(t)
	held := <-s.asked
	done := make(chan struct{})
	go func() { l.end(t); close(done) }()
	held <- nil
	if got := rest(t, conn); got != "0.0" {
		t.Errorf("the client was told %q, want 0.0", got)
	}
	_ = conn.Close()
	<-done
}
