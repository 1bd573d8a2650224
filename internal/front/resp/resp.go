// Package resp is the front that speaks RESP, the protocol of Redis, in versions 2 and 3: with it every
// Redis client of any language is a client of Gatehouse. It knows redis-cell's CL.THROTTLE,
// throttlecrab's THROTTLE, Redis's GCRA, and a command GH.<OP> for every operation of every controller.
//
// Connections are served by one event loop for each processor. A command that has to wait blocks its
// own connection and no other, and costs no goroutine. See docs/protocols/resp.md.
package resp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"
)

// A Gate decides, and keeps those in line that have to wait.
type Gate interface {
	// Submit decides requests for one key, and keeps those in line that must wait. It calls the Decided of
	// each once, perhaps before it returns, and never blocks.
	Submit(requests ...*gate.Request)
	// Cancel takes a request out of line, or takes back what it was granted.
	Cancel(r *gate.Request)
	// SubmitGrant and CancelGrant are those for requests over several names.
	SubmitGrant(r *gate.GrantRequest)
	CancelGrant(r *gate.GrantRequest)
	// Do decides a command that may not wait, outside of an event loop.
	Do(ctx context.Context, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error)
	// Names lists the names of one kind that come after the given one, in order.
	Names(ctx context.Context, kind gatehouse.Kind, after string, most int) ([]string, error)
	// Describe tells about the first names with a prefix that come after its After, in order.
	Describe(ctx context.Context, p gate.Prefix, most int) ([]gatehouse.NameDetails, error)
	// Cycles returns owners that wait for each other.
	Cycles(ctx context.Context) ([]gate.Cycle, error)
	// Follow calls told with the place of a request that waits, when that changes and now and then, until
	// stop.
	Follow(r *gate.Request, told func(gatehouse.WaiterEntry)) (stop func())
	// DeletePrefix deletes the first names that begin alike, and says after which there may be more.
	DeletePrefix(ctx context.Context, p gate.Prefix, most int) (deleted int, next string, err error)
}

// A Config says what a server answers from and what it allows. Gate and Log are needed; 0 elsewhere
// means the default.
type Config struct {
	Gate Gate
	Log  *slog.Logger

	// Metrics is where the server's metrics are registered; nil is nowhere.
	Metrics prometheus.Registerer

	// Version is what INFO and HELLO show.
	Version string

	// Users says who may do what; nil means that everybody may do everything.
	Users *access.Users

	// Keep is how long sent events, opened barriers, fired watchdogs and idle counters are kept.
	Keep time.Duration

	// Conns is the most connections, waiting and idle ones included.
	Conns int

	// ConnsPerAddress is the most of them from one address; 0 means any number. IPv6 addresses count by their
	// first 64 bits.
	ConnsPerAddress int

	// ReadTimeout is how long a command may take to arrive once it has begun, WriteTimeout how long a
	// client may take none of the answers that are ready for it. Each may last up to twice as long.
	// There is no timeout for waiting but the command's own.
	ReadTimeout, WriteTimeout time.Duration

	// Budget bounds what waits to be read or sent, with all other listeners that share it; nil means one of
	// the server's own.
	Budget *budget.Budget

	// Decisions has the refusals that can be explained by their ids; nil has none. The gate's observer is the
	// same one.
	Decisions *decisions.Recorder

	// TLS says how connections speak TLS; nil means that they do not.
	TLS *tlsconn.Config

	// Unaccepted logs connections that cannot be accepted, for all listeners of the process; nil means a
	// complaint of the server's own.
	Unaccepted *peer.Complaint

	// IdleTimeout is how long a connection may stay without a command, and at most twice as long; 0 means
	// forever. One that waits for an answer is not idle.
	IdleTimeout time.Duration

	// Now is a clock that cannot go back, by which connections share an event loop and requests are timed;
	// nil shares by the number of commands alone.
	Now func() time.Duration
}

// The defaults of Config.
const (
	DefaultConns        = 20_000
	DefaultReadTimeout  = 10 * time.Second
	DefaultWriteTimeout = 10 * time.Second
)

// A Server answers RESP. Make one with New.
type Server struct {
	sources peer.Addresses // of the open connections

	config    Config
	log       *slog.Logger
	debug     bool         // every answer is noted on the log
	engine    *gnet.Client // nil without event loops; the listeners are our own, see listen.go
	commands  map[string]*command
	listed    []*command          // these, in the order of their names
	clients   map[string]*command // the subcommands of CLIENT
	described map[*command]commandDescription
	metrics   *metrics

	open     atomic.Int64 // connections
	shaking  atomic.Int64 // connections that do not speak TLS yet
	last     atomic.Int64 // the number of the newest connection
	stopping atomic.Bool
	ending   atomic.Bool // no connection comes any more, and those that are idle are closed
	closing  atomic.Bool // no more commands are taken, though some have arrived

	mu        sync.Mutex
	sessions  map[int64]*session // by number
	gone      chan struct{}      // closed when the last session has ended, once ending
	allGone   func()
	closed    atomic.Bool // no listener is added any more; written under the lock
	listeners map[*peer.CappedListener]struct{}
	serving   sync.WaitGroup

	handshakes    context.Context // of the connections that do not speak TLS yet
	endHandshakes context.CancelFunc

	progress sync.Map // of *pushedProgress, by *nativeCall

	loops sync.Map // of *loop, by gnet.EventLoop
}

// New returns a server that is to be closed by Shutdown.
func New(config Config) (*Server, error) {
	s := newServer(config)
	engine, err := eventloop.Start(&gnetHandler{server: s}, config.Log)
	if err != nil {
		return nil, fmt.Errorf("RESP: %w", err)
	}
	s.engine = engine
	return s, nil
}

// Embed returns a server without event loops, and the handler that its caller's event loop is to call, as
// gnet's do. Its connections may be in memory: one that implements peer.Watched need not have a descriptor.
func Embed(config Config) (*Server, gnet.EventHandler) {
	s := newServer(config)
	return s, &gnetHandler{server: s}
}

// newServer returns a server without event loops.
func newServer(config Config) *Server {
	// 0 is a default for these, unlike for ConnsPerAddress and IdleTimeout, where it means no limit.
	config.Conns = cmp.Or(config.Conns, DefaultConns)
	config.Unaccepted = cmp.Or(config.Unaccepted, new(peer.Complaint))
	config.ReadTimeout = cmp.Or(config.ReadTimeout, DefaultReadTimeout)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, DefaultWriteTimeout)
	config.Keep = cmp.Or(config.Keep, gatehouse.DefaultKeep)
	if config.Budget == nil {
		config.Budget = budget.New(0)
	}
	// debug is asked for once, and not at every answer.
	s := &Server{
		config: config, log: config.Log,
		sessions: make(map[int64]*session), listeners: make(map[*peer.CappedListener]struct{}),
		gone:  make(chan struct{}),
		debug: config.Log.Enabled(context.Background(), slog.LevelDebug),
	}
	s.sources.Most = config.ConnsPerAddress
	s.handshakes, s.endHandshakes = context.WithCancel(context.Background())
	s.allGone = sync.OnceFunc(func() { close(s.gone) })
	s.commands, s.clients = newCommands(), newClientCommands()
	for _, name := range slices.Sorted(maps.Keys(s.commands)) {
		s.listed = append(s.listed, s.commands[name])
	}
	s.described = describeCommands(s.commands, config.Version)
	// Registered last: from here on the number of open connections may be read.
	s.metrics = newMetrics(s)
	return s
}

// Stopping makes every answer to a command that waited the last on its connection.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Shutdown stops listening, answers the commands that are in hand, and closes what is idle. Those who
// wait must have been answered by closing the gate. When ctx ends first, the rest is cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Stopping()
	s.closeListeners(ctx)
	// Every connection that was accepted has its session by now: Enroll returns after OnOpen.
	s.mu.Lock()
	s.ending.Store(true)
	if len(s.sessions) == 0 {
		s.allGone()
	}
	s.mu.Unlock()
	err := s.drainSessions(ctx)
	if s.engine == nil {
		return err
	}
	return errors.Join(err, s.engine.Stop())
}

// closeListeners ends every call of Serve. A listener that is closed resets the connections that wait in it,
// so those are accepted before.
func (s *Server) closeListeners(ctx context.Context) {
	s.mu.Lock()
	s.closed.Store(true)
	listeners := slices.Collect(maps.Keys(s.listeners))
	s.mu.Unlock()
	for _, listener := range listeners {
		listener.DrainBacklog(ctx)
		_ = listener.Close()
	}
	s.endHandshakes() // nothing was asked on them
	s.serving.Wait()
}

// pause is how often connections are looked at while the server ends: the event loop does not tell when
// a client has taken the last of its answers.
const pause = 10 * time.Millisecond

// drainSessions waits until all connections have been answered and closed.
func (s *Server) drainSessions(ctx context.Context) error {
	ticker := time.NewTicker(pause)
	defer ticker.Stop()
	var half <-chan time.Time
	if deadline, ok := ctx.Deadline(); ok {
		half = time.After(time.Until(deadline) / 2)
	}
	for {
		for _, session := range s.allSessions() {
			session.wake()
		}
		select {
		case <-s.gone:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("closing RESP connections, of which %d are left: %w", s.open.Load(), ctx.Err())
		case <-half: // a client that goes on sending must not keep the server from ending in good order
			s.closing.Store(true)
		case <-ticker.C:
		}
	}
}

// allSessions returns the sessions there are.
func (s *Server) allSessions() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Collect(maps.Values(s.sessions))
}

// addSession and leave keep the books of sessions.
func (s *Server) addSession(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Add(1)
	s.sessions[session.number] = session
}

func (s *Server) removeSession(session *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open.Add(-1)
	delete(s.sessions, session.number)
	if s.ending.Load() && len(s.sessions) == 0 {
		s.allGone()
	}
}
