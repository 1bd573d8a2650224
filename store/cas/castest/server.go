package castest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// A Server is the cas.Backend of one server.
type Server struct {
	store        *Store
	number       uint32
	skew         time.Duration // of its clock, which matters when the store has none
	cut          bool          // nothing gets through; guarded by the store's lock
	extraLatency time.Duration // how much longer its round trips take; guarded by the store's lock

	mu   sync.RWMutex
	wake func(gatehouse.Key)
}

var _ cas.Backend = (*Server)(nil)

// Server returns the connection of another server, whose clock is off by skew.
func (s *Store) Server(skew time.Duration) *Server {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &Server{store: s, skew: skew}
	s.servers = append(s.servers, b)
	return b
}

// Cut breaks the connection, or heals it.
func (b *Server) Cut(cut bool) {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logLine("server %x is cut off: %t", b.number, cut)
	b.cut = cut
	if !cut {
		// A new connection may have missed messages, so all names are woken.
		s.sendWake(b, gatehouse.Key{})
	}
}

// SetExtraLatency has each round trip of this server take longer by that much from now on.
func (b *Server) SetExtraLatency(far time.Duration) {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	b.extraLatency = far
}

// Swap implements cas.Backend.
func (b *Server) Swap(ctx context.Context, key gatehouse.Key, change *cas.RecordChange) (cas.Reply, error) {
	c := *change // which may still be under way when its caller has given up
	// The caller may reuse these once Swap has returned.
	c.Next, c.Wake = slices.Clone(c.Next), slices.Clone(c.Wake)
	c.Begin, c.End = slices.Clone(c.Begin), slices.Clone(c.End)
	return b.store.exchangeChange(ctx, b, key, &c)
}

// Start is Swap without a goroutine of the caller's: answered is called once.
func (b *Server) Start(
	ctx context.Context, key gatehouse.Key, change *cas.RecordChange, answered func(cas.Reply, error),
) {
	go func() { answered(b.Swap(ctx, key, change)) }()
}

// Listen implements cas.Backend.
func (b *Server) Listen(server uint32, wake func(gatehouse.Key)) (stop func()) {
	b.store.mu.Lock()
	b.number = server
	b.store.mu.Unlock()
	b.mu.Lock()
	b.wake = wake
	b.mu.Unlock()
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.wake = nil
	}
}

func (b *Server) wakeUp(key gatehouse.Key) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.wake != nil {
		b.wake(key)
	}
}

// Absent tells whether a server is cut off or has stopped listening, as Redis does.
func (b *Server) Absent(_ context.Context, asking, server uint32) bool {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	listens := func(number uint32) bool {
		return slices.ContainsFunc(s.servers, func(of *Server) bool {
			of.mu.RLock()
			defer of.mu.RUnlock()
			return of.number == number && of.wake != nil && !of.cut
		})
	}
	return !s.expiresHolds && !listens(server) && listens(asking)
}

// Range implements cas.Backend.
func (b *Server) Range(
	ctx context.Context, kind gatehouse.Kind, after string, visit func(string, []byte) bool,
) error {
	names, records := b.store.recordsAfter(kind, after)
	for i, name := range names {
		if err := ctx.Err(); err != nil {
			return err
		}
		// Expired between the listing of the names and the look at the record.
		if records[i] != nil && !visit(name, records[i]) {
			return nil
		}
	}
	return nil
}

// Traits implements cas.Backend.
func (b *Server) Traits() cas.Traits {
	return cas.Traits{
		Fences: b.store.expiresHolds, ExpiresHolds: b.store.expiresHolds, Claims: true,
		KeyOf: gatehouse.Key.String,
	}
}
