package certs

import (
	"context"
	"log/slog"
	"os"
	"time"

	"github.com/gatehousehq/gatehouse/internal/filewatch"
	"github.com/prometheus/client_golang/prometheus"
)

// Watch reads the files again when they change, and at each value of again, until ctx ends. What cannot be
// used is logged, and what was in use stays. Connections that are open keep their certificates.
func (s *Server) Watch(ctx context.Context, again <-chan os.Signal, log *slog.Logger) error {
	paths := []string{s.files.Cert, s.files.Key}
	if s.files.ClientCA != "" {
		paths = append(paths, s.files.ClientCA)
	}
	var last filewatch.LastReading
	return filewatch.Watch(ctx, filewatch.Watching{
		Paths: paths,
		Again: again,
		Read: func(asked bool) {
			changed, err := s.reload()
			// Of the one in use, which is the one before if there was an error.
			expires := s.Expiry().UTC().Format(time.RFC3339)
			switch {
			case !last.IsNews(asked, changed, err):
			case err != nil:
				log.Error("the new certificate cannot be used; the one before stays in use", "error", err,
					"expires", expires)
			default:
				log.Info("certificate is in use", "file", s.files.Cert, "expires", expires)
			}
		},
		Unwatched: func(err error) {
			log.Warn("changes of the certificate will go unnoticed until SIGHUP", "error", err)
		},
	})
}

// RegisterMetrics registers how old the certificates are.
func (s *Server) RegisterMetrics(to prometheus.Registerer) {
	to.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_tls_expiry_seconds",
			Help: "Time until the certificate in use expires; below 0 once it has.",
		}, func() float64 { return s.Expiry().Sub(s.now()).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "gatehouse_tls_stale",
			Help: "1 if the certificate files hold what cannot be used, so that older ones stay in use.",
		}, func() float64 {
			if s.Stale() {
				return 1
			}
			return 0
		}),
	)
}
