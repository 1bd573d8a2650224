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
	errLost  = errors.New("the connection is lost")
	errUnder = fmt.Errorf("%w: no connection", cas.ErrNotSent)
)

// ask is one request under way.
func (s *Store) ask(ctx context.Context, b *Server, key gatehouse.Key, c *cas.Change) (cas.Reply, error) {
	f := s.fate(b)
	if f.unsent {
		return cas.Reply{}, errUnder
	}
	answer := make(chan cas.Reply, 1)
	if !f.lost {
		time.AfterFunc(f.there, func() {
			s.running(func() {
				r := s.carryOut(b, key, c)
				if f.twice {
					r = s.carryOut(b, key, c)
				}
				if !f.silent {
					time.AfterFunc(f.back, func() { answer <- r })
				}
			})
		})
	}
	var broken <-chan time.Time
	if f.breaks > 0 {
		timer := time.NewTimer(f.breaks)
		defer timer.Stop()
		broken = timer.C
	}
	select {
	case r := <-answer:
		return r, nil
	case <-broken:
		return cas.Reply{}, errLost
	case <-ctx.Done():
		return cas.Reply{}, ctx.Err()
	}
}

// running does something now, or when a pause ends.
func (s *Store) running(work func()) {
	s.mu.Lock()
	if s.paused {
		s.backlog = append(s.backlog, work)
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	work()
}

// A fate is what will become of a request.
type fate struct {
	unsent, lost, silent, twice bool
	there, back                 time.Duration
	breaks                      time.Duration // when the caller is told that the connection broke; 0 is never
}

func (s *Store) fate(b *Server) fate {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := fate{
		unsent: s.chance(s.faults.Unsent), lost: b.cut || s.chance(s.faults.LostRequest),
		silent: s.chance(s.faults.LostAnswer), twice: s.chance(s.faults.Twice),
		there: s.latency() + b.far/2, back: s.latency() + b.far/2,
	}
	if s.chance(s.faults.Late) {
		f.there += time.Duration(s.rand.Int64N(int64(3 * time.Second)))
		f.breaks = f.back + time.Millisecond
	}
	if (f.lost || f.silent) && !s.chance(s.faults.Silent) {
		f.breaks = f.there + f.back + time.Millisecond
	}
	if f != (fate{there: f.there, back: f.back}) {
		s.note("server %x asks: %+v", b.number, f)
	}
	return f
}
