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
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/election"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"google.golang.org/grpc/grpclog"
)

// capacitySettings are the settings for leases on capacity.
type capacitySettings struct {
	grpc, advertise          string
	config, leases, election string
	parents                  []string
	parentName               string
	parentTLS                certs.ClientFiles
	maxResources, maxLeases  int
	maxLeasesTotal           int
}

// addFlags adds a flag for each setting, with its default.
func (s *capacitySettings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.grpc, "grpc", "localhost:5506",
		"address for doorman's clients; empty for none, and no capacity")
	f.StringVar(&s.advertise, "advertise", "",
		"address at which clients find this server; empty for the address of --grpc")
	f.StringVar(&s.config, "capacity-config", "", "capacity templates: file:PATH or etcd://HOST:PORT/KEY")
	f.StringVar(&s.leases, "capacity-leases", "",
		"file in which the server saves its leases when it stops, for the next start")
	f.StringSliceVar(&s.parents, "parent", nil, "servers to get capacity from, instead of templates")
	f.StringVar(&s.parentName, "parent-name", "",
		"name of this server at its parents; empty for the election's address, or else host and port")
	f.StringVar(&s.parentTLS.CA, "parent-ca", "",
		"file with the authority of the parents' certificates, or system; speak TLS to them")
	f.StringVar(&s.parentTLS.Cert, "parent-cert", "", "file with a certificate to show to parents")
	f.StringVar(&s.parentTLS.Key, "parent-key", "", "file with the key of --parent-cert")
	f.StringVar(&s.election, "election", "", "etcd://HOST:PORT/KEY?ttl=10s, where servers elect a master")
	// A resource is made by the first request for its name, so that clients choose how many there are.
	f.IntVar(&s.maxResources, "max-resources", capacity.DefaultResources, "most capacity resources at once")
	f.IntVar(&s.maxLeases, "max-leases", capacity.DefaultLeases, "most leases at once on one resource")
	f.IntVar(&s.maxLeasesTotal, "max-leases-total", capacity.DefaultLeasesTotal,
		"most leases at once on all resources")
}

// findFaults calls note for each setting that cannot work, apart from the numbers.
func (s *capacitySettings) findFaults(note func(flag, format string, args ...any)) {
	if s.advertise != "" && !isDialable(s.advertise) {
		note("advertise", "is %q, want a host and a port such as gatehouse-1:5506", s.advertise)
	}
	// Parents are addresses of other machines. Unlike --grpc they need a host.
	for _, parent := range s.parents {
		if !isDialable(parent) {
			note("parent", "has %q, want hosts and ports such as gatehouse-1:5506", parent)
		}
	}
	if !s.parentTLS.IsZero() && len(s.parents) == 0 {
		note("parent", "is empty, and there are certificates for parents; want their addresses, or neither")
	}
	if (s.parentTLS.Cert == "") != (s.parentTLS.Key == "") {
		note("parent-cert", "and --parent-key are given one without the other, want both or none")
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
	// Settings that exclude each other.
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

// isDialable reports whether an address has a host and a port, by which another machine can connect. The port
// may be the name of a service.
func isDialable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	// A number is checked, and a name such as "https" left to the dialer: 0 would be any free port.
	number, bad := strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && port != "" && (bad != nil || number > 0)
}

// newDoorman adds the listener for leases on capacity, and the background functions that belong to it.
func (proc *serverProcess) newDoorman(p *servePlan, metrics *prometheus.Registry) (*grpcfront.Server, error) {
	c := &p.capacity
	front := grpcfront.Config{
		BeginCall: proc.tracing.beginCall, Users: proc.users,
		Log: proc.log, Now: time.Now, Metrics: metrics, Address: c.advertise, Source: c.config,
		Parents: c.parents, Leases: c.leases, Conns: p.maxConns,
		ReadTimeout: p.readTimeout, WriteTimeout: p.writeTimeout, Budget: proc.budget,
		ConnsPerAddress: proc.connsPerAddress, Unaccepted: &proc.unaccepted, Memory: proc.memory,
		TLS: proc.tls.forProtocol(telemetry.GRPC, "h2"),
		Limits: capacity.Limits{
			Resources: c.maxResources, Leases: c.maxLeases, LeasesTotal: c.maxLeasesTotal,
		},
	}
	front.Name, front.ParentTLS = c.parentName, p.parentTLS
	front.ParentToken = os.Getenv(tokenVariable)
	if c.election != "" {
		e, err := election.Open(c.election)
		if err != nil {
			return nil, fmt.Errorf("--election: %w", err)
		}
		front.Election = &electionAdapter{Election: e, log: proc.log}
		// Servers that elect a master have one name for their parents. So a new master continues with the
		// capacity that the parents leased to the one before.
		front.Name = cmp.Or(c.parentName, e.Name())
	}
	server, err := grpcfront.New(front)
	if err != nil {
		return nil, err
	}
	// Before it listens: the first client would otherwise find no resources. Templates in etcd come later.
	if p.templates != nil {
		server.Configure(p.templates, p.version)
	}
	if c.config != "" {
		proc.addReload(func(ctx context.Context, again <-chan os.Signal) error {
			return proc.watchCapacity(ctx, c.config, again, server)
		})
	}
	proc.listeners = append(proc.listeners, &protocolListener{
		protocolServer: server, protocol: "gRPC", address: c.grpc, addressHint: "with --grpc",
		listen: listenTCP, maxConns: server.MaxConns(),
	})
	return server, nil
}

// watchCapacity gives a server its templates again whenever their source changes, until ctx ends.
func (proc *serverProcess) watchCapacity(
	ctx context.Context, source string, reload <-chan os.Signal, to *grpcfront.Server,
) error {
	// A configuration that cannot be used changes nothing: clients keep what the last good one gave them.
	return config.WatchCapacity(ctx, config.CapacityWatch{
		Source: source,
		Reload: reload,
		Apply: func(templates capacity.Templates, version string) {
			to.Configure(templates, version)
			proc.log.Info("capacity configuration is in use", "version", version, "templates", len(templates))
		},
		Failed: func(err error) {
			to.ConfigFailed(err)
			proc.log.Error("capacity configuration cannot be used; the last valid one stays in force",
				"error", err)
		},
	})
}

// An electionAdapter is an election as internal/front/grpc wants it.
type electionAdapter struct {
	*election.Election
	log *slog.Logger
}

// Run implements [grpcfront.Election].
func (c *electionAdapter) Run(ctx context.Context, candidate string, tell func(grpcfront.Mastership)) error {
	// An election reports its status again and again. The same trouble is logged once, until it is over.
	trouble := ""
	err := c.Election.Run(ctx, candidate, func(status election.MasterStatus) {
		tell(grpcfront.Mastership{Leading: status.Leading, Until: status.Until, Leader: status.Leader})
		text := ""
		if status.Err != nil {
			text = status.Err.Error()
		}
		if text != trouble && text != "" {
			c.log.Warn("the election fails at present", "error", text)
		}
		trouble = text
	})
	return errors.Join(err, c.Close())
}

// A grpcLog logs the errors of the gRPC library, and discards its other messages: they are about single
// connections, whose clients learn of their mistakes themselves.
type grpcLog struct {
	grpclog.LoggerV2 // which is silent
	log              *slog.Logger
}

func newGRPCLog(log *slog.Logger) grpcLog {
	return grpcLog{grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard), log}
}

// Error implements [grpclog.LoggerV2].
func (l grpcLog) Error(args ...any) { l.logWarning(fmt.Sprint(args...)) }

// Errorln implements [grpclog.LoggerV2].
func (l grpcLog) Errorln(args ...any) { l.logWarning(fmt.Sprintln(args...)) }

// Errorf implements [grpclog.LoggerV2].
func (l grpcLog) Errorf(format string, args ...any) { l.logWarning(fmt.Sprintf(format, args...)) }

func (l grpcLog) logWarning(text string) { l.log.Warn("gRPC", "message", strings.TrimSpace(text)) }
