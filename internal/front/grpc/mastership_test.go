package grpc

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// A clock is moved by a test.
type clock struct{ nanoseconds atomic.Int64 }

func (c *clock) now() time.Time       { return time.Unix(1_800_000_000, c.nanoseconds.Load()) }
func (c *clock) move(d time.Duration) { c.nanoseconds.Add(int64(d)) }

// leads reports whether a request is decided by this server.
func (s *tested) leads(t *testing.T) bool {
	t.Helper()
	answer, err := s.client.GetCapacity(in(t), &doormanpb.GetCapacityRequest{
		ClientId: new("x"), Resource: []*doormanpb.ResourceRequest{want("r", 30)},
	})
	if err != nil {
		t.Fatal(err)
	}
	if answer.GetMastership() == nil && len(answer.GetResponse()) != 1 {
		t.Errorf("the answer is %v, want one for each resource or where the master is", answer)
	}
	return answer.GetMastership() == nil
}

// A master decides until its time is up, to the instant, whether or not it is told that it is.
func TestMasterUntil(t *testing.T) {
	var c clock
	v := newVote()
	s := start(t, Config{Address: "here:1", Election: v, Now: c.now}, shared(capacity.FairShare, 100))
	if s.leads(t) {
		t.Error("a server that was not elected decides")
	}
	v.tell(t, Mastership{Leading: true, Until: c.now().Add(10 * time.Second), Leader: "here:1"})
	for _, step := range []struct {
		wait time.Duration
		want bool
	}{{0, true}, {10*time.Second - 1, true}, {1, false}, {time.Hour, false}} {
		c.move(step.wait)
		if got := s.leads(t); got != step.want {
			t.Errorf("%s later the server decides = %t, want %t", step.wait, got, step.want)
		}
	}
	discovered, err := s.client.Discovery(in(t), new(doormanpb.DiscoveryRequest))
	if err != nil || discovered.GetIsMaster() || discovered.GetMastership().MasterAddress != nil {
		t.Errorf("Discovery = %v, %v, want no master and no address", discovered, err)
	}
	_, err = s.client.ReleaseCapacity(in(t), &doormanpb.ReleaseCapacityRequest{
		ClientId: new("x"), ResourceId: []string{"r"},
	})
	if err != nil {
		t.Error(err)
	}
}

// A master that is told in time keeps what it gave; one that was late, or lost the election, begins anew.
func TestMasterForgets(t *testing.T) {
	var c clock
	v := newVote()
	s := start(t, Config{Address: "here:1", Election: v, Now: c.now}, shared(capacity.FairShare, 100))
	lead := func() {
		t.Helper()
		v.tell(t, Mastership{Leading: true, Until: c.now().Add(10 * time.Second), Leader: "here:1"})
	}
	for _, step := range []struct {
		fact string
		do   func()
		want int
	}{
		{"elected", lead, 0},
		{"told again in time", func() {
			s.leads(t)
			c.move(9 * time.Second)
			lead()
			c.move(9 * time.Second)
		}, 1},
		{"told again too late", func() { c.move(time.Second); lead() }, 0},
		{"lost and won", func() { s.leads(t); v.tell(t, Mastership{Leader: "there:2"}); lead() }, 0},
	} {
		step.do()
		if got := len(s.all()); got != step.want {
			t.Errorf("%s: there are %d resources, want %d", step.fact, got, step.want)
		}
	}
}

// Requests and releases from everywhere, of all kinds, while the master changes: each is decided or sent
// on, none is both, and the server lives. With the race detector this is where it looks.
func TestLosingMastershipDuringRequests(t *testing.T) {
	v := newVote()
	s := start(t, Config{Address: "here:1", Election: v}, shared(capacity.FairShare, 100))
	var clients, changes sync.WaitGroup
	done := make(chan struct{})
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				v.tell(t, Mastership{Leading: i%2 == 0, Leader: []string{"here:1", "there:2"}[i%2]})
			}
		}
	})
	for i := range 4 {
		clients.Go(func() { s.everything(t, "client-"+strconv.Itoa(i), 100) })
	}
	clients.Wait()
	close(done)
	changes.Wait()
}

// The same while nothing else happens.
func TestGetAndReleaseAtOnce(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	var clients sync.WaitGroup
	for i := range 4 {
		clients.Go(func() { s.everything(t, "client-"+strconv.Itoa(i), 300) })
	}
	clients.Go(func() {
		for range 100 {
			s.all()
			s.Configure(capacity.Templates{shared(capacity.ProportionalShare, 100)}, "again")
		}
	})
	clients.Wait()
	if all := s.all(); len(all) != 0 {
		t.Errorf("after everything was released there is %v, want nothing", all)
	}
}

// everything makes all kinds of requests, and releases what it got.
func (s *tested) everything(t *testing.T, client string, rounds int) {
	t.Helper()
	for i := range rounds {
		ctx := in(t)
		get, err := s.client.GetCapacity(ctx, &doormanpb.GetCapacityRequest{
			ClientId: &client, Resource: []*doormanpb.ResourceRequest{want("r", float64(i)), want("q", 30)},
		})
		if err != nil || get.Mastership != nil && len(get.GetResponse()) > 0 {
			t.Errorf("GetCapacity = %v, %v, want either grants or where the master is", get, err)
			return
		}
		_, err = s.client.GetServerCapacity(ctx, &doormanpb.GetServerCapacityRequest{
			ServerId: &client, Resource: []*doormanpb.ServerCapacityResourceRequest{{
				ResourceId: new("r"), Wants: bands(3),
			}},
		})
		if err != nil {
			t.Errorf("GetServerCapacity: %v", err)
			return
		}
		_, err = s.client.ReleaseCapacity(ctx, &doormanpb.ReleaseCapacityRequest{
			ClientId: &client, ResourceId: []string{"r", "q", "none"},
		})
		if err != nil {
			t.Errorf("ReleaseCapacity: %v", err)
			return
		}
	}
}
