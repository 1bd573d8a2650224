// Package http is the front that speaks HTTP, as bouncer does: every call, waiting included, can be a GET, so
// curl is client enough.
//
// Connections are served by one event loop for each processor. A request that has to wait costs its
// connection no goroutine. docs/decisions/0095 has the reasons and the measurements.
package http

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/eventloop"
	"github.com/gatehousehq/gatehouse/internal/manual"
	activitypage "github.com/gatehousehq/gatehouse/internal/page"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/panjf2000/gnet/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/valyala/fasthttp"
)

// A Gate decides commands, and keeps those in line that have to wait.
type Gate interface {
	// Submit decides requests for one key, and keeps those in line that must wait. It calls the Decided of
	// each once, perhaps before it returns, and never blocks.
	Submit(requests ...*gate.Request)
	// Cancel takes a request out of line, or takes back what it was granted.
	Cancel(r *gate.Request)
	// SubmitGrant and CancelGrant are those for requests over several names.
	SubmitGrant(r *gate.GrantRequest)
	CancelGrant(r *gate.GrantRequest)
	// Do decides a command that may not wait.
	Do(ctx context.Context, key gatehouse.Key, cmd gatehouse.Command) (gatehouse.Decision, error)
	// Names returns up to most names of a kind that come after the given one, in order.
	Names(ctx context.Context, kind gatehouse.Kind, after string, most int) ([]string, error)
	// DeletePrefix deletes up to most names that begin with a prefix. There may be more behind next.
	DeletePrefix(ctx context.Context, p gate.Prefix, most int) (deleted int, next string, err error)
	// Describe tells about up to most names with a prefix that come after its After, in order.
	Describe(ctx context.Context, p gate.Prefix, most int) ([]gatehouse.NameDetails, error)
	// Cycles returns owners that wait for each other.
	Cycles(ctx context.Context) ([]gate.Cycle, error)
	// Follow calls told with the place of a request that waits, when that changes and now and then, until
	// stop.
	Follow(r *gate.Request, told func(gatehouse.WaiterEntry)) (stop func())
	// FollowGrant is that for a request over several names, with its place in the line of each.
	FollowGrant(r *gate.GrantRequest, told func(gatehouse.Key, gatehouse.WaiterEntry)) (stop func())
	// Waiting returns how many commands wait, at all names together.
	Waiting() int
}

// A Config says what a server answers from and what it allows. Gate and Log are required. The zero value of
// every other field means its default.
type Config struct {
	Gate Gate
	Log  *slog.Logger

	// Names returns how many names the store keeps, for the metrics; nil leaves that out.
	Names func() int

	// Store is a line about the store for /healthz and /readyz, with its end; nil leaves it out. Whether
	// the store is reachable does not change their status: this server answers by rule when it is not, and
	// others that share it would do no better.
	Store func() string

	// Metrics is where the server's metrics are registered, and what /metrics shows; nil means a registry of
	// the server's own.
	Metrics *prometheus.Registry

	// Decisions has the refusals that can be explained by their ids, and the busiest names; nil has none. The
	// gate's observer is the same one.
	Decisions *decisions.Recorder

	// BeginTrace begins the trace of a request, for its Origin; nil traces nothing.
	BeginTrace func(traceparent, tracestate string) any

	// Version is a label of gatehouse_build_info.
	Version string

	// Refusal is the status of a refusal that does not ask for one: 408, which 0 means too, or 429.
	Refusal int

	// CORS are the origins whose web pages may make requests; "*" is all of them. Without, requests
	// that a browser makes on behalf of another site are refused.
	CORS []string

	// Hosts are the names by which requests may address this server, besides localhost and all IP
	// addresses; "*" is all of them. On a loopback address requests that name another host are refused,
	// elsewhere such requests of browsers.
	Hosts []string

	// Users says who may do what; nil means that everybody may do everything.
	Users *access.Users

	// Keep is how long sent events, opened barriers, fired watchdogs and idle counters are kept.
	Keep time.Duration

	// Routes are the handlers of further paths, by "POST /v1/capacity/get". A path that ends in a slash
	// stands for all paths below it; name is the part behind it, percent-decoded. The limits and the rules
	// for methods and browsers hold for routes too. A GET must have no effects. An error is answered with its
	// text, and the status that the handler has set or else the one of its code.
	Routes map[string]func(ctx *fasthttp.RequestCtx, name string) error

	// Activity is what goes on at the names, for the page at / and those of its paths; nil leaves these out.
	Activity *activity.Monitor

	// About returns what the page tells of the server itself, as a value for JSON: without sums over all
	// names unless all of these may be seen.
	About func(seesAll bool) any

	// Budget bounds what waits to be sent and what has been received in part, with all other listeners that
	// share it; nil means one of the server's own.
	Budget *budget.Budget

	// TLS says how connections speak TLS; nil means that they do not.
	TLS *tlsconn.Config

	// Unaccepted reports connections that cannot be accepted. All listeners of a process share one; nil means
	// one of the server's own.
	Unaccepted *peer.Complaint

	// Conns is the largest number of connections, waiting and idle ones included.
	Conns int

	// ConnsPerAddress is the largest number from one address; 0 means no limit. IPv6 addresses count by their
	// first 64 bits.
	ConnsPerAddress int

	// ReadTimeout is how long a request may take to arrive once it has begun, WriteTimeout how long
	// an answer may take to leave, IdleTimeout how long a connection may be silent between requests.
	// Each may be exceeded by half of ReadTimeout. Waiting has no timeout but the request's own.
	ReadTimeout, WriteTimeout, IdleTimeout time.Duration
}

// The defaults of Config.
const (
	DefaultConns        = 20_000
	DefaultReadTimeout  = 10 * time.Second
	DefaultWriteTimeout = 10 * time.Second
	DefaultIdleTimeout  = 2 * time.Minute
)

// The limits of one request.
const (
	maxHeader = 8 << 10  // request line and headers; also the buffer of an active connection
	maxBody   = 64 << 10 // 600 resources of capacity fit in
)

// A requestHandler answers a request, as handleRequest does.
type requestHandler = func(ctx *fasthttp.RequestCtx, mayBlock bool) (done bool)

// A Server answers HTTP. Make one with New.
type Server struct {
	config       Config
	log          *slog.Logger
	handle       requestHandler // handleRequest, but in tests
	engine       *gnet.Client   // nil without event loops; the listeners are our own, see listen.go
	loops        sync.Map       // of *eventLoop by gnet.EventLoop
	metrics      *metrics
	pages        map[string]fasthttp.RequestHandler
	manual       func() (*manual.Manual, error)        // made when it is first asked for
	page         func(path string) (manual.Page, bool) // the page at /, and its assets
	routes       []*route
	hosts        *hostNames
	unknown      *access.User   // of requests that need no login; nil if rights are off
	sources      peer.Addresses // of the open connections
	logsRequests bool           // in the log
	requestPool  sync.Pool
	waiterPool   sync.Pool
	grantPool    sync.Pool
	conns        connSet
	stopping     atomic.Bool
	open         atomic.Int64

	mu             sync.Mutex
	listeners      []*peer.CappedListener // of Serve
	listenersEnded atomic.Bool            // by Shutdown; written under the lock, once all are closed

	serving       sync.WaitGroup  // calls of Serve, and clients that begin to speak TLS
	handshakes    context.Context // of them; it ends with the listeners
	endHandshakes context.CancelFunc

	allClosed  chan struct{} // closed with the last connection, once ended
	lastClosed func()        // closes it
}

// New returns a server that is to be closed by Shutdown.
func New(config Config) (*Server, error) {
	s, err := newServer(config)
	if err != nil {
		return nil, err
	}
	s.engine, err = eventloop.Start(&connHandler{server: s}, config.Log)
	if err != nil {
		return nil, fmt.Errorf("HTTP: %w", err)
	}
	return s, nil
}

// Embed returns a server without event loops, and the handler that its caller's event loop is to call, as
// gnet's do. Its connections may be in memory: one that implements peer.Watched need not have a descriptor.
func Embed(config Config) (*Server, gnet.EventHandler, error) {
	s, err := newServer(config)
	return s, &connHandler{server: s}, err
}

// newServer returns a server without event loops.
func newServer(config Config) (*Server, error) {
	s := &Server{config: config, log: config.Log}
	// Before anything that would have to be ended.
	routes, err := newRoutes(s.allRoutes())
	if err != nil {
		return nil, err
	}
	if config.Budget == nil {
		config.Budget = budget.New(0)
	}
	if config.Store == nil {
		config.Store = noLine
	}
	config.Unaccepted = cmp.Or(config.Unaccepted, new(peer.Complaint))
	config.Conns = cmp.Or(config.Conns, DefaultConns)
	config.ReadTimeout = cmp.Or(config.ReadTimeout, DefaultReadTimeout)
	config.WriteTimeout = cmp.Or(config.WriteTimeout, DefaultWriteTimeout)
	config.IdleTimeout = cmp.Or(config.IdleTimeout, DefaultIdleTimeout)
	s.config, s.routes = config, routes
	s.hosts = newHosts(config.Hosts)
	s.logsRequests = s.log.Enabled(context.Background(), slog.LevelDebug)
	if config.Users != nil {
		s.unknown = access.Unknown()
	}
	s.handle = s.handleRequest
	s.sources.Most = config.ConnsPerAddress
	s.allClosed = make(chan struct{})
	s.lastClosed = sync.OnceFunc(func() { close(s.allClosed) })
	s.handshakes, s.endHandshakes = context.WithCancel(context.Background())
	s.requestPool.New = func() any { return new(httpRequest) }
	s.waiterPool.New = func() any { return newWaiter(s) }
	s.grantPool.New = func() any { return newGrantTask(s) }
	s.metrics = newMetrics(s)
	s.pages = s.newPages()
	s.manual = sync.OnceValues(manual.New)
	s.page = activitypage.New()
	return s, nil
}

// Stopping makes /readyz answer 503 and every answer the last on its connection, and ends the streams of the
// page.
func (s *Server) Stopping() {
	s.stopping.Store(true)
	if s.config.Activity != nil {
		s.config.Activity.Close()
	}
}

// Shutdown stops listening, answers the requests that have arrived, and closes idle connections. The gate
// must be closed before, so that waiting requests are decided. When ctx ends first, the remaining connections
// are cut.
func (s *Server) Shutdown(ctx context.Context) error {
	// The order is that of docs/decisions/0028. A listener that is closed first resets the connections that
	// wait in it, and their clients cannot know whether their requests took effect.
	s.Stopping()
	s.drainListeners(ctx)
	s.closeListeners()
	s.serving.Wait() // every connection that was accepted is in its loop then
	s.conns.forEach((*httpConn).wake)
	var err error
	select {
	case <-s.allClosed:
	case <-ctx.Done():
		s.conns.forEach(func(c *httpConn) {
			err = ctx.Err()
			_ = c.connection().Close()
		})
	}
	if s.engine == nil {
		return err
	}
	return errors.Join(err, s.engine.Stop())
}

// drainListeners accepts the connections that the system has accepted.
func (s *Server) drainListeners(ctx context.Context) {
	s.mu.Lock()
	listeners := slices.Clone(s.listeners)
	s.mu.Unlock()
	for _, listener := range listeners {
		listener.DrainBacklog(ctx)
	}
}

// closeListeners ends every call of Serve.
func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, listener := range s.listeners {
		_ = listener.Close()
	}
	s.listenersEnded.Store(true)
	s.endHandshakes() // nothing was asked on them
	// With connections left, countClosed does this for the last of them.
	if s.open.Load() == 0 {
		s.lastClosed()
	}
}

// countClosed ends the counting of a connection that is closed or was refused.
func (s *Server) countClosed(source netip.Addr) {
	s.sources.Leave(source)
	// While a listener is open, another connection may still be accepted.
	if s.open.Add(-1) == 0 && s.listenersEnded.Load() {
		s.lastClosed()
	}
}
