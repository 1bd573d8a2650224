// Package grpc is the front that hands out leases on capacity as doorman does: over gRPC, so that doorman's
// clients notice no difference, and as JSON over HTTP for clients without gRPC.
//
// Package capacity decides. This package has what is around it: the clock, one lock, the timer of expiry,
// mastership, the file of saved leases, a parent to ask, and the listeners. See docs/protocols/doorman.md.
//
//	readX ─> checkFields ─> leaseAll, releaseAll (under the lock) ─> writeX      a call
//	Election ─> onMastership ─> core.Lead, Extend, Resign                        mastership
//	timer ─> onTimer ─> expireLeases                                             expiry
//	followParent ─> askParent ─> onParentReply                                   a tree of servers
package grpc

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
)

// A Config says what a server is and what it allows. Log and Now are required; a zero elsewhere means the
// default.
type Config struct {
	Log *slog.Logger

	// Metrics is where the server's metrics are registered; nil registers none.
	Metrics prometheus.Registerer

	// BeginCall begins the trace of a call that came with these fields; end ends it. nil traces nothing.
	BeginCall func(traceparent, tracestate, name string) (end func(error))

	// Now is the clock, which must be monotonic, as time.Now is.
	Now func() time.Time

	// Users says who may do what; nil means that everybody may do everything.
	Users *access.Users

	// Address is the server's name, and where redirected clients find it. Empty means the address it listens
	// at, with this machine's name if it listens at all of them.
	Address string

	// Name is how its parent knows it; no other client of the parent may have the same. Empty means this
	// machine's name and the port it listens at.
	Name string

	// Election decides which server is master; nil means that this server always is.
	Election Election

	// Parents are the addresses of the servers that this one gets its capacity from; a server without
	// parents has templates. Dial are options for connections to them.
	Parents []string
	Dial    []grpc.DialOption

	// ParentTLS says which certificates are trusted and shown there, for each connection that begins; nil
	// speaks to parents without TLS.
	ParentTLS func() *tls.Config

	// ParentToken says to parents with users who asks; empty sends none.
	ParentToken string

	// Source is where templates come from, for the status page.
	Source string

	// Limits bound what is kept.
	Limits capacity.Limits

	// Memory adds up what is kept by the whole process, and bounds it; nil means no limit.
	Memory *weight.Total

	// Leases is a file in which the server saves, when it stops, which clients hold leases, so that the next
	// server need not learn for as long. Empty means none. It excludes an Election.
	Leases string

	// Conns is the maximum number of connections. There may be fewer: they take at most a quarter of Memory,
	// at 50 KiB each.
	Conns int

	// ConnsPerAddress is the maximum from one address; 0 means any number. IPv6 addresses count by their
	// first 64 bits. Where there are fewer connections than Conns, these are fewer in proportion.
	ConnsPerAddress int

	// ReadTimeout is how long a connection has to begin TLS and HTTP/2. ReadTimeout and WriteTimeout together
	// are how long a call may take, from its first byte on, unless it watches or reflects. A client that
	// reads nothing of its answers for between one and two WriteTimeouts is disconnected.
	ReadTimeout, WriteTimeout time.Duration

	// Budget bounds the bytes of requests that are not answered and of answers that are not sent, together
	// with all other listeners that share it; nil means one of the server's own.
	Budget *budget.Budget

	// TLS says how connections speak TLS; nil means that they do not.
	TLS *tlsconn.Config

	// Unaccepted is notified of connections that cannot be accepted. All listeners of the process share it;
	// nil means one of the server's own.
	Unaccepted *peer.Complaint

	calls int64 // maximum under way; 0 means maxCalls
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
	turns   turns // of large messages
	conns   conns

	// background are the goroutines beside the listeners, which run until cancelBackground.
	background       sync.WaitGroup
	backgroundCtx    context.Context
	cancelBackground context.CancelFunc

	stopping chan struct{} // closed by Stopping
	stop     func()

	mu             sync.Mutex // guards all below; see docs/decisions/0011-capacity-one-lock.md
	core           *capacity.Server
	reportedWeight int         // how much of core's weight config.Memory includes
	timer          *time.Timer // calls onTimer
	wake           time.Time   // when the timer fires; zero means never
	state          serverState
	parent         parentState
	saved          *[]capacity.Saved // read from a file that is still there
	restored       bool              // the saved leases were restored
	stopped        bool              // Shutdown has ended all granting

	refusalLogged time.Time // when the log said last that a limit refuses something
}

// A serverState is what a server knows about itself.
type serverState struct {
	address string // its own
	leading bool   // by the election; core.Leading says whether its time is not over
	until   time.Time
	leader  string // empty when it is not known

	configured  bool // there are templates, or a parent that gives some
	templates   capacity.Templates
	version     string    // of the templates
	changed     time.Time // when they were last replaced
	configError error     // why newer templates are not used; nil if they are
}

// MaxConns is the most connections at once, which is less than Config.Conns where memory is short.
func (s *Server) MaxConns() int { return s.config.Conns }

// New returns a server. The caller ends it with Shutdown.
func New(config Config) (*Server, error) {
	if config.Leases != "" && config.Election != nil {
		return nil, gatehouse.Errorf(gatehouse.CodeInvalid,
			"saved leases %s: cannot be used with an election, because another master may have granted since",
			config.Leases)
	}
	config.Conns = cmp.Or(config.Conns, DefaultConns)
	if config.Memory != nil {
		asked := config.Conns
		config.Conns = max(int(min(int64(asked), config.Memory.Limit()/4/connWeight)), 1)
		// Otherwise one address could take them all.
		if config.ConnsPerAddress > 0 {
			config.ConnsPerAddress = max(config.ConnsPerAddress*config.Conns/asked, 1)
		}
	}
	config.Unaccepted = cmp.Or(config.Unaccepted, new(peer.Complaint))
	config.ReadTimeout = cmp.Or(config.ReadTimeout, DefaultReadTimeout)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, DefaultWriteTimeout)
	if config.Budget == nil {
		config.Budget = budget.New(0)
	}
	s := &Server{
		config: config, log: config.Log, now: config.Now,
		core: capacity.NewServer(config.Limits), health: health.NewServer(), stopping: make(chan struct{}),
		turns: newTurns(),
	}
	s.conns.sources.Most = config.ConnsPerAddress
	s.backgroundCtx, s.cancelBackground = context.WithCancel(context.Background())
	s.stop = sync.OnceFunc(func() { close(s.stopping) })
	answers := new(answerPool)
	s.calls.New = func() any { return &capacityCall{answers: answers} }
	// The timer must exist before anything can grant: expireLeases resets it.
	s.timer = time.AfterFunc(never, s.onTimer)
	s.state.address = config.Address
	s.parent.wake = make(chan struct{}, 1)
	if err := s.readSaved(); err != nil {
		return nil, err
	}
	// What is left of the total, less the weight that was added since the last report to it.
	if config.Memory != nil {
		s.core.BoundMemory(func() int64 {
			return config.Memory.Left() - int64(s.core.Weight()-s.reportedWeight)
		})
	}
	now := s.now()
	// The core follows a parent from the start, before it can lead.
	if len(config.Parents) > 0 {
		// A server with a parent gets its templates from there, so it is configured already.
		s.core.Follow(now)
		s.state.configured = true
	}
	if config.Election == nil {
		s.core.Lead(now, time.Time{})
		s.state.leading = true
	}
	// Last, because they are registered here: a scrape may read the server from now on.
	s.metrics = newMetrics(s)
	s.conns.mostCalls, s.conns.budget = cmp.Or(config.calls, maxCalls), config.Budget
	s.conns.writeTimeout, s.conns.slow = config.WriteTimeout, s.metrics.slow
	s.grpc = s.newGRPC()
	s.updateHealth()
	return s, nil
}

// Serve answers the connections of a listener until Shutdown is called. It also starts the election and the
// requests to a parent, which need the address.
func (s *Server) Serve(listener net.Listener) error {
	address := s.initAddress(listener.Addr())
	failed := make(chan error, 1)
	if s.config.Election != nil {
		s.background.Go(func() {
			err := s.config.Election.Run(s.backgroundCtx, address, s.onMastership)
			// Whatever ended the election, this server must not decide any more.
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
	err := s.grpc.Serve(s.capListener(listener))
	select {
	case err := <-failed:
		return err
	// Shutdown is no failure. Neither is an error of the listener that comes from it.
	case <-s.stopping:
		return nil
	default:
	}
	return fmt.Errorf("serving gRPC on %s: %w", listener.Addr(), err)
}

// Stopping makes health checks fail, so that clients turn to other servers, and ends streams.
func (s *Server) Stopping() {
	s.health.Shutdown()
	s.stop()
}

// Shutdown stops listening, answers the requests that have arrived, gives up being master, and saves the
// leases. When ctx ends first, it closes the remaining connections.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Stopping()
	answered := make(chan struct{})
	// GracefulStop would wait for connections on which nothing was ever said.
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
	// The order matters. Leases are read after the last answer and before mastership is given back: a new
	// master may grant from then on. They are written last, when no goroutine is left.
	saved := s.stopGranting()
	s.cancelBackground()
	s.background.Wait()
	return errors.Join(err, s.writeSaved(saved))
}

// stopGranting ends all granting, and returns the leases to save; nil if the server does not know of all. A
// server that never had templates knows of none, unless it restored saved ones.
func (s *Server) stopGranting() []capacity.Saved {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped = true
	s.timer.Stop()
	// s.saved still being there means that this server never granted: the file it found is still true.
	if s.saved != nil || !s.state.configured && !s.restored {
		return nil
	}
	return s.core.Snapshot(s.now())
}

// Configure gives the server valid templates, and the name of their version.
func (s *Server) Configure(templates capacity.Templates, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	s.core.Configure(now, templates)
	s.state.configured = true
	s.state.templates = templates
	s.state.version = version
	s.state.changed = now
	s.state.configError = nil
	s.expireLeases(now)
	s.updateHealth()
}

// ConfigFailed notes that there are newer templates which cannot be used. The present ones stay.
func (s *Server) ConfigFailed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.configError = err
}
