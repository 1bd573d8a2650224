package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/config"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/internal/front/resp"
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
		Long: "Run the server. A flag --max-names can also be given as GATEHOUSE_MAX_NAMES, and as\n" +
			"max-names in a YAML file, which can list JARL listeners besides. A flag wins over the\n" +
			"environment, and that over the file. bouncer's BOUNCER_HOST, BOUNCER_PORT and\n" +
			"BOUNCER_LOGLEVEL are honoured.",
		Example: "  gatehouse serve\n  gatehouse serve --http :5505 --max-waiters 10000\n" +
			"  gatehouse serve --config gatehouse.yaml",
		Args: noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			p, err := newPlan(cmd.Context(), &s, cmd.Flags(), &path)
			if err != nil {
				return err
			}
			if checkOnly {
				_, _ = fmt.Fprintln(cmd.OutOrStdout(), "the settings are valid")
				return nil
			}
			return serve(cmd.Context(), p)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	s.add(f)
	f.StringVar(&path, "config", "", "file with settings and JARL listeners")
	f.BoolVar(&checkOnly, "check", false, "look at all settings, say what is wrong, and end")
	return cmd
}

// serve runs the server until a signal, or ctx, ends it. All the wiring is here.
func serve(ctx context.Context, p *plan) (err error) {
	s := p.settings
	log := newLogger(s.logLevel, s.logFormat, os.Stderr)
	grpclog.SetLoggerV2(newGRPCLog(log)) // before anybody uses it, such as a store
	figures := prometheus.NewRegistry()
	memory := newTotal(s.maxMemory, figures)
	opening := opening{
		settings: s, rules: p.file.Rules, servers: p.file.Servers, memory: memory, figures: figures, log: log,
	}
	clock := newClockWatch(log, figures)
	store, err := opening.open(ctx)
	if err != nil {
		return err
	}
	defer func() { err = cmp.Or(err, store.close()) }()
	registerHolders(figures, store.holds)
	h := &house{
		log: log, drain: s.drain, connsPerAddress: s.connsPerAddress(),
		budget: newBudget(s.maxBuffered, figures), memory: memory,
		gate: gate.New(store.Store, gate.Config{
			Waiters: s.maxWaiters, Line: s.maxLine, FirstTicket: store.first,
		}),
		beside: []func(context.Context) error{store.watch, clock.run},
	}
	var routes map[string]func(ctx *fasthttp.RequestCtx, name string) error
	if s.capacity.grpc != "" {
		leases, err := h.newDoorman(p, figures)
		if err != nil {
			return err
		}
		routes = leases.Routes()
	}
	if s.http != "" {
		d, err := h.newHTTP(s, httpfront.Config{
			Names: store.names, Store: store.health, Metrics: figures, Routes: routes,
		})
		if err != nil {
			return err
		}
		h.doors = slices.Insert(h.doors, 0, d) // people look for it first
		if isTerminal(os.Stderr) {
			h.opened = func() { fmt.Fprint(os.Stderr, greeting(s, d.listener.Addr())) }
		}
	}
	if s.resp != "" {
		d, err := h.newRESP(s, figures)
		if err != nil {
			return err
		}
		h.doors = append(h.doors, d)
	}
	if err := h.addJARL(p, figures); err != nil {
		return err
	}
	return h.run(ctx)
}

// addJARL adds the doors that the configuration file lists.
func (h *house) addJARL(p *plan, figures *prometheus.Registry) error {
	for _, l := range p.file.JARL {
		d, err := h.newJARLDoor(&l, figures)
		if err != nil {
			return err
		}
		d.chosen = fmt.Sprintf("at %s:%d:%d", p.file.Path, l.At.Line, l.At.Column)
		h.doors = append(h.doors, d)
	}
	return nil
}

// newHTTP makes the door that speaks HTTP.
func (h *house) newHTTP(s *settings, how httpfront.Config) (*door, error) {
	how.Gate, how.Log, how.Version = h.gate, h.log, buildVersion()
	how.CORS, how.Hosts, how.Keep, how.Conns = s.cors, s.ownHosts(), s.keep, s.maxConns
	how.Refusal = s.refusal
	how.Budget, how.ConnsPerAddress, how.Unaccepted = h.budget, h.connsPerAddress, &h.unaccepted
	how.ReadTimeout, how.WriteTimeout, how.IdleTimeout = s.readTimeout, s.writeTimeout, s.idleTimeout
	server, err := httpfront.New(how)
	if err != nil {
		return nil, err
	}
	return &door{
		server: server, protocol: "HTTP", address: s.http, chosen: "with --http", listen: listenTCP,
		conns: s.maxConns,
		about: []any{"store", withoutPassword(s.store), "version", buildVersion()},
	}, nil
}

// newRESP makes the door that Redis clients come to.
func (h *house) newRESP(s *settings, figures *prometheus.Registry) (*door, error) {
	server, err := resp.New(resp.Config{
		Gate: h.gate, Log: h.log, Metrics: figures, Version: buildVersion(), Keep: s.keep,
		Conns: s.maxConns, ConnsPerAddress: h.connsPerAddress,
		ReadTimeout: s.readTimeout, WriteTimeout: s.writeTimeout, Budget: h.budget,
		IdleTimeout: s.respIdleTimeout, Now: time.Now, Unaccepted: &h.unaccepted,
	})
	if err != nil {
		return nil, err
	}
	return &door{
		server: server, protocol: "RESP", address: s.resp, chosen: "with --resp", listen: listenTCP,
		conns: s.maxConns,
	}, nil
}

// newJARLDoor makes a door that speaks JARL's protocol.
func (h *house) newJARLDoor(l *config.Listener, figures prometheus.Registerer) (*door, error) {
	limit := &l.Limit
	server, err := jarl.New(jarl.Config{
		Gate: h.gate, Log: h.log, Limit: *limit, Metrics: figures, Admits: l.Admits,
		ConnsPerAddress: h.connsPerAddress, Unaccepted: &h.unaccepted,
	})
	if err != nil {
		return nil, err
	}
	return &door{
		server: server, protocol: "JARL", address: l.Address, listen: jarl.Listen,
		about: []any{
			"limiter", "pace/" + limit.Name, "requests", limit.Requests, "period", limit.Period.String(),
			"mode", limit.ModeName(), "guard", limit.Guard.String(),
			"max-delay", l.Admits.MaxDelay.String(), "allow", l.Admits.String(),
		},
	}, nil
}
