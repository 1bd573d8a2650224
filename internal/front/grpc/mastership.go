package grpc

import (
	"context"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
)

// An Election finds one master among several servers.
type Election interface {
	// Run takes part with the address of this server until ctx ends, and then gives up its mastership. It
	// calls tell each time that what it knows changes, and each time a master may lead for longer.
	Run(ctx context.Context, candidate string, tell func(Mastership)) error
}

// A Mastership says which server is master.
type Mastership struct {
	Leading bool      // this server is
	Until   time.Time // it must not decide from then on, unless extended; zero means no end
	Leader  string    // the master's address; empty when it is not known
}

// onMastership takes what the election reports.
//
//	              ┌──── leading, time not over: Extend ────┐
//	following ──leading: Lead──> master <──────────────────┘
//	    ^                          │
//	    └──────not leading: Resign─┘
//
// A master whose time was over starts again with Lead, even if no other master was reported: it cannot know
// what was granted meanwhile, so it has to learn.
func (s *Server) onMastership(m Mastership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	led, leader := s.state.leading, s.state.leader
	s.state.leading = m.Leading
	s.state.until = m.Until
	s.state.leader = m.Leader
	switch {
	// The same mastership goes on, so what was granted is known.
	case m.Leading && led && s.core.Leading(now):
		s.core.Extend(m.Until)
	// A new one. Until is zero with an election that has no end.
	case m.Leading:
		s.core.Lead(now, m.Until)
		s.log.Info("this server is master", "address", s.state.address)
	case led:
		s.core.Resign()
		s.log.Warn("this server is no longer master", "address", s.state.address)
	}
	if !m.Leading && m.Leader != leader {
		s.log.Info("another server is master", "address", m.Leader)
	}
	// Lead, Resign and a longer time all move the next instant at which something is to be done.
	s.expireLeases(now)
}

// masterAddress returns the master's address as far as it is known. A server whose time is over does not
// redirect clients to itself.
func (s *Server) masterAddress() string {
	if s.state.leader == s.state.address {
		return ""
	}
	return s.state.leader
}

// initAddress sets the server's address and name where the Config leaves them open, and returns the address.
// It also restores saved leases.
func (s *Server) initAddress(at net.Addr) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.restoreSaved(s.now())
	machine := hostnameAddress(at)
	if s.config.Name == "" {
		s.config.Name = machine
	}
	if s.state.address == "" {
		s.state.address = at.String()
		// 0.0.0.0 or [::] is where it listens, but no client on another machine can connect to that.
		if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			s.state.address = machine
		}
	}
	return s.state.address
}

// hostnameAddress returns the address with this machine's name as its host.
func hostnameAddress(at net.Addr) string {
	name, err := os.Hostname()
	_, port, portErr := net.SplitHostPort(at.String())
	if err != nil || portErr != nil {
		return at.String()
	}
	return net.JoinHostPort(name, port)
}

// updateHealth tells health checks whether the server can answer, even if only with the master's address.
func (s *Server) updateHealth() {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if s.state.configured {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(doormanpb.Capacity_ServiceDesc.ServiceName, status)
}
