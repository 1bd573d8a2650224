package grpc

import (
	"context"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Many large messages at once do not take many times their size: all but a few are bytes until it is their
// turn.
func TestLargeMessagesAtOnce(t *testing.T) {
	const clients, each, resources, most = 40, 20, 3000, 130 << 20
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	var asks []*doormanpb.ResourceRequest
	for i := range resources {
		asks = append(asks, want(string(rune('a'+i%26)), 1))
	}
	body := message(asked("x", asks...), 0)
	before := heap()
	s.mu.Lock() // nothing is decided meanwhile, as where the lock is what all wait for
	for range clients {
		c := newRawClient(t, s)
		for range each {
			c.begin(body, true)
		}
	}
	await.True(t, "all messages have come", func() bool {
		return s.conns.budget.Used() >= int64(clients*each*len(body))
	})
	grown := heap() - before
	s.mu.Unlock()
	if grown > most {
		t.Errorf("%d messages of %d bytes took %d MiB, want at most %d", clients*each, len(body), grown>>20,
			most>>20)
	}
	await.True(t, "all are answered", func() bool { return s.conns.calls.Load() == 0 })
	if got := s.ask(t, "x", want("b", 5)); got[0] != 5 {
		t.Errorf("the next call gets %v, want 5", got[0])
	}
}

// A client that does not end its half of a call has no turn meanwhile.
func TestLargeMessageWithoutEnd(t *testing.T) {
	s := start(t, Config{ReadTimeout: time.Minute}, shared(capacity.FairShare, 100))
	large := manyResources("x", largeMessage)
	body := message(asked("x", large.Resource...), 0)
	c := newRawClient(t, s)
	for range 3 * cap(s.turns) {
		c.begin(body, false)
	}
	await.True(t, "all messages have come", func() bool {
		return s.conns.budget.Used() >= int64(3*cap(s.turns)*len(body))
	})
	s.ask(t, "y", large.Resource...)
	await.True(t, "no turn is taken", func() bool { return len(s.turns) == 0 })
	if got := s.conns.calls.Load(); got != int64(3*cap(s.turns)) {
		t.Errorf("%d calls are under way, want %d", got, 3*cap(s.turns))
	}
}

// While large messages have all turns, small ones are answered, and a call whose client gives up ends.
func TestLargeMessageGivesUp(t *testing.T) {
	s := start(t, Config{}, shared(capacity.FairShare, 100))
	for range cap(s.turns) {
		s.turns <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(in(t), 50*time.Millisecond)
	defer cancel()
	large := manyResources("x", largeMessage)
	_, err := s.client.GetCapacity(ctx, large)
	if status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("a large message without a turn gets %v, want DeadlineExceeded", err)
	}
	await.True(t, "its call has ended", func() bool { return s.conns.calls.Load() == 0 })
	if got := s.ask(t, "y", want("r", 5)); got[0] != 5 {
		t.Errorf("a small message gets %v, want 5", got[0])
	}
	for range cap(s.turns) {
		<-s.turns
	}
	// More of them than there are turns: each gives its turn back, also one that is refused.
	for i := range 2*cap(s.turns) + 1 {
		wanted := codes.OK
		large.ClientId = new("x")
		if i%2 == 1 {
			wanted, large.ClientId = codes.InvalidArgument, new("")
		}
		_, err := s.client.GetCapacity(in(t), large)
		if status.Code(err) != wanted {
			t.Errorf("large message %d gets %v, want %v", i, err, wanted)
		}
	}
	await.True(t, "all turns are back", func() bool { return len(s.turns) == 0 })
}
