package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/prometheus/client_golang/prometheus"
)

// A protocolServer speaks one protocol on one listener.
type protocolServer interface {
	// Serve answers requests until Shutdown is called.
	Serve(listener net.Listener) error
	// Stopping announces the shutdown: from now on every response is the last one on its connection.
	Stopping()
	// Shutdown waits for requests in progress to finish, and cuts off the rest when ctx ends.
	Shutdown(ctx context.Context) error
}

// A protocolListener is a server and the address it listens on.
type protocolListener struct {
	protocolServer
	protocol    string // its name for people, as in "HTTP"
	address     string
	addressHint string // tells a user how to choose another address
	listen      func(ctx context.Context, address string) (net.Listener, error)
	maxConns    int   // most connections at once; 0 for a protocol whose connections end by themselves
	logFields   []any // logged when it begins to serve

	listener net.Listener // nil until openListener succeeded
}

// openListener begins to listen.
func (l *protocolListener) openListener(ctx context.Context) (err error) {
	l.listener, err = l.listen(ctx, l.address)
	if err != nil {
		return fmt.Errorf("listening for %s: %w; choose another address %s", l.protocol, err, l.addressHint)
	}
	return nil
}

// listenTCP opens the TCP listener of every protocol except JARL.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{Control: setOptions}
	// A Multipath TCP connection would not inherit what setOptions sets on the listener.
	config.SetMultipathTCP(false)
	return peer.Listen(ctx, config, address)
}

// A serverProcess is everything that runs in the process of a server: one gate, and the listeners that
// lead to it.
//
//	        openListeners           a signal, a failure, or ctx ends
//	closed ---------------> serving --------------------------------> stopping --> closed
//	   ^       |                                                     (shutDown)
//	   +-------+ one of them cannot be opened
type serverProcess struct {
	log          *slog.Logger
	metrics      *prometheus.Registry
	gate         *gate.Gate
	listeners    []*protocolListener
	drainTimeout time.Duration // how long requests in progress may take at the end

	budget *budget.Budget // of buffered bytes, shared by all listeners
	memory *weight.Total  // of the state
	tls    *tlsListening  // nil without TLS
	users  *access.Users  // nil if rights are off

	connsPerAddress int // most connections from one client address, for each listener
	unaccepted      peer.Complaint

	tracing tracing

	// onListening is called when all listeners are open; nil for nothing.
	onListening func()

	// background holds functions that run beside the listeners until their context ends. The first error
	// stops the process.
	background []func(ctx context.Context) error
}

// addReload adds a background function that reads files again at each value of again, a SIGHUP. It is called
// before the process listens: a script that sees it running may send SIGHUP at once, which would end a
// process that has not asked for it.
func (proc *serverProcess) addReload(run func(ctx context.Context, again <-chan os.Signal) error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, syscall.SIGHUP)
	proc.background = append(proc.background, func(ctx context.Context) error {
		defer signal.Stop(again)
		return run(ctx, again)
	})
}

// gcPercent is by how much the heap may grow before it is collected, in percent. Most of the heap is waiting
// requests, and there is little garbage, so that collecting at half of Go's default growth costs next to no
// time.
const gcPercent = 50

// serveUntilSignal opens all listeners, serves, and closes them when a signal comes, ctx ends, or one of them
// or of the background functions fails. It serves no client unless all addresses could be opened.
func (proc *serverProcess) serveUntilSignal(ctx context.Context) error {
	if os.Getenv("GOGC") == "" { // the user's own choice wins
		debug.SetGCPercent(gcPercent)
	}
	if err := proc.openListeners(ctx); err != nil {
		return err
	}
	signals, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()

	// The signal does not end the background functions: they run until the listeners are closed. Deferred
	// calls run in reverse, so that they are cancelled first and then awaited.
	background, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	failed := make(chan error, len(proc.background)) // with room for all: nothing reads it after the end
	for _, run := range proc.background {
		running.Go(func() {
			if err := run(background); err != nil && background.Err() == nil {
				failed <- err
			}
		})
	}
	ended := make(chan error, len(proc.listeners))
	for _, l := range proc.listeners {
		proc.log.Info("serving "+l.protocol, append(addressFields(l.listener), l.logFields...)...)
		go func() { ended <- l.Serve(l.listener) }()
	}
	if proc.onListening != nil {
		proc.onListening()
	}

	// Without a signal, a server that returns has failed: its error is the cause, and comes first.
	select {
	case err := <-ended:
		return errors.Join(err, proc.shutDown())
	case err := <-failed:
		return errors.Join(err, proc.shutDown())
	case <-signals.Done():
	}
	stop() // a second signal ends the process at once
	proc.log.Info("stopping", "waiting", proc.gate.Waiting(), "drain", proc.drainTimeout.String())
	if err := proc.shutDown(); err != nil {
		// The end was asked for and is here: a request that took too long does not make it a failure.
		proc.log.Warn("stopped with errors", "error", err)
		return nil
	}
	// Every Serve has ended after Shutdown. An error that came at the end is still reported.
	for range proc.listeners {
		if err := <-ended; err != nil {
			return err
		}
	}
	proc.log.Info("stopped")
	return nil
}

// openListeners opens all listeners, or none. The error names every address that could not be opened, not
// only the first.
func (proc *serverProcess) openListeners(ctx context.Context) error {
	var failed []error
	for _, l := range proc.listeners {
		if err := l.openListener(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	if failed == nil {
		proc.warnOfFewFiles(openFileLimit())
		return nil
	}
	// Their backlogs may have connections by now. Closing resets these, and no client is half served.
	for _, l := range proc.listeners {
		if l.listener != nil {
			_ = l.listener.Close()
		}
	}
	return errors.Join(failed...)
}

// addressFields returns the addresses of a listener as fields for the log. There are two for localhost, which
// is an address of IPv4 and one of IPv6.
func addressFields(listener net.Listener) (fields []any) {
	keys := []string{"address", "also"}
	for i, address := range peer.Addrs(listener) {
		fields = append(fields, keys[i], address.String())
	}
	return fields
}

// shutDown answers all waiting requests, lets requests in progress finish, closes all listeners together, and
// waits for the commands that a store still works on. Afterwards the store may be closed.
func (proc *serverProcess) shutDown() error {
	proc.unaccepted.End()

	// The order matters. First each connection is marked as closing, so that the responses that closing the
	// gate causes already say so to their clients. Then the gate refuses its waiting requests: Shutdown
	// would otherwise wait for them until the drain time is over.
	for _, l := range proc.listeners {
		l.Stopping()
	}
	proc.gate.Close()
	// A new context, since that of the process may be what ended.
	ctx, cancel := context.WithTimeout(context.Background(), proc.drainTimeout)
	defer cancel()
	failed := make([]error, len(proc.listeners))
	var all sync.WaitGroup
	for i, l := range proc.listeners {
		all.Go(func() {
			failed[i] = l.Shutdown(ctx)
			_ = l.listener.Close() // Shutdown has closed it, unless Serve was only about to begin
		})
	}
	all.Wait()

	// The store comes last, when no listener can add to its commands.
	// Of the last requests too, so the traces come behind them.
	err := errors.Join(errors.Join(failed...), proc.gate.Drain(ctx))
	if lost := proc.tracing.endTracing(ctx); lost != nil {
		proc.log.Warn("the last traces could not be sent", "error", lost)
	}
	return err
}

// spareFiles is for everything except connections from clients: listeners, event loops, the store, logs.
const spareFiles = 100

// warnOfFewFiles logs a warning if the process may open fewer files than one of its listeners may have
// connections: beyond that, a client waits until another connection ends. limit is the most open files; 0 is
// unknown.
func (proc *serverProcess) warnOfFewFiles(limit int64) {
	var conns, most, listeners int64
	for _, l := range proc.listeners {
		// A listener without a limit, of JARL, is not counted: its connections last a moment.
		if l.maxConns > 0 {
			conns += int64(l.maxConns)
			most = max(most, int64(l.maxConns))
			listeners++
		}
	}
	// All listeners are seldom full at once. So the warning goes by the largest of them, to be no false
	// alarm, and the advice by their sum, to be enough in any case.
	wanted := conns + spareFiles
	if limit <= 0 || listeners == 0 || limit >= most {
		return
	}
	proc.log.Warn("the limit of open files is below --max-connections; "+
		"beyond it, clients wait until another connection ends",
		"limit", limit, "wanted", wanted, "listeners", listeners,
		"want", fmt.Sprintf("ulimit -n %d, LimitNOFILE=%d or --max-connections %d",
			wanted, wanted, max(1, (limit-spareFiles)/listeners)))
}
