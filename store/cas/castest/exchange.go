package castest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

var (
	errLost         = errors.New("the connection is lost")
	errNotConnected = fmt.Errorf("%w: no connection", cas.ErrNotSent)
)

// exchangeChange is one request under way.
func (s *Store) exchangeChange(
	ctx context.Context, b *Server, key gatehouse.Key, c *cas.RecordChange,
) (cas.Reply, error) {
	replies, err := s.exchangeRequest(ctx, b, func() []cas.Reply {
		return []cas.Reply{s.applyChange(b, key, c)}
	})
	if err != nil {
		return cas.Reply{}, err
	}
	return replies[0], nil
}

// exchangeRequest is one request under way, which does something at the store.
func (s *Store) exchangeRequest(
	ctx context.Context, b *Server, apply func() []cas.Reply,
) ([]cas.Reply, error) {
	f := s.planFaults(b)
	if f.unsent {
		return nil, errNotConnected
	}
	// One slot: an answer that comes after the caller gave up finds room and is forgotten.
	answer := make(chan []cas.Reply, 1)
	// The request is carried out whether its caller still waits or not, as in a real network.
	if !f.lost {
		time.AfterFunc(f.requestDelay, func() {
			s.runOrDefer(func() {
				r := apply()
				// The second one is answered. It conflicts with the first, which the caller must recognise
				// by the nonce.
				if f.twice {
					r = apply()
				}
				if !f.silent {
					time.AfterFunc(f.answerDelay, func() { answer <- r })
				}
			})
		})
	}
	// A nil channel never fires: a silent loss shows only when the caller's time is up.
	var broken <-chan time.Time
	if f.breaksAfter > 0 {
		timer := time.NewTimer(f.breaksAfter)
		defer timer.Stop()
		broken = timer.C
	}
	select {
	case r := <-answer:
		return r, nil
	case <-broken:
		return nil, errLost
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// runOrDefer does something now, or when a pause ends.
func (s *Store) runOrDefer(work func()) {
	s.mu.Lock()
	if s.paused {
		s.backlog = append(s.backlog, work)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	work()
}

// A faultPlan is what will become of a request.
type faultPlan struct {
	unsent, lost, silent, twice bool
	requestDelay, answerDelay   time.Duration
	breaksAfter                 time.Duration // when the connection breaks for the caller; 0 is never
}

func (s *Store) planFaults(b *Server) faultPlan {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := faultPlan{
		unsent: s.chance(s.faults.Unsent), lost: b.cut || s.chance(s.faults.LostRequest),
		silent: s.chance(s.faults.LostAnswer), twice: s.chance(s.faults.Twice),
		requestDelay: s.latency() + b.extraLatency/2, answerDelay: s.latency() + b.extraLatency/2,
	}
	if s.chance(s.faults.Late) {
		// Carried out late, and the caller learns of a broken connection long before.
		f.requestDelay += time.Duration(s.rand.Int64N(int64(3 * time.Second)))
		f.breaksAfter = f.answerDelay + time.Millisecond
	}
	if (f.lost || f.silent) && !s.chance(s.faults.Silent) {
		f.breaksAfter = f.requestDelay + f.answerDelay + time.Millisecond
	}
	// Only what goes wrong is logged; the delays are in every exchange.
	if f != (faultPlan{requestDelay: f.requestDelay, answerDelay: f.answerDelay}) {
		s.logLine("server %x asks: %+v", b.number, f)
	}
	return f
}
