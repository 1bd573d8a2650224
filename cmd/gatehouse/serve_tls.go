package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/tlsconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

// tlsSettings are the settings for TLS on the listeners.
type tlsSettings struct{ cert, key, clientCA, clientAuth string }

// clientAuths are the values of --tls-client-auth.
var clientAuths = []string{certs.AuthNone, certs.AuthOptional, certs.AuthRequire}

// addFlags adds a flag for each setting, with its default.
func (s *tlsSettings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.cert, "tls-cert", "",
		"file with the certificate for --http, --resp and --grpc; empty for no TLS")
	f.StringVar(&s.key, "tls-key", "", "file with the key of --tls-cert")
	f.StringVar(&s.clientCA, "tls-client-ca", "", "file with the authorities that sign clients' certificates")
	f.StringVar(&s.clientAuth, "tls-client-auth", certs.AuthNone,
		"whether clients must show a certificate: none, optional or require")
}

// findFaults calls note for each setting that cannot work.
func (s *tlsSettings) findFaults(note func(flag, format string, args ...any)) {
	if s.cert == "" && s.key != "" {
		note("tls-cert", "is empty, and --tls-key is not; want both or none")
	}
	if s.key == "" && s.cert != "" {
		note("tls-key", "is empty, and --tls-cert is not; want both or none")
	}
	// A server must not look as if it checked its clients when it does not.
	asks := s.clientAuth != certs.AuthNone
	switch {
	case !slices.Contains(clientAuths, s.clientAuth):
		note("tls-client-auth", "is %q, want none, optional or require", s.clientAuth)
	case asks && s.cert == "":
		note("tls-client-auth", "is %s, which needs TLS; want --tls-cert and --tls-key too", s.clientAuth)
	case asks && s.clientCA == "":
		note("tls-client-auth", "is %s, which needs --tls-client-ca, the authorities to trust", s.clientAuth)
	case !asks && s.clientCA != "":
		note("tls-client-ca", "is set, and no client is asked for a certificate; "+
			"want --tls-client-auth optional or require")
	}
}

// openCerts reads the certificates; nil without TLS.
func (s *tlsSettings) openCerts() (*certs.Server, error) {
	if s.cert == "" {
		return nil, nil
	}
	server, err := certs.Open(certs.ServerFiles{
		Cert: s.cert, Key: s.key, ClientCA: s.clientCA, ClientAuth: s.clientAuth,
	}, time.Now)
	if err != nil {
		// Tools write keys that only root can read, and a server seldom runs as root.
		hint := ""
		if errors.Is(err, fs.ErrPermission) {
			hint = "; the user of the server must be able to read it"
		}
		return nil, fmt.Errorf("TLS: %w%s", err, hint)
	}
	return server, nil
}

// A tlsListening is what the listeners of a server need for TLS.
type tlsListening struct {
	certs    *certs.Server
	failures *prometheus.CounterVec
}

// newTLS returns what the listeners need, nil without TLS, and has the certificates read again when they
// change.
func (proc *serverProcess) newTLS(server *certs.Server, metrics *prometheus.Registry) *tlsListening {
	if server == nil {
		return nil
	}
	server.RegisterMetrics(metrics)
	l := &tlsListening{server, prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "gatehouse_tls_handshake_failures_total",
		Help: "Connections on which a client could not begin to speak TLS, by protocol.",
	}, []string{"protocol"})}
	metrics.MustRegister(l.failures)
	// Other programs renew certificates. Some send SIGHUP, others only replace the files.
	proc.addReload(func(ctx context.Context, again <-chan os.Signal) error {
		return server.Watch(ctx, again, proc.log)
	})
	return l
}

// watchOutgoingTLS has it told when files for TLS to other servers cannot be used any more.
func (proc *serverProcess) watchOutgoingTLS(s *settings, metrics *prometheus.Registry) {
	outgoing := certs.Outgoing{Files: s.outgoingTLS()}
	if len(outgoing.Files) == 0 {
		return
	}
	outgoing.RegisterMetrics(metrics)
	proc.addReload(func(ctx context.Context, again <-chan os.Signal) error {
		return outgoing.Watch(ctx, again, proc.log)
	})
}

// outgoingTLS returns the files for TLS to other servers: parents, and what addresses name.
func (s *settings) outgoingTLS() (all []certs.ClientFiles) {
	all = append(all, s.capacity.parentTLS)
	for _, address := range []string{s.store, s.users.source, s.capacity.config, s.capacity.election} {
		// The others are files, whose names may have a question mark, or speak no TLS.
		if !strings.HasPrefix(address, "rediss:") && !isEtcdAddress(address) {
			continue
		}
		_, query, _ := strings.Cut(address, "?")
		parameters, _ := url.ParseQuery(query) // the address was checked before
		all = append(all, certs.FilesOf(parameters))
	}
	return slices.DeleteFunc(all, certs.ClientFiles.IsZero)
}

// forProtocol returns how the listener of a protocol speaks TLS; nil is without.
func (l *tlsListening) forProtocol(protocol string, names ...string) *tlsconn.Config {
	if l == nil {
		return nil
	}
	failures := l.failures.WithLabelValues(protocol)
	return &tlsconn.Config{TLS: l.certs.Config(names...), Failed: func(error) { failures.Inc() }}
}
