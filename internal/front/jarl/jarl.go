// Package jarl is the front that speaks JARL's protocol: a TCP connection is a request, and the answer
// is the seconds to sleep before calling what is limited, in decimal digits. Nothing needs to be sent,
// so that three lines of any language are client enough.
//
// One listener serves one limiter, a pace, which the other listeners can use under the same name.
package jarl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// A Gate decides, and keeps those in line that have to wait.
type Gate interface {
	gatehouse.Gate
	// Submit decides requests for one key, and keeps those in line that must wait. It calls the Decided of
	// each once, perhaps before it returns, and never blocks.
	Submit(requests ...*gate.Request)
	// Cancel takes a request out of line, or takes back what it was granted.
	Cancel(r *gate.Request)
}

// A PaceLimit is what a listener hands out.
type PaceLimit struct {
	// Name is that of the pace, which other listeners can use too.
	Name string

	// Requests is how many may start in any Period, at least 1.
	Requests int64
	Period   time.Duration

	// Mode is how clients that have to wait are spread. Poll is not one of them: it is for clients that
	// ask again after their sleep, and go only when the answer is 0.
	Mode gatehouse.Mode
	Poll bool

	// Guard is added to Period, for clients that call late by as much after their sleep.
	Guard time.Duration
}

// pollName stands beside the modes of a pace wherever one is given by name.
const pollName = "poll"

// SetMode sets the mode by its name.
func (l *PaceLimit) SetMode(name string) error {
	mode, ok := gatehouse.Pace.ParseMode(name)
	if name != pollName && !ok {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "mode is %q, want %s", name, ModeNames())
	}
	l.Mode, l.Poll = mode, name == pollName
	return nil
}

// ModeName is the name of the mode.
func (l *PaceLimit) ModeName() string {
	switch {
	case l.Poll:
		return pollName
	case l.Mode == gatehouse.ModeDefault:
		return gatehouse.Pace.Modes()[0]
	}
	return l.Mode.String()
}

// ModeNames lists the names of all modes in a sentence, the default first.
func ModeNames() string {
	return strings.Join(gatehouse.Pace.Modes(), ", ") + " or " + pollName
}

// Check returns an error of CodeInvalid when the limit makes no sense.
func (l *PaceLimit) Check() error {
	if l.Requests < 1 {
		return gatehouse.Errorf(gatehouse.CodeInvalid, "requests is %d, want at least 1", l.Requests)
	}
	cmd := l.connectionCommand()
	return cmd.Check(l.controllerKey())
}

func (l *PaceLimit) controllerKey() gatehouse.Key {
	return gatehouse.Key{Kind: gatehouse.Pace, Name: l.Name}
}

// connectionCommand is what every connection asks.
func (l *PaceLimit) connectionCommand() gatehouse.Command {
	cmd := gatehouse.Command{
		Op: gatehouse.OpReserve, Cost: 1,
		Rule: gatehouse.Rule{Size: l.Requests, Interval: l.Period, Mode: l.Mode, Guard: l.Guard},
	}
	// A client that asks again after its sleep must not leave a reservation behind each time.
	if l.Poll {
		cmd.Op = gatehouse.OpAcquire
	}
	return cmd
}

// A Config says what a server answers from. The gate, the log and the limit are needed.
type Config struct {
	Gate  Gate
	Log   *slog.Logger
	Limit PaceLimit

	// ConnsPerAddress is the most connections from one address; 0 means any number. One more is closed
	// without an answer and takes no place. IPv6 addresses count by their first 64 bits.
	ConnsPerAddress int

	// Metrics is where the server's metrics are registered; nil is nowhere. Servers of several listeners have
	// them in common.
	Metrics prometheus.Registerer

	// Users says who may do what; nil means that everybody may do everything. The listener asks as the user
	// jarl/NAME, with the name of its limiter; without such a user Admits alone decides.
	Users *access.Users

	// Admits says which connections take a place; its zero value admits all.
	Admits Admission

	// Unaccepted logs connections that cannot be accepted, for all listeners of the process; nil means a
	// complaint of the server's own.
	Unaccepted *peer.Complaint
}

// A Server answers the connections of one listener. Make one with New.
type Server struct {
	gate   Gate
	log    *slog.Logger
	limit  PaceLimit
	key    gatehouse.Key
	cmd    gatehouse.Command
	admits Admission
	users  *access.Users // nil if rights are off

	metrics *telemetry.Protocol
	series  *telemetry.Series

	sources  peer.Addresses // of the open connections
	registry connRegistry
	conns    sync.WaitGroup    // of Serve and the workers
	idle     chan *net.TCPConn // to a worker that has nothing to do
	resting  atomic.Int64      // of these
	stopping atomic.Bool

	unaccepted *peer.Complaint // of all listeners
	unanswered peer.Complaint

	mu       sync.Mutex
	listener net.Listener
	stopped  bool
}

// New returns a server that is to be closed by Shutdown. The error is one of PaceLimit.Check.
func New(config Config) (*Server, error) {
	limit := config.Limit
	if err := limit.Check(); err != nil {
		return nil, err
	}
	s := &Server{
		gate: config.Gate, log: config.Log,
		limit: limit, key: limit.controllerKey(), cmd: limit.connectionCommand(),
		admits: config.Admits, users: config.Users, unaccepted: cmp.Or(config.Unaccepted,
			new(peer.Complaint)),
		registry: connRegistry{most: maxDrained, waiting: make(map[*connection]struct{})},
		idle:     make(chan *net.TCPConn),
		metrics:  telemetry.New(config.Metrics, telemetry.JARL),
	}
	// A poll reserves nothing. Its delay is compared with MaxDelay when it is answered.
	if !limit.Poll {
		s.cmd.MaxDelay = config.Admits.MaxDelay
	}
	s.sources.Most = config.ConnsPerAddress
	s.series = s.metrics.Shard().Of(s.key.Kind, s.cmd.Op)
	return s, nil
}

// Listen listens at a TCP address, for Serve. Connections live too briefly for keep-alive, which would
// cost four system calls each; those that have to wait get it when they do.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	return peer.Listen(ctx, net.ListenConfig{KeepAlive: -1}, address)
}

// Serve answers the connections of a TCP listener until Shutdown is called. It is called once. A
// connection that cannot be accepted, for want of file descriptors say, does not end it.
func (s *Server) Serve(listener net.Listener) error {
	capped := peer.CapListener(listener, peer.CapConfig{Admit: s.admitConn, Failed: func(err error) {
		s.unaccepted.Unaccepted(s.log, "JARL", err)
		// The answers of drained connections are written, and closing them frees file descriptors.
		s.registry.makeRoom()
	}})
	if !s.setListener(capped) {
		_ = capped.Close() // whoever called Shutdown may have closed it
		return nil
	}
	defer s.conns.Done()
	// Closed before Done: the workers that rest end then, and Shutdown waits for them.
	defer close(s.idle)
	for {
		conn, err := capped.Accept()
		if err != nil {
			return nil // it fails only when it is closed
		}
		// Ending only the sending half, which every answer needs, takes a TCP connection.
		tcp, ok := conn.(*net.TCPConn)
		if !ok {
			return fmt.Errorf("serving JARL: the listener's connections are a %T, want TCP", conn)
		}
		s.assignWorker(tcp)
	}
}

// admitConn counts a connection. It is asked before a worker is: a connection beyond the limit costs neither
// a goroutine nor a place, and gets no answer.
func (s *Server) admitConn(conn net.Conn) (net.Conn, error) {
	if !s.sources.Enter(peer.Source(conn)) {
		s.metrics.Refused.Inc()
		return nil, peer.Refusal("")
	}
	return conn, nil
}

// maxResting is how many workers may have nothing to do. They are kept because a new one would begin by
// growing its stack to what a decision needs, which costs more than the decision does.
const maxResting = 256

// assignWorker gives a connection to a worker.
func (s *Server) assignWorker(conn *net.TCPConn) {
	// The channel has no buffer, so that a connection goes only to a worker that rests at this instant.
	select {
	case s.idle <- conn:
	default:
		s.conns.Add(1)
		go s.runWorker(conn) // ends when it has nothing to do and others rest already, or with Serve
	}
}

// runWorker answers one connection after the other.
func (s *Server) runWorker(conn *net.TCPConn) {
	defer s.conns.Done()
	c := new(connection)
	for ok := true; ok; {
		c.TCPConn = conn
		from := peer.Source(conn)
		s.answerConnection(c)
		s.sources.Leave(from)
		// Counted before the check: workers that finish together must not all stay.
		if s.resting.Add(1) > maxResting {
			s.resting.Add(-1)
			return
		}
		conn, ok = <-s.idle
		s.resting.Add(-1)
	}
}

// setListener notes the listener, so that Shutdown can close it. It reports false after that.
func (s *Server) setListener(listener net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	s.listener = listener
	s.conns.Add(1) // for Serve itself
	return true
}

// Stopping says that waiting clients are about to be sent away, which is nothing to complain about.
func (s *Server) Stopping() { s.stopping.Store(true) }

// Shutdown stops listening and waits for the connections in hand. Clients in line must have been
// answered by closing the gate. When ctx ends first, the rest is cut.
func (s *Server) Shutdown(ctx context.Context) error {
	s.Stopping()
	s.mu.Lock()
	var err error
	// Shutdown may be called again, and then only waits for what is left.
	if !s.stopped {
		s.stopped = true
		s.unanswered.End()
		if s.listener != nil {
			err = s.listener.Close()
		}
	}
	s.mu.Unlock()
	finished := make(chan struct{})
	go func() { // ends with the last connection
		s.conns.Wait()
		close(finished)
	}()
	select {
	case <-finished:
		return err
	case <-ctx.Done():
		// Workers whose connection is closed end soon, so this waits without a limit.
		s.registry.closeAllConns()
		<-finished
		return errors.Join(err, ctx.Err())
	}
}
