package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/internal/front/resp"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"
	"github.com/valyala/fasthttp"
	"google.golang.org/grpc/grpclog"
)

func newServe() *cobra.Command {
	var s settings
	var path string
	var checkOnly bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server. A flag such as --max-names can also be set by the variable\n" +
			"GATEHOUSE_MAX_NAMES, and as max-names in a YAML file, which can also list JARL listeners.\n" +
			"A flag overrides the environment, and the environment the file. bouncer's BOUNCER_HOST,\n" +
			"BOUNCER_PORT and BOUNCER_LOGLEVEL work too.",
		Example: "  gatehouse serve\n  gatehouse serve --http localhost:5505 --max-waiters 10000\n" +
			"  gatehouse serve --config gatehouse.yaml",
		Args: refuseWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newServePlan(cmd.Context(), &s, cmd.Flags(), &path)
			if err != nil {
				return err
			}
			// Checking reads exactly the plan that a server would run with, so that the two cannot differ.
			if checkOnly {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), "the settings are valid")
				return nil
			}
			return runServer(cmd.Context(), p)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	s.addFlags(f)
	f.StringVar(&path, "config", "", "file with settings and JARL listeners")
	f.BoolVar(&checkOnly, "check", false, "check all settings, print what is wrong, and exit")
	return cmd
}

// runServer runs the server until a signal, or ctx, ends it. All the parts are put together here.
func runServer(ctx context.Context, p *servePlan) (err error) {
	useProcessors()
	s := p.settings
	log := newLogger(s.logLevel, s.logFormat, os.Stderr)
	grpclog.SetLoggerV2(newGRPCLog(log)) // before the first use of gRPC, which may be by the store
	metrics := prometheus.NewRegistry()
	memory := newStateTotal(s.maxMemory, metrics)
	observer := newObserver(p, metrics)
	opening := storeOpener{
		settings: s, rules: p.file.Rules, servers: p.file.Servers, memory: memory, metrics: metrics, log: log,
		vanished: observer.CountVanished,
	}
	clock := newClockWatch(log, metrics) // just before the store, whose clock begins when it is opened
	store, err := opening.openStore(ctx)
	if err != nil {
		return err
	}
	// The store is closed last: serveUntilSignal returns only when no listener and no command uses it.
	defer func() { err = cmp.Or(err, store.close()) }()
	// Only now: the number comes from the store, which is open from here on.
	registerHolderMetric(metrics, store.countHolders)
	tracing, err := openTracing(ctx, s, log)
	if err != nil {
		return err
	}
	proc := &serverProcess{
		metrics: metrics, log: log, drainTimeout: s.drain, connsPerAddress: s.connsPerAddress(),
		budget: newBudget(s.maxBuffered, metrics), memory: memory,
		gate:       newGate(store, s, &tracing, observer),
		background: []func(context.Context) error{store.watchFailure, clock.watchClock},
		tracing:    tracing,
	}
	proc.tls = proc.newTLS(p.certs, metrics)
	proc.watchOutgoingTLS(s, metrics)
	proc.users, err = proc.newUsers(ctx, p, metrics, observer)
	if err != nil {
		return err
	}
	// The server of leases comes before the HTTP listener, which shows its resources under their routes.
	routes, err := proc.addLeases(p, metrics)
	if err != nil {
		return err
	}
	if s.http != "" || s.health != "" {
		l, err := proc.newHTTPListener(s, httpfront.Config{
			Names: store.countNames, Store: store.healthLine, Metrics: metrics, Routes: routes,
			Decisions: observer, BeginTrace: tracing.begin,
			Activity: proc.newActivity(s, store, observer),
			About:    proc.newAbout(p, store),
		})
		if err != nil {
			return err
		}
		proc.addHTTPListeners(s, l)
	}
	// An empty address switches a protocol off. All listeners lead to the same gate.
	if s.resp != "" {
		l, err := proc.newRESPListener(s, metrics, observer)
		if err != nil {
			return err
		}
		proc.listeners = append(proc.listeners, l)
	}
	if err := proc.addJARLListeners(p, metrics); err != nil {
		return err
	}
	return proc.serveUntilSignal(ctx)
}

// addLeases adds the server of leases on capacity, unless it is switched off, and returns its routes.
func (proc *serverProcess) addLeases(
	p *servePlan, metrics *prometheus.Registry,
) (map[string]func(ctx *fasthttp.RequestCtx, name string) error, error) {
	if p.capacity.grpc == "" {
		return nil, nil
	}
	leases, err := proc.newDoorman(p, metrics)
	if err != nil {
		return nil, err
	}
	return leases.Routes(), nil
}

// addJARLListeners adds the JARL listeners of the configuration file.
func (proc *serverProcess) addJARLListeners(p *servePlan, metrics *prometheus.Registry) error {
	for _, config := range p.file.JARL {
		// Each one has its own limit, so that one server may enforce several.
		l, err := proc.newJARLListener(&config, metrics)
		if err != nil {
			return err
		}
		// No flag has the address: the hint is its place in the file.
		l.addressHint = fmt.Sprintf("at %s:%d:%d", p.file.Path, config.At.Line, config.At.Column)
		proc.listeners = append(proc.listeners, l)
	}
	return nil
}

// newHTTPListener returns the listener for HTTP. front has what the other parts of the server show over it;
// the rest is set from the settings.
func (proc *serverProcess) newHTTPListener(s *settings, front httpfront.Config) (*protocolListener, error) {
	front.Gate, front.Log, front.Version = proc.gate, proc.log, buildVersion()
	front.CORS, front.Hosts, front.Keep, front.Conns = s.cors, s.ownHosts(), s.keep, s.maxConns
	front.Refusal, front.Users = s.refusal, proc.users
	front.Budget, front.Unaccepted = proc.budget, &proc.unaccepted
	front.ConnsPerAddress = proc.connsPerAddress
	front.ReadTimeout, front.WriteTimeout = s.readTimeout, s.writeTimeout
	front.IdleTimeout, front.TLS = s.idleTimeout, proc.tls.forProtocol(telemetry.HTTP, "http/1.1")
	server, err := httpfront.New(front)
	if err != nil {
		return nil, err
	}
	// A log is read by more people than the settings, so that it has no password.
	return &protocolListener{
		protocolServer: server, protocol: "HTTP", address: s.http, addressHint: "with --http",
		listen: listenTCP, maxConns: s.maxConns,
		logFields: []any{"store", withoutPassword(s.store), "version", buildVersion()},
	}, nil
}

// newRESPListener returns the listener for Redis clients.
func (proc *serverProcess) newRESPListener(
	s *settings, metrics *prometheus.Registry, observer *decisions.Recorder,
) (*protocolListener, error) {
	// Since counts by the monotonic clock: no idle time ends because the system's clock is set.
	start := time.Now()
	server, err := resp.New(resp.Config{
		Gate: proc.gate, Log: proc.log, Metrics: metrics, Version: buildVersion(), Keep: s.keep,
		Conns: s.maxConns, ConnsPerAddress: proc.connsPerAddress,
		ReadTimeout: s.readTimeout, WriteTimeout: s.writeTimeout, Budget: proc.budget,
		IdleTimeout: s.respIdleTimeout, Unaccepted: &proc.unaccepted, Decisions: observer, Users: proc.users,
		Now: func() time.Duration { return time.Since(start) },
		TLS: proc.tls.forProtocol(telemetry.RESP),
	})
	if err != nil {
		return nil, err
	}
	return &protocolListener{
		protocolServer: server, protocol: "RESP", address: s.resp, addressHint: "with --resp",
		listen: listenTCP, maxConns: s.maxConns,
	}, nil
}

// newJARLListener returns a listener for JARL's protocol. metrics may be nil.
func (proc *serverProcess) newJARLListener(
	l *config.Listener, metrics prometheus.Registerer,
) (*protocolListener, error) {
	limit := &l.Limit
	server, err := jarl.New(jarl.Config{
		Gate: proc.gate, Log: proc.log, Limit: *limit, Users: proc.users, Metrics: metrics, Admits: l.Admits,
		ConnsPerAddress: proc.connsPerAddress, Unaccepted: &proc.unaccepted,
	})
	if err != nil {
		return nil, err
	}
	return &protocolListener{
		// It has no maxConns: a connection is one request, and ends with its answer.
		protocolServer: server, protocol: "JARL", address: l.Address, listen: jarl.Listen,
		logFields: []any{
			"limiter", "pace/" + limit.Name, "requests", limit.Requests, "period", limit.Period.String(),
			"mode", limit.ModeName(), "guard", limit.Guard.String(),
			"max-delay", l.Admits.MaxDelay.String(), "allow", l.Admits.String(),
		},
	}, nil
}

// greetingText returns what the server prints on a terminal when it runs: where the documentation is, a first
// request to try, and what happens to the state at the end.
func greetingText(s *settings, at net.Addr) string {
	base := "http://" + localAddress(s.http, at)
	if s.tls.cert != "" {
		base = "https://" + localAddress(s.http, at)
	}
	// The default store surprises: what a user has tried out is gone after a restart.
	end := "State is kept in " + withoutPassword(s.store) + "."
	if s.store == "memory" {
		end = "State is in memory only, and is lost when the server stops; --store disk:DIR keeps it."
	}
	return fmt.Sprintf("Look around:  %s/ and /docs/\n"+
		"Try it:       curl -i '%s/v1/gcra/myapp/acquire?size=5&interval=60000'\n%s\n", base, base, end)
}

// localAddress returns the address at which a program on this machine finds the server. configured is the
// address from the settings, and at the one it listens on, nil when that is not known.
func localAddress(configured string, at net.Addr) string {
	// The host is the one of the settings, as a user knows it, and the port the one that was opened: the
	// settings may say 0 for any free port.
	host, port, err := net.SplitHostPort(configured)
	if at != nil {
		_, port, err = net.SplitHostPort(at.String())
	}
	if err != nil {
		return configured
	}
	// 0.0.0.0 and :: stand for all addresses of the machine, and cannot be connected to.
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
