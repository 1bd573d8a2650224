// Package grpc is the front that hands out leases on capacity as doorman does: over gRPC, so that
// doorman's clients need not know the difference, and over HTTP for whoever has no gRPC.
//
// Deciding is done by package capacity. What is around it is here: the clock, one lock, the timer of
// expiry, being master or not, the file of saved leases, a parent to ask, and the doors. See
// docs/protocols/doorman.md.
package grpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// A Config says what a server is and what it allows. Log and Now are needed; 0 elsewhere means the default.
type Config struct {
	Log *slog.Logger

	// Metrics is where the server's figures are registered; nil is nowhere.
	Metrics prometheus.Registerer

	// Now is the clock, which must be monotonic, as time.Now is.
	Now func() time.Time

	// Address is the server's name and where redirected clients find it. Empty means where it
	// listens, by the name of this machine if that is everywhere.
	Address string

	// Name is what its parent knows it by, unlike all others. Empty means this machine's name and the
	// port it listens at.
	Name string

	// Election tells who is master; nil means that this server is, always.
	Election Election

	// Parents are the addresses of the servers this one gets its capacity from; without, it has
	// templates. Dial are options for connections to them.
	Parents []string
	Dial    []grpc.DialOption

	// Source is where templates come from, for the status page.
	Source string

	// Limits bound what is kept.
	Limits capacity.Limits

	// Memory adds up what is kept, with what else the process keeps, and bounds it; nil is without a limit.
	Memory *weight.Total

	// Leases is a file that the names of all who hold leases are saved in at the end, so that the
	// next server need not learn for as long. Empty is none. It cannot be had with an Election.
	Leases string

	// Conns is the most connections.
	Conns int

	// ConnsPerAddress is the most of them from one address; 0 means any number. IPv6 addresses count by their
	// first 64 bits.
	ConnsPerAddress int

	// ReadTimeout and WriteTimeout together are how long a call may take, from its first byte on, unless it
	// watches or reflects. A client that takes nothing of its answers for WriteTimeout to twice as long is
	// cut.
	ReadTimeout, WriteTimeout time.Duration

	// Budget bounds the bytes of requests that are not answered and of answers that are not sent, with all
	// other listeners that share it; nil means one of the server's own.
	Budget *budget.Budget

	// Unaccepted is told of connections that cannot be accepted, by all listeners of the process; nil means a
	// complaint of the server's own.
	Unaccepted *peer.Complaint

	calls int64 // most that are under way
}

// The defaults of Config.
const (
	DefaultConns        = 20_000
	DefaultReadTimeout  = 10 * time.Second
	DefaultWriteTimeout = 10 * time.Second
)

// A Server answers doorman's clients. Make one with New.
type Server struct {
	config  Config
	log     *slog.Logger
	now     func() time.Time
	metrics *metrics
	grpc    *grpc.Server
	health  *health.Server
	calls   sync.Pool
	conns   conns

	// background is what runs beside the doors, until halt.
	background       sync.WaitGroup
	backgroundCtx    context.Context
	cancelBackground context.CancelFunc

	stopping chan struct{} // closed by Stopping
	stop     func()

	mu             sync.Mutex // one for all; see docs/decisions/0011-capacity-one-lock.md
	core           *capacity.Server
	reportedWeight int         // of what core weighs, what is in config.Memory
	timer          *time.Timer // calls expire
	wake           time.Time   // when it does; zero is never
	state          serverState
	parent         parentState
	saved          *[]capacity.Saved // read from a file that is still there
	restored       bool              // knows who held leases before
	stopped        bool              // nothing is granted any more

	refusalLogged time.Time // when the log said last that a limit refuses something
}

// A serverState is what a server knows about itself.
type serverState struct {
	address string // its own
	leading bool   // it was told so; whether it still is, its core knows
	until   time.Time
	leader  string // empty when it is not known

	configured  bool // there are templates, or a parent to give some
	templates   capacity.Templates
	version     string    // of the templates
	changed     time.Time // when they were last replaced
	configError error     // why there are newer ones that are not used
}

// New returns a server that is to be closed by Shutdown.
func New(config Config) (*Server, error) {
	if config.Leases != "" && config.Election != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"saved leases %s: cannot be used with an election, because another master may have granted since",
			config.Leases)
	}
	config.Conns = cmp.Or(config.Conns, DefaultConns)
	config.Unaccepted = cmp.Or(config.Unaccepted, new(peer.Complaint))
	config.ReadTimeout = cmp.Or(config.ReadTimeout, DefaultReadTimeout)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, DefaultWriteTimeout)
	if config.Budget == nil {
		config.Budget = budget.New(0)
	}
	s := &Server{
		config: config, log: config.Log, now: config.Now,
		core: capacity.NewServer(config.Limits), health: health.NewServer(), stopping: make(chan struct{}),
	}
	s.conns.sources.Most = config.ConnsPerAddress
	s.backgroundCtx, s.cancelBackground = context.WithCancel(context.Background())
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	s.calls.New = func() any { return new(capacityCall) }
	s.timer = time.AfterFunc(never, s.onTimer)
	s.state.address = config.Address
	s.parent.wake = make(chan struct{}, 1)
	if err := s.readSaved(); err != nil {
		return nil, err
	}
	if config.Memory != nil {
		s.core.BoundMemory(func() int64 { return config.Memory.Left() - int64(s.core.Weight()-s.reportedWeight) })
	}
	now := s.now()
	if len(config.Parents) > 0 {
		s.core.Follow(now)
		s.state.configured = true
	}
	if config.Election == nil {
		s.core.Lead(now, time.Time{})
		s.state.leading = true
	}
	s.metrics = newMetrics(s)
	s.conns.mostCalls, s.conns.budget = cmp.Or(config.calls, maxCalls), config.Budget
	s.conns.writeTimeout, s.conns.slow = config.WriteTimeout, s.metrics.slow
	s.grpc = s.newGRPC()
	s.updateHealth()
	return s, nil
}

// Serve answers the connections of a listener until Shutdown is called. With it begin the election and
// the asking of a parent, which need the address.
func (s *Server) Serve(listener net.Listener) error {
	address := s.initAddress(listener.Addr())
	failed := make(chan error, 1)
	if s.config.Election != nil {
		s.background.Go(func() {
			err := s.config.Election.Run(s.backgroundCtx, address, s.onMastership)
			s.onMastership(Mastership{})
			if err != nil && s.backgroundCtx.Err() == nil {
				failed <- fmt.Errorf("running for master: %w", err)
				s.grpc.Stop() // which ends Serve
			}
		})
	}
	if len(s.config.Parents) > 0 {
		s.background.Go(func() { s.followParent(s.backgroundCtx) })
	}
	err := s.grpc.Serve(&countingListener{Listener: listener, server: s})
	select {
	case err := <-failed:
		return err
	case <-s.stopping:
		return nil
	default:
	}
	return fmt.Errorf("serving gRPC on %s: %w", listener.Addr(), err)
}

// Stopping makes health checks say that the end is near, and ends streams.
func (s *Server) Stopping() {
	s.health.Shutdown()
	s.stop()
}

// Shutdown stops listening, answers the requests that are in hand, gives up being master, and saves
// the leases. When ctx ends first, the rest is cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Stopping()
	answered := make(chan struct{})
	s.conns.closeWhere(isSilent)
	go func() {
		s.grpc.GracefulStop()
		close(answered)
	}()
	var err error
	select {
	case <-answered:
	case <-ctx.Done():
		s.conns.closeWhere(isAny)
		s.grpc.Stop()
		<-answered
		err = fmt.Errorf("closing gRPC connections: %w", ctx.Err())
	}
	saved := s.stopGranting()
	s.cancelBackground()
	s.background.Wait()
	return errors.Join(err, s.writeSaved(saved))
}

// stopGranting ends all granting, and returns the leases there are; nil if it does not know of all. A server that
// never had templates knows of none, unless it was told by the one before it. One that never began leaves the
// file it found.
func (s *Server) stopGranting() []capacity.Saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.timer.Stop()
	if s.saved != nil || !s.state.configured && !s.restored {
		return nil
	}
	return s.core.Snapshot(s.now())
}

// Configure gives the server templates, which have no faults, and the name of their version.
func (s *Server) Configure(templates capacity.Templates, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.core.Configure(now, templates)
	s.state.configured, s.state.templates = true, templates
	s.state.version, s.state.changed, s.state.configError = version, now, nil
	s.expireLeases(now)
	s.updateHealth()
}

// ConfigFailed notes that there are newer templates which cannot be used. Those there are stay.
func (s *Server) ConfigFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.configError = err
}
