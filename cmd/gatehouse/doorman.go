package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/election"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/grpclog"
)

// capacitySettings are those of the settings that are about capacity.
type capacitySettings struct {
	grpc, advertise          string
	config, leases, election string
	parents                  []string
	parentName               string
	maxResources, maxLeases  int
	maxLeasesTotal           int
}

// add adds a flag for each setting, with its default.
func (s *capacitySettings) add(f *pflag.FlagSet) {
	f.StringVar(&s.grpc, "grpc", "localhost:5506",
		"address for doorman's clients; empty for none, and no capacity")
	f.StringVar(&s.advertise, "advertise", "", "where clients find this server; empty for where it listens")
	f.StringVar(&s.config, "capacity-config", "", "capacity templates: file:PATH or etcd://HOST:PORT/KEY")
	f.StringVar(&s.leases, "capacity-leases", "", "file that tells who holds leases to the next server")
	f.StringSliceVar(&s.parents, "parent", nil, "servers to get capacity from, instead of templates")
	f.StringVar(&s.parentName, "parent-name", "",
		"what parents know this server by; empty for the election's address, or else this machine and port")
	f.StringVar(&s.election, "election", "", "etcd://HOST:PORT/KEY?ttl=10s, where servers elect a master")
	f.IntVar(&s.maxResources, "max-resources", capacity.DefaultResources, "most capacity resources at once")
	f.IntVar(&s.maxLeases, "max-leases", capacity.DefaultLeases, "most leases at once on one resource")
	f.IntVar(&s.maxLeasesTotal, "max-leases-total", capacity.DefaultLeasesTotal,
		"most leases at once on all resources")
}

// faults notes the settings that cannot work.
func (s *capacitySettings) faults(note func(flag, format string, args ...any)) {
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"max-resources", s.maxResources}, {"max-leases", s.maxLeases},
		{"max-leases-total", s.maxLeasesTotal},
	} {
		if n.value <= 0 {
			note(n.flag, "is not above 0")
		}
	}
	if s.advertise != "" && !dialable(s.advertise) {
		note("advertise", "is %q, want a host and a port such as gatehouse-1:5506", s.advertise)
	}
	for _, parent := range s.parents {
		if !dialable(parent) {
			note("parent", "has %q, want hosts and ports such as gatehouse-1:5506", parent)
		}
	}
	if len(s.advertise) > election.MaxCandidate {
		note("advertise", "has %d bytes, want at most %d", len(s.advertise), election.MaxCandidate)
	}
	if s.election != "" {
		if err := election.Check(s.election); err != nil {
			note("election", "is no address: %v", err)
		}
	}
	if s.config != "" {
		if err := config.CheckCapacity(s.config); err != nil {
			note("capacity-config", "is no source: %v", err)
		}
	}
	if s.leases != "" && s.election != "" {
		note("capacity-leases", "cannot be used with --election: another master may have granted meanwhile")
	}
	if s.config != "" && len(s.parents) > 0 {
		note("capacity-config", "cannot be used with --parent, which tells how resources are shared")
	}
	if s.grpc == "" && (s.config != "" || s.leases != "" || s.election != "" || len(s.parents) > 0) {
		note("grpc", "is empty, which switches capacity off; want an address, or no settings for capacity")
	}
}

// dialable reports whether an address has a host and a port, which may have a name.
func dialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	number, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && port != "" && (bad != nil || number > 0)
}

// newDoorman makes the server that hands out leases on capacity, and what runs beside it.
func (h *house) newDoorman(p *plan, figures *prometheus.Registry) (*grpcfront.Server, error) {
	c := &p.capacity
	how := grpcfront.Config{
		Log: h.log, Now: time.Now, Metrics: figures, Address: c.advertise, Source: c.config,
		Parents: c.parents, Leases: c.leases, Conns: p.maxConns,
		ReadTimeout: p.readTimeout, WriteTimeout: p.writeTimeout, Budget: h.budget,
		ConnsPerAddress: h.connsPerAddress, Unaccepted: &h.unaccepted, Memory: h.memory,
		Limits: capacity.Limits{
			Resources: c.maxResources, Leases: c.maxLeases, LeasesTotal: c.maxLeasesTotal,
		},
	}
	how.Name = c.parentName
	if c.election != "" {
		e, err := election.Open(c.election)
		if err != nil {
			return nil, fmt.Errorf("--election: %w", err)
		}
		how.Election = &candidacy{Election: e, log: h.log}
		// Servers that elect a master of them have one name for their parents, so that whoever is master
		// goes on with what the one before was given.
		how.Name = cmp.Or(c.parentName, e.Name())
	}
	server, err := grpcfront.New(how)
	if err != nil {
		return nil, err
	}
	if p.templates != nil { // before the first client comes
		server.Configure(p.templates, p.version)
	}
	if c.config != "" {
		reload := make(chan os.Signal, 1)
		signal.Notify(reload, syscall.SIGHUP) // before anybody can take the server for running
		h.beside = append(h.beside, func(ctx context.Context) error {
			return h.watchCapacity(ctx, c.config, reload, server)
		})
	}
	h.doors = append(h.doors, &door{
		server: server, protocol: "gRPC", address: c.grpc, chosen: "with --grpc", listen: listenTCP,
		conns: p.maxConns,
	})
	return server, nil
}

// watchCapacity keeps a server's templates as they are at their source.
func (h *house) watchCapacity(
	ctx context.Context, source string, reload <-chan os.Signal, to *grpcfront.Server,
) error {
	return config.WatchCapacity(ctx, config.CapacityWatch{
		Source: source,
		Reload: reload,
		Apply: func(templates capacity.Templates, version string) {
			to.Configure(templates, version)
			h.log.Info("capacity configuration is in use", "version", version, "templates", len(templates))
		},
		Failed: func(err error) {
			to.ConfigFailed(err)
			h.log.Error("capacity configuration cannot be used; the last one that could stays", "error", err)
		},
	})
}

// A candidacy is an election as internal/front/grpc wants it.
type candidacy struct {
	*election.Election
	log *slog.Logger
}

// Run implements [grpcfront.Election].
func (c *candidacy) Run(ctx context.Context, candidate string, tell func(grpcfront.Mastership)) error {
	trouble := ""
	err := c.Election.Run(ctx, candidate, func(status election.Status) {
		tell(grpcfront.Mastership{Leading: status.Leading, Until: status.Until, Leader: status.Leader})
		text := ""
		if status.Err != nil {
			text = status.Err.Error()
		}
		if text != trouble && text != "" {
			c.log.Warn("the election has trouble", "error", text)
		}
		trouble = text
	})
	return errors.Join(err, c.Close())
}

// A grpcLog takes what gRPC has to say about its connections. Little of that is for whoever runs the
// server: what a client does wrong it is told itself.
type grpcLog struct {
	grpclog.LoggerV2 // which is silent
	log              *slog.Logger
}

func newGRPCLog(log *slog.Logger) grpcLog {
	return grpcLog{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard), log}
}

// Error implements [grpclog.LoggerV2].
func (l grpcLog) Error(args ...any) { l.warn(fmt.Sprint(args...)) }

// Errorln implements [grpclog.LoggerV2].
func (l grpcLog) Errorln(args ...any) { l.warn(fmt.Sprintln(args...)) }

// Errorf implements [grpclog.LoggerV2].
func (l grpcLog) Errorf(format string, args ...any) { l.warn(fmt.Sprintf(format, args...)) }

func (l grpcLog) warn(text string) { l.log.Warn("gRPC", "message", strings.TrimSpace(text)) }
