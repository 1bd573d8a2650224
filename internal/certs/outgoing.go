package certs

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync/atomic"

	"github.com/gatehousehq/gatehouse/internal/filewatch"
	"github.com/gatehousehq/gatehouse/internal/telemetry"
	"github.com/prometheus/client_golang/prometheus"
)

// Outgoing are the files by which a server speaks TLS to others. Each connection reads them when it begins
// (see Latest), and Outgoing tells when they cannot be used, which may be long before.
type Outgoing struct {
	// Files are those for each of the other servers.
	Files []ClientFiles

	stale atomic.Bool
}

// paths returns all files that are named.
func (o *Outgoing) paths() (all []string) {
	for _, f := range o.Files {
		for _, path := range []string{f.CA, f.Cert, f.Key} {
			// The system's authorities are no file here: the library knows where they are.
			if path != "" && path != SystemCA {
				all = append(all, path)
			}
		}
	}
	return all
}

// check returns why files cannot be used.
func (o *Outgoing) check() error {
	var all []error
	for _, f := range o.Files {
		_, err := f.Config()
		all = append(all, err)
	}
	// All of them, so that one look at the log is enough to mend every file.
	return errors.Join(all...)
}

// Watch looks at the files when they change, and at each value of again, until ctx ends. What cannot be used
// is logged, and the end of that.
func (o *Outgoing) Watch(ctx context.Context, again <-chan os.Signal, log *slog.Logger) error {
	var last filewatch.LastReading
	return filewatch.Watch(ctx, filewatch.Watching{
		Paths: o.paths(),
		Again: again,
		Read: func(asked bool) {
			err := o.check()
			// The reading is a check only. Connections read for themselves, and keep the last files that
			// fit.
			o.stale.Store(err != nil)
			switch {
			case !last.IsNews(asked, false, err):
			case err != nil:
				log.Error("the files for TLS to other servers cannot be used; those before stay in use",
					"error", err)
			default:
				log.Info("the files for TLS to other servers can be used")
			}
		},
		Unwatched: func(err error) {
			log.Warn("faults in the files for TLS to other servers will go unnoticed until SIGHUP",
				"error", err)
		},
	})
}

// RegisterMetrics registers whether the files can be used.
func (o *Outgoing) RegisterMetrics(to prometheus.Registerer) {
	telemetry.Gauge(to, "gatehouse_outgoing_tls_stale",
		"1 if the files for TLS to other servers hold what cannot be used, so that older ones stay in use.",
		func() int { return telemetry.Truth(o.stale.Load()) })
}
