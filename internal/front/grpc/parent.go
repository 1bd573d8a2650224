package grpc

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/prometheus/client_golang/prometheus"
)

// askJitter is by what part the asking of a parent is put off at random, so that servers which were started
// together do not go on asking together.
const askJitter = 0.1

// A parentState is what is known of the servers this one gets its capacity from. The server's lock guards
// it, but for what only the goroutine of follow uses.
type parentState struct {
	wake       chan struct{} // says that there is something to ask before planned
	plan       time.Time     // when follow asks next; zero: when it is woken
	address    string        // the address that answered last
	askedAt    time.Time     // when an answer was last asked for
	answeredAt time.Time     // when one last came; zero: never
	fault      error         // why the last question has no answer; nil if it has

	client        *parentClient // of follow alone
	loggedFailure string        // the failure that the log has, empty while the parent answers
	loggedRefusal string        // the last refusal that the log has
	loggedAddress string        // the address that the log has
}

// followParent asks the parent for capacity until ctx ends, whenever the core has something to ask. It is
// off the path of requests: those are decided with what the parent said last.
func (s *Server) followParent(ctx context.Context) {
	p := &s.parent
	if s.config.Metrics != nil {
		s.config.Metrics.MustRegister(s.parentGauge())
	}
	p.client = newCaller(s.config.Parents, s.config.Dial, s.now)
	defer p.client.closeConn()
	timer := time.NewTimer(never)
	defer timer.Stop()
	for {
		timer.Reset(s.planRequest())
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
			s.askParent(ctx)
		}
	}
}

// planRequest is how long follow waits: until there is something to ask, and some time more. A server that
// does not lead waits until it is woken.
func (s *Server) planRequest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.parent.plan = s.core.NextAsk()
	if s.parent.plan.IsZero() || !s.core.Leading(now) {
		s.parent.plan = time.Time{}
		return never
	}
	wait := max(s.parent.plan.Sub(now), 0)
	return wait + time.Duration(askJitter*rand.Float64()*float64(wait))
}

// parentGauge shows when the parent answered last. While nothing is asked for that may be long ago.
func (s *Server) parentGauge() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "gatehouse_capacity_parent_timestamp_seconds",
		Help: "When the parent last answered, in seconds since 1970; 0 before it did.",
	}, func() float64 {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.parent.answeredAt.IsZero() {
			return 0
		}
		return float64(s.parent.answeredAt.UnixMilli()) / 1e3
	})
}

// wakeParent has follow plan anew if there is something to ask before it means to. The caller holds the lock.
func (s *Server) wakeParent() {
	if len(s.config.Parents) == 0 {
		return
	}
	next, plan := s.core.NextAsk(), s.parent.plan
	if next.IsZero() || !plan.IsZero() && !next.Before(plan) {
		return
	}
	select {
	case s.parent.wake <- struct{}{}:
	default:
	}
}

// askParent asks once for all that is due, and then gives back what nobody uses any more. A parent that does
// not answer need not hear of that: it is free when this server's lease on it is over.
func (s *Server) askParent(ctx context.Context) {
	s.mu.Lock()
	now := s.now()
	name := cmp.Or(s.config.Name, s.state.address)
	asks, unused := s.core.Asks(now), s.core.Unused()
	if len(asks) > 0 {
		s.parent.askedAt = now
	}
	s.mu.Unlock()

	caller := s.parent.client
	var err error
	if len(asks) > 0 {
		var answers []capacity.Grant
		answers, err = caller.requestAll(ctx, name, asks)
		s.onParentReply(ctx, answers, err)
	}
	if err == nil || isRefusal(err) {
		caller.releaseResources(ctx, name, unused)
	}
}

// onParentReply takes the answers of the parent, or that there are none.
func (s *Server) onParentReply(ctx context.Context, answers []capacity.Grant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	now, p := s.now(), &s.parent
	if len(answers) > 0 {
		p.answeredAt = now
	}
	if len(answers) > 0 || err == nil || isRefusal(err) {
		s.core.Told(now, answers)
	} else {
		s.core.ParentFailed(now)
	}
	p.address, p.fault = p.client.address, err
	s.metrics.countParentRequest(err)
	s.expireLeases(now)
	s.logParent(err)
}

// logParent logs when the parent begins or ceases to answer, and each refusal that differs from the last.
func (s *Server) logParent(err error) {
	p := &s.parent
	switch {
	case err != nil && isRefusal(err):
		if text := err.Error(); text != p.loggedRefusal {
			p.loggedRefusal = text
			s.log.Error("the parent refuses what it is asked", "error", err)
		}
	case err != nil:
		if text := err.Error(); text != p.loggedFailure {
			p.loggedFailure = text
			s.log.Warn("the parent does not answer; what it gave holds until its lease is over", "error", err)
		}
	case p.loggedFailure != "" || p.loggedAddress != p.address:
		p.loggedFailure, p.loggedAddress = "", p.address
		s.log.Info("the parent answers", "address", p.address)
	}
}
