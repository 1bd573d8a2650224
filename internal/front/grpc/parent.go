package grpc

import (
	"cmp"
	"context"
	"math/rand/v2"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/certs/rpccerts"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"google.golang.org/grpc"
)

// askJitter is by what part a request to the parent is delayed at random, so that servers which were started
// together do not keep asking together.
const askJitter = 0.1

// A parentState is what is known of the servers that this one gets its capacity from. The server's lock
// guards it, except for the fields of followParent's goroutine.
type parentState struct {
	wake       chan struct{} // tells that a request is due before plan
	plan       time.Time     // when followParent asks next; zero means when it is woken
	address    string        // the address that answered last
	answeredAt time.Time     // when the last answer came; zero means never
	fault      error         // why the last request got no answer; nil if it did

	client        *parentClient // used by followParent alone, as are the next three
	loggedFailure string        // the failure logged last, empty while the parent answers
	loggedRefusal string        // the refusal logged last
	loggedAddress string        // the address logged last
}

// followParent asks the parent for capacity until ctx ends, each time that the core has a request due. It is
// off the path of clients' requests: those are decided by what the parent granted last.
//
//	planRequest ──timer──> askParent ──> onParentReply ──┐
//	   ^   ^──wakeParent (an earlier request is due)     │
//	   └─────────────────────────────────────────────────┘
func (s *Server) followParent(ctx context.Context) {
	p := &s.parent
	if s.config.Metrics != nil {
		// While nothing is asked for, the last answer may be long ago.
		telemetry.Gauge(s.config.Metrics, "gatehouse_capacity_parent_timestamp_seconds",
			"Time of the parent's last response, in seconds since 1970; 0 before the first.",
			s.parentAnswered)
	}
	// Made and closed in this goroutine, which alone uses it.
	options := s.config.Dial
	if s.config.ParentTLS != nil {
		options = append([]grpc.DialOption{rpccerts.Option(s.config.ParentTLS)}, options...)
	}
	p.client = &parentClient{
		addresses: s.config.Parents, now: s.now,
		conn: doormanpb.Conn{Token: s.config.ParentToken, Options: options},
	}
	defer p.client.conn.Close()
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

// planRequest returns how long followParent waits: until a request is due, and a little longer at random. A
// server that does not lead waits until it is woken.
func (s *Server) planRequest() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.parent.plan = s.core.NextAsk()
	if s.parent.plan.IsZero() || !s.core.Leading(now) {
		s.parent.plan = time.Time{}
		return never
	}
	// The delay is a part of the wait, so a request that is due now is not delayed at all.
	wait := max(s.parent.plan.Sub(now), 0)
	return wait + time.Duration(askJitter*rand.Float64()*float64(wait))
}

// parentAnswered returns when the parent answered last, as a metric has it.
func (s *Server) parentAnswered() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return unixSeconds(s.parent.answeredAt)
}

// unixSeconds returns an instant as Prometheus wants all times; 0 for the zero time.
func unixSeconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixMilli()) / 1e3
}

// wakeParent makes followParent plan again if a request is due before the planned one. The lock is held.
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

// askParent asks once for all that is due, and then gives back what no client uses any more. A parent that
// does not answer need not know: this server's lease on it ends by itself.
func (s *Server) askParent(ctx context.Context) {
	s.mu.Lock()
	now := s.now()
	name := cmp.Or(s.config.Name, s.state.address)
	// Unused returns each resource once. If the parent does not hear of one, the lease on it ends by
	// itself.
	asks, unused := s.core.Asks(now), s.core.Unused()
	s.mu.Unlock()

	// From here without the lock: clients are answered while the parent takes its time.
	client := s.parent.client
	var err error
	if len(asks) > 0 {
		var answers []capacity.Grant
		answers, err = client.requestAll(ctx, name, asks)
		s.onParentReply(ctx, answers, err)
	}
	// A refusal came from a parent that is there, and can take something back.
	if err == nil || isRefusal(err) {
		client.releaseResources(ctx, name, unused)
	}
}

// onParentReply takes the grants of the parent, or notes that there are none. Both may come: see requestAll.
func (s *Server) onParentReply(ctx context.Context, answers []capacity.Grant, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// The server is stopping, and the error comes from that.
	if ctx.Err() != nil {
		return
	}
	now, p := s.now(), &s.parent
	if len(answers) > 0 {
		p.answeredAt = now
	}
	if len(answers) > 0 || err == nil || isRefusal(err) {
		// A refusal is an answer: after ParentFailed the core would wait, longer each time, before it
		// asks again.
		s.core.Told(now, answers)
	} else {
		s.core.ParentFailed(now)
	}
	p.address, p.fault = p.client.conn.Address(), err
	s.metrics.countParentRequest(err)
	s.expireLeases(now)
	s.logParent(err)
}

// logParent logs when the parent starts or stops answering, and each refusal that differs from the last. It
// does not repeat itself at each request.
func (s *Server) logParent(err error) {
	p := &s.parent
	switch {
	case err != nil && isRefusal(err):
		if text := err.Error(); text != p.loggedRefusal {
			p.loggedRefusal = text
			s.log.Error("the parent refuses requests", "error", err)
		}
	case err != nil:
		if text := err.Error(); text != p.loggedFailure {
			p.loggedFailure = text
			s.log.Warn("the parent does not respond; its grants hold until their lease expires", "error", err)
		}
	case p.loggedFailure != "" || p.loggedAddress != p.address:
		p.loggedFailure, p.loggedAddress = "", p.address
		s.log.Info("the parent responds", "address", p.address)
	}
}
