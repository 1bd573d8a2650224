package lease_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/prometheus/client_golang/prometheus"
)

// TestOneRequestForAllResources: with what each has, and again when one of them is new.
func TestOneRequestForAllResources(t *testing.T) {
	t.Parallel()
	s := (&scripted{get: func(_ int, r *request) (*response, error) {
		return grants(r, 2.5, time.Now().Add(time.Minute)), nil
	}}).start(t)
	c := newClient(t, lease.Config{Servers: []string{s.address}, ID: "me", MinRefresh: time.Hour})
	a, err := c.Resource("a", 3, 9)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Ready(in(t, patience)); err != nil || a.Capacity() != 2.5 || !a.Leased() {
		t.Fatalf("Ready = %v with %g, leased %t, want nil with 2.5 by a lease", err, a.Capacity(), a.Leased())
	}
	b := claim(t, c, "b", 0)
	if err := b.Ready(in(t, patience)); err != nil {
		t.Fatal(err)
	}
	first, second := s.requests[0].GetResource(), s.requests[1].GetResource()
	if len(s.requests) != 2 || s.requests[0].GetClientId() != "me" || len(first) != 1 || len(second) != 2 {
		t.Fatalf("requests = %v, want one with a, then one with a and b", s.requests)
	}
	if r := first[0]; r.GetResourceId() != "a" || r.GetWants() != 3 || r.GetPriority() != 9 || r.Has != nil {
		t.Errorf("first request = %v, want a, wants 3, priority 9, and no lease", r)
	}
	if has := second[0].GetHas(); has.GetCapacity() != 2.5 || has.GetRefreshInterval() != 1 ||
		has.GetExpiryTime() < time.Now().Unix()+50 {
		t.Errorf("second request has %v, want the lease of the first", has)
	}
	if r := second[1]; r.Wants == nil || r.GetWants() != 0 || r.Priority == nil || r.Has != nil {
		t.Errorf("second request = %v, want wants 0 and priority 0 said, and no lease", r)
	}
	if got := a.Lease(); got.Capacity != 2.5 || time.Until(got.Expiry) < 50*time.Second {
		t.Errorf("Lease = %+v, want 2.5 for a minute", got)
	}
	if c.Master() != s.address {
		t.Errorf("Master = %q, want %q", c.Master(), s.address)
	}
	if err := c.Close(in(t, patience)); err != nil {
		t.Errorf("Close = %v, want nil", err)
	}
	if len(s.released) != 1 || len(s.released[0].GetResourceId()) != 2 {
		t.Errorf("released = %v, want a and b at once", s.released)
	}
}

// TestSharesFollowWants: two clients of one process have a lease each, and see at once what other wants
// bring.
func TestSharesFollowWants(t *testing.T) {
	t.Parallel()
	at := address(t)
	serve(t, at, shared(30*second))
	one := newClient(t, lease.Config{Servers: []string{at}})
	two := newClient(t, lease.Config{Servers: []string{at}})
	a, b := claim(t, one, "r", 30), claim(t, two, "r", 60)
	becomes(t, a, 30)
	becomes(t, b, 60)
	if err := a.Want(200); err != nil {
		t.Fatal(err)
	}
	becomes(t, b, 50)
	becomes(t, a, 50)
	if err := b.Release(in(t, patience)); err != nil {
		t.Errorf("Release = %v, want nil", err)
	}
	becomes(t, a, 100)
	if b.Capacity() != 0 || b.Leased() {
		t.Errorf("capacity after Release = %g, want 0", b.Capacity())
	}
	again := claim(t, two, "r", 10) // the name is free again
	becomes(t, again, 10)
}

// TestClientsOfOneProcessHaveTheirOwnNames: with doorman's they share one, and take each other's lease.
func TestClientsOfOneProcessHaveTheirOwnNames(t *testing.T) {
	seen := map[string]bool{}
	for range 20 {
		c := newClient(t, lease.Config{Servers: []string{"127.0.0.1:1"}})
		if id := c.ID(); seen[id] || strings.Count(id, ":") != 2 {
			t.Errorf("ID = %q, want a new one of host, process and chance", id)
		}
		seen[c.ID()] = true
	}
}

// TestKeepsItsLeaseThroughAShortOutage: the server is away for less than the lease, and nobody notices.
func TestKeepsItsLeaseThroughAShortOutage(t *testing.T) {
	t.Parallel()
	at := address(t)
	lasting := shared(time.Minute)
	lasting.Algorithm.Learning = nil // the new server repeats what clients say they hold
	kill := serve(t, at, shared(time.Minute))
	failed := make(chan struct{}, 1000)
	c := newClient(t, lease.Config{Servers: []string{at}, OnError: func(error) { failed <- struct{}{} }})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	kill()
	changed := r.Changed()
	for range 3 {
		<-failed
	}
	before := r.Lease().Expiry
	serve(t, at, lasting)
	until(t, "the lease is renewed", func() bool { return r.Lease().Expiry.After(before) })
	select {
	case <-changed:
		t.Errorf("capacity has changed, to %g, want 40 all the time", r.Capacity())
	default:
	}
	if !r.Leased() || c.Master() != at {
		t.Errorf("leased = %t by %q, want by %q", r.Leased(), c.Master(), at)
	}
}

// TestFallsToTheSafeCapacityWhenItsLeaseEnds: the server is away for longer than the lease; then it comes
// back. doorman's client keeps the old capacity for ever, and cannot be closed.
func TestFallsToTheSafeCapacityWhenItsLeaseEnds(t *testing.T) {
	t.Parallel()
	at := address(t)
	kill := serve(t, at, shared(6*second))
	var failures atomic.Int64
	c := newClient(t, lease.Config{Servers: []string{at}, OnError: func(error) { failures.Add(1) }})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	before := r.Lease()
	kill()
	begun := time.Now()
	becomes(t, r, 7)
	if late := time.Since(before.Expiry); late < -2*time.Millisecond && time.Since(begun) < 2*second {
		t.Errorf("fell %s before the end of its lease", -late)
	}
	if r.Leased() || r.Lease().Capacity != 0 {
		t.Errorf("leased = %t, %+v, want no lease", r.Leased(), r.Lease())
	}
	until(t, "the user is told, and there is no master", func() bool {
		return failures.Load() > 0 && c.Master() == ""
	})
	serve(t, at, shared(time.Minute))
	becomes(t, r, 40)
}

// A silent server accepts connections and never says anything.
func silent(t *testing.T) (at string) {
	t.Helper()
	at = address(t)
	listener := listen(t, at)
	t.Cleanup(func() { _ = listener.Close() })
	return at // the system accepts
}

// TestLeaseEndsWhileARequestHangs: nobody need answer for a lease to end in time.
func TestLeaseEndsWhileARequestHangs(t *testing.T) {
	t.Parallel()
	hang, hanging := make(chan struct{}), make(chan struct{}, 10)
	s := (&scripted{get: func(n int, r *request) (*response, error) {
		if n > 1 {
			hanging <- struct{}{}
			<-hang
		}
		return grants(r, 40, time.Now().Add(10*second)), nil
	}}).start(t)
	t.Cleanup(func() { close(hang) })
	c := newClient(t, lease.Config{Servers: []string{s.address}, Timeout: time.Hour})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	<-hanging
	becomes(t, r, 7)
	begun := time.Now()
	if err := r.Want(3); err != nil || time.Since(begun) > prompt {
		t.Errorf("Want = %v after %s, want nil at once", err, time.Since(begun))
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.Release(soon); !errors.Is(err, context.DeadlineExceeded) || time.Since(begun) > prompt {
		t.Errorf("Release = %v after %s, want a timeout at once", err, time.Since(begun))
	}
}

// TestCloseWhileServersAreAway: within the Timeout.
func TestCloseWhileServersAreAway(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"nobody listens": address(t), "nobody answers": silent(t)} {
		c := newClient(t, lease.Config{Servers: []string{at}, Timeout: 500 * time.Millisecond})
		r := claim(t, c, "r", 40)
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := r.Ready(soon); gatehouse.CodeOf(err) != gatehouse.CodeTimeout {
			t.Errorf("%s: Ready = %v, want a timeout", name, err)
		}
		cancel()
		begun := time.Now()
		err := c.Close(context.Background())
		if again := c.Close(context.Background()); !errors.Is(again, err) && again != nil {
			t.Errorf("%s: second Close = %v, want %v", name, again, err)
		}
		if time.Since(begun) > prompt {
			t.Errorf("%s: Close = %v after %s, want it within 0.5 s", name, err, time.Since(begun))
		}
	}
}

// TestCloseGivesUp: what could not be given back is an error, in time.
func TestCloseGivesUp(t *testing.T) {
	t.Parallel()
	at := address(t)
	kill := serve(t, at, shared(time.Minute))
	c := newClient(t, lease.Config{Servers: []string{at}, Timeout: 5 * second})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	kill()
	begun := time.Now()
	if err := c.Close(context.Background()); gatehouse.CodeOf(err) != gatehouse.CodeUnavailable {
		t.Errorf("Close = %v, want unavailable", err)
	}
	if time.Since(begun) > prompt {
		t.Errorf("Close took %s, want at most one Timeout", time.Since(begun))
	}
}

// TestAfterClose: every call says so, nothing blocks, and channels are closed.
func TestAfterClose(t *testing.T) {
	t.Parallel()
	at := address(t)
	serve(t, at, shared(30*second))
	c := newClient(t, lease.Config{Servers: []string{at}})
	r := claim(t, c, "r", 40)
	becomes(t, r, 40)
	limiter := lease.NewRateLimiter(r)
	for range 3 {
		if err := c.Close(in(t, patience)); err != nil {
			t.Errorf("Close = %v, want nil", err)
		}
	}
	if _, err := c.Resource("s", 1, 0); !errors.Is(err, lease.ErrClosed) {
		t.Errorf("Resource = %v, want ErrClosed", err)
	}
	for name, err := range map[string]error{
		"Want": r.Want(3), "Wait": limiter.Wait(t.Context()),
		"Acquire": lease.NewGauge(r).Acquire(t.Context()),
	} {
		if !errors.Is(err, lease.ErrClosed) {
			t.Errorf("%s = %v, want ErrClosed", name, err)
		}
	}
	if err := r.Release(in(t, patience)); err != nil {
		t.Errorf("Release = %v, want nil", err)
	}
	<-r.Done()
	if r.Capacity() != 0 || r.Leased() {
		t.Errorf("capacity = %g, want 0", r.Capacity())
	}
	for range r.Changes() { // ends
	}
	other := claim(t, newClient(t, lease.Config{Servers: []string{at}}), "r", 100)
	becomes(t, other, 100) // everything was given back
}

// TestChangesHoldTheLatest: who does not read for a while misses old amounts, not the last.
func TestChangesHoldTheLatest(t *testing.T) {
	t.Parallel()
	const last = 60
	s := (&scripted{get: func(n int, r *request) (*response, error) {
		answer := grants(r, float64(min(n, last)), time.Now().Add(time.Minute))
		for _, entry := range answer.Response {
			*entry.Gets.RefreshInterval = 0
		}
		return answer, nil
	}}).start(t)
	c := newClient(t, lease.Config{Servers: []string{s.address}, MinRefresh: 10 * time.Millisecond})
	r := claim(t, c, "r", 100)
	becomes(t, r, last)
	if got := <-r.Changes(); got != last {
		t.Errorf("Changes after %d = %g, want the latest", last, got)
	}
}

// TestNoGrantIsNoLimit: a server that grants less than nothing, or no number, lifts no limit.
func TestNoGrantIsNoLimit(t *testing.T) {
	t.Parallel()
	for _, amount := range []float64{-200, -1, math.NaN(), math.Inf(1)} {
		s := (&scripted{get: func(_ int, r *request) (*response, error) {
			return grants(r, amount, time.Now().Add(time.Minute)), nil
		}}).start(t)
		r := claim(t, newClient(t, lease.Config{Servers: []string{s.address}}), "r", 100)
		err := r.Ready(in(t, patience))
		if err != nil || r.Capacity() != 0 || lease.NewRateLimiter(r).Allow() {
			t.Errorf("capacity after a grant of %g = %g, %v, want 0", amount, r.Capacity(), err)
		}
	}
}

// TestWrongArguments: each is refused, and changes nothing.
func TestWrongArguments(t *testing.T) {
	c := newClient(t, lease.Config{Servers: []string{address(t)}, Fallback: -1})
	r := claim(t, c, "r", 40)
	if r.Capacity() != -1 || r.Leased() || r.ID() != "r" {
		t.Errorf("capacity before an answer = %g, want the fallback, -1", r.Capacity())
	}
	resource := func(id string, wants float64) error { _, err := c.Resource(id, wants, 0); return err }
	create := func(config lease.Config) error { _, err := lease.New(config); return err }
	some := []string{"localhost:1"}
	for name, err := range map[string]error{
		"a second time":         resource("r", 1),
		"no name":               resource("", 1),
		"a long name":           resource(strings.Repeat("x", 513), 1),
		"no text":               resource("\xff", 1),
		"a control character":   resource("a\n", 1),
		"less than nothing":     r.Want(-1),
		"no number":             r.Want(math.NaN()),
		"no finite number":      r.Want(math.Inf(1)),
		"a new one, no number":  resource("s", math.NaN()),
		"no servers":            create(lease.Config{}),
		"an empty address":      create(lease.Config{Servers: strings.Split("", ",")}),
		"a fallback below none": create(lease.Config{Servers: some, Fallback: -2}),
		"a long ID":             create(lease.Config{Servers: some, ID: strings.Repeat("x", 513)}),
	} {
		if gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, err)
		}
	}
	if err := r.Want(0); err != nil {
		t.Errorf("Want(0) = %v, want nil", err)
	}
	if err := resource(strings.Repeat("x", 512), 1e15); err != nil {
		t.Errorf("Resource at the limits = %v, want nil", err)
	}
}

// TestMetrics: doorman's names, shared by two clients of one process.
func TestMetrics(t *testing.T) {
	t.Parallel()
	at, away := address(t), address(t)
	serve(t, at, shared(30*second))
	registry := prometheus.NewRegistry()
	for range 2 {
		c := newClient(t, lease.Config{Servers: []string{away, at}, Metrics: registry})
		becomes(t, claim(t, c, "r", 1), 1)
		if err := c.Close(in(t, patience)); err != nil {
			t.Fatal(err)
		}
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + strings.NewReplacer(at, "there", away, "away").Replace(label.GetValue())
			}
			got[name] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	for name, atLeast := range map[string]float64{
		"doorman_client_requests GetCapacity there":              2,
		"doorman_client_requests ReleaseCapacity there":          2,
		"doorman_client_requests GetCapacity away":               2,
		"doorman_client_request_errors GetCapacity away":         2,
		"doorman_client_request_durations GetCapacity there":     2,
		"doorman_client_request_durations ReleaseCapacity there": 2,
	} {
		if got[name] < atLeast {
			t.Errorf("%s = %g, want %g or more; all: %v", name, got[name], atLeast, got)
		}
	}
	if n := got["doorman_client_request_errors GetCapacity there"]; n != 0 {
		t.Errorf("errors there = %g, want none", n)
	}
}
