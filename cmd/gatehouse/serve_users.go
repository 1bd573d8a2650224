package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/filewatch"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

// userSettings are the settings about who may do what.
type userSettings struct {
	file     string
	insecure bool
	proxies  []string
	bouncer  bool // the address of HTTP is that of BOUNCER_HOST
}

// addFlags adds a flag for each setting, with its default.
func (s *userSettings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.file, "users", "", "file of users, their tokens, and what they may do; empty for no users")
	f.BoolVar(&s.insecure, "insecure", false,
		"let other machines connect without asking who they are, or send tokens without TLS")
	f.StringSliceVar(&s.proxies, "trusted-proxy", nil,
		"addresses of proxies that speak TLS with clients and plain TCP with this server, such as 10.0.0.0/8")
}

// findFaults calls note for each setting that cannot work.
func (s *userSettings) findFaults(note func(flag, format string, args ...any)) {
	if _, bad := s.trusted(); bad != "" {
		note("trusted-proxy", "has %q, want addresses such as 10.0.0.0/8 or 10.1.2.3", bad)
	}
	if len(s.proxies) > 0 && s.file == "" {
		note("trusted-proxy", "is given without --users, and means something only for their tokens")
	}
}

// trusted returns the addresses of the proxies. bad is the first that is none.
func (s *userSettings) trusted() (all []netip.Prefix, bad string) {
	for _, text := range s.proxies {
		prefix, err := netip.ParsePrefix(text)
		if address, single := netip.ParseAddr(text); single == nil {
			prefix, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err != nil {
			return nil, text
		}
		all = append(all, prefix)
	}
	return all, ""
}

// isLocalAddress reports whether only this machine reaches an address to listen at.
func isLocalAddress(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, bad := netip.ParseAddr(host)
	return host == "localhost" || bad == nil && ip.Unmap().IsLoopback()
}

// openAddresses are the settings whose addresses other machines reach, each with its flag.
func (s *settings) openAddresses() (all []string) {
	for i, address := range []string{s.http, s.resp, s.capacity.grpc} {
		if address != "" && !isLocalAddress(address) {
			all = append(all, "--"+addresses[i]+" "+address)
		}
	}
	return all
}

// checkReach refuses to start a server that other machines reach without a token, or to which they would send
// tokens without TLS.
func (s *settings) checkReach() error {
	open := s.openAddresses()
	// A server that is started as bouncer was is as open as bouncer was, with a warning.
	if s.users.bouncer && s.users.file == "" {
		open = slices.DeleteFunc(open, func(a string) bool { return strings.HasPrefix(a, "--http ") })
	}
	switch {
	case len(open) == 0 || s.users.insecure, s.tls.clientAuth == certs.AuthRequire:
		return nil
	case s.users.file == "":
		return fmt.Errorf("%s can be reached from other machines, which need no token; "+
			"give --users FILE, or --insecure", strings.Join(open, " and "))
	case len(s.users.proxies) == 0 && s.tls.cert == "":
		return fmt.Errorf("%s can be reached from other machines, which would send tokens without TLS; "+
			"give --tls-cert, --trusted-proxy CIDR if a proxy in front of it speaks TLS, or --insecure",
			strings.Join(open, " and "))
	}
	return nil
}

// newUsers returns the users of a server, nil without a file of them. The file is followed in the background.
func (proc *serverProcess) newUsers(
	p *servePlan, metrics *prometheus.Registry, observer *decisions.Recorder,
) *access.Users {
	s := &p.users
	if s.bouncer && s.file == "" && !s.insecure && !isLocalAddress(p.http) {
		proc.log.Warn("other machines can reach this server and need no token, because "+
			"BOUNCER_HOST says so; give --users FILE, or --insecure to hide this", "http", p.http)
	}
	if p.policy == nil {
		return nil
	}
	users := access.NewUsers(p.policy, time.Now)
	users.Register(metrics, proc.log, observer.CountRefusedUser)
	users.LookUp(proc.gate)
	if proxies, _ := s.trusted(); !s.insecure {
		users.RefusePlain(proxies)
	}
	proc.addReload(func(ctx context.Context, again <-chan os.Signal) error {
		return proc.followUsers(ctx, s.file, users, again)
	})
	return users
}

// followUsers reads the file of users again when it changes, and at each value of again. A file with a fault
// leaves the users as they are.
func (proc *serverProcess) followUsers(
	ctx context.Context, path string, users *access.Users, again <-chan os.Signal,
) error {
	var last filewatch.LastReading
	return filewatch.Watch(ctx, filewatch.Watching{
		Paths: []string{path}, Again: again,
		Read: func(asked bool) {
			policy, err := access.LoadPolicy(path)
			changed := false
			if err == nil {
				changed = users.SetPolicy(policy)
			} else {
				users.SetStale()
			}
			switch {
			case !last.IsNews(asked, changed, err):
			case err != nil:
				proc.log.Error("the new users cannot be used; those before stay in force", "error", err)
			default:
				proc.log.Info("the users are in force", "file", path, "users", policy.Len())
			}
		},
		Unwatched: func(err error) {
			proc.log.Warn("changes of the users will go unnoticed until SIGHUP", "error", err)
		},
	})
}

// readPolicy reads the file of users.
func (p *servePlan) readPolicy() (err error) {
	if p.users.file == "" {
		return nil
	}
	p.policy, err = access.LoadPolicy(p.users.file)
	return err
}
