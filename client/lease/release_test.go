package lease_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// names are the resources that were given back, in order.
func (s *scripted) names() (all []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.released {
		all = append(all, r.GetResourceId()...)
	}
	return all
}

// minute answers each request with 40 for a minute.
func minute(_ int, r *request) (*response, error) {
	return grants(r, 40, time.Now().Add(time.Minute)), nil
}

// TestReleaseAndCloseAtOnce: whoever is first, both come to an end, and what was held is given back once.
func TestReleaseAndCloseAtOnce(t *testing.T) {
	t.Parallel()
	for range 20 {
		s := &scripted{get: minute}
		s.start(t)
		c := newClient(t, lease.Config{Servers: []string{s.address}})
		a, b := claim(t, c, "a", 40), claim(t, c, "b", 40)
		becomes(t, a, 40)
		becomes(t, b, 40)
		var all sync.WaitGroup
		for _, end := range []func(context.Context) error{a.Release, b.Release, c.Close, c.Close} {
			all.Go(func() {
				if err := end(in(t, patience)); err != nil {
					t.Errorf("Release or Close = %v, want nil", err)
				}
			})
		}
		all.Wait()
		got := s.names()
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("given back %v, want a and b", got)
		}
	}
}

// TestCloseWhileAReleaseHangs: what did not get through is given back by Close.
func TestCloseWhileAReleaseHangs(t *testing.T) {
	t.Parallel()
	hang, hanging := make(chan struct{}), make(chan struct{}, 10)
	s := &scripted{get: minute}
	s.freed = func(*doormanpb.ReleaseCapacityRequest) {
		hanging <- struct{}{}
		if len(s.names()) == 1 {
			<-hang
		}
	}
	s.start(t)
	t.Cleanup(func() { close(hang) })
	c := newClient(t, lease.Config{Servers: []string{s.address}})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	released := make(chan error, 1)
	go func() { released <- r.Release(t.Context()) }()
	<-hanging
	if err := c.Close(in(t, patience)); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if err := <-released; err != nil || len(s.names()) != 2 {
		t.Errorf("Release = %v, sent %v, want nil, and sent once more by Close", err, s.names())
	}
}

// TestANameThatIsTakenAgain: what is given back is so before it is asked for anew, never after.
func TestANameThatIsTakenAgain(t *testing.T) {
	t.Parallel()
	hang, hanging := make(chan struct{}), make(chan struct{}, 10)
	s := &scripted{}
	var freed []int // before each request, how many releases there were
	s.get = func(n int, r *request) (*response, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		freed = append(freed, len(s.released))
		return minute(n, r)
	}
	s.freed = func(r *doormanpb.ReleaseCapacityRequest) {
		hanging <- struct{}{}
		if slices.Contains(r.GetResourceId(), "a") {
			<-hang
		}
	}
	s.start(t)
	c := newClient(t, lease.Config{Servers: []string{s.address}})
	a, b := claim(t, c, "a", 40), claim(t, c, "b", 40)
	becomes(t, a, 40)
	becomes(t, b, 40)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	go func() { _ = a.Release(t.Context()) }()
	<-hanging
	_ = b.Release(gone)
	again := claim(t, c, "b", 40)
	before := s.asked()
	close(hang)
	if err := again.Ready(in(t, patience)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.released) != 2 || freed[before] != 2 {
		t.Errorf("%d releases, and %d before b was asked for again, want 2 and 2",
			len(s.released), freed[before])
	}
}

// TestLeaseEndsWhileAReleaseHangs: in time, as always.
func TestLeaseEndsWhileAReleaseHangs(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	s := &scripted{get: func(_ int, r *request) (*response, error) {
		return grants(r, 40, time.Now().Add(3*second)), nil // again each second, until one hangs
	}}
	s.freed = func(*doormanpb.ReleaseCapacityRequest) { <-hang }
	s.start(t)
	c := newClient(t, lease.Config{Servers: []string{s.address}, Timeout: time.Hour})
	t.Cleanup(func() { close(hang) })
	a, b := claim(t, c, "a", 40), claim(t, c, "b", 40)
	becomes(t, a, 40)
	becomes(t, b, 40)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := a.Release(soon); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Release = %v, want a timeout", err)
	}
	becomes(t, b, 7)
}

// TestCloseGivesBackWhatMayBeGranted: a request whose answer never came may have been granted all the same.
// Nobody hears of a failure that is Close's own doing.
func TestCloseGivesBackWhatMayBeGranted(t *testing.T) {
	t.Parallel()
	hang, hanging := make(chan struct{}), make(chan struct{}, 10)
	s := (&scripted{get: func(_ int, r *request) (*response, error) {
		hanging <- struct{}{}
		<-hang
		return grants(r, 40, time.Now().Add(time.Minute)), nil
	}}).start(t)
	t.Cleanup(func() { close(hang) })
	failed := make(chan error, 10)
	c := newClient(t, lease.Config{
		Servers: []string{s.address}, OnError: func(err error) { failed <- err },
	})
	claim(t, c, "r", 40)
	<-hanging
	if err := c.Close(in(t, patience)); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if got := s.names(); !slices.Equal(got, []string{"r"}) || len(failed) > 0 {
		t.Errorf("given back %v, %d failures, want r and none", got, len(failed))
	}
}
