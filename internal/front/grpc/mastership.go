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
	// Run takes part with the address of this server until ctx ends, and then gives up what it has.
	// It tells what it knows each time that changes, and each time a master may lead for longer.
	Run(ctx context.Context, candidate string, tell func(Mastership)) error
}

// A Mastership says who is master.
type Mastership struct {
	Leading bool      // this server is
	Until   time.Time // it must not decide from then on, unless told a later one; zero is for ever
	Leader  string    // the master's address; empty when it is not known
}

// onMastership takes what the election tells. A master whose time was up begins anew, even if it was not told
// that another one led: it cannot know what was granted meanwhile.
func (s *Server) onMastership(m Mastership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	led, leader := s.state.leading, s.state.leader
	s.state.leading, s.state.until, s.state.leader = m.Leading, m.Until, m.Leader
	switch {
	case m.Leading && led && s.core.Leading(now):
		s.core.Extend(m.Until)
	case m.Leading:
		s.core.Lead(now, m.Until)
		s.log.Info("this server is master", "address", s.state.address)
	case led:
		s.core.Resign()
		s.log.Warn("this server is not master any more", "address", s.state.address)
	}
	if !m.Leading && m.Leader != leader {
		s.log.Info("the master is another", "address", m.Leader)
	}
	s.expireLeases(now)
}

// masterAddress is where the master is, as far as is known. A server whose time is up does not send anybody to
// itself.
func (s *Server) masterAddress() string {
	if s.state.leader == s.state.address {
		return ""
	}
	return s.state.leader
}

// initAddress notes where the server is, and returns that.
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
		if tcp, ok := at.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
			s.state.address = machine
		}
	}
	return s.state.address
}

// hostnameAddress is an address by the name of this machine.
func hostnameAddress(at net.Addr) string {
	name, err := os.Hostname()
	_, port, portErr := net.SplitHostPort(at.String())
	if err != nil || portErr != nil {
		return at.String()
	}
	return net.JoinHostPort(name, port)
}

// updateHealth tells health checks whether the server can answer, be it with where the master is.
func (s *Server) updateHealth() {
	status := grpc_health_v1.HealthCheckResponse_NOT_SERVING
	if s.state.configured {
		status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", status)
	s.health.SetServingStatus(doormanpb.Capacity_ServiceDesc.ServiceName, status)
}
