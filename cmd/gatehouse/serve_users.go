package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	"github.com/gatehousehq/gatehouse/internal/etcdkey"
	"github.com/gatehousehq/gatehouse/internal/filewatch"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
)

// userSettings are the settings about who may do what.
type userSettings struct {
	source   string // a file, or a key of etcd
	insecure bool
	proxies  []string
	bouncer  bool // the address of HTTP is that of BOUNCER_HOST
}

// addFlags adds a flag for each setting, with its default.
func (s *userSettings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.source, "users", "",
		"users, their tokens, and what they may do: a file, or etcd://HOST:PORT/KEY; empty for no users")
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
	// A file is read by readPolicy, whose faults have lines and columns.
	if isEtcdAddress(s.source) {
		if err := etcdkey.Check(s.source); err != nil {
			note("users", "is no source: %v", err)
		}
	}
	if len(s.proxies) > 0 && s.source == "" {
		note("trusted-proxy", "is given without --users, and means something only for their tokens")
	}
}

// trusted returns the addresses of the proxies. bad is the first that is none.
func (s *userSettings) trusted() (all []netip.Prefix, bad string) {
	for _, text := range s.proxies {
		prefix, err := netip.ParsePrefix(text)
		// One address is a block of one.
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
	// An address of IPv4 can be written as one of IPv6, such as ::ffff:127.0.0.1.
	ip, bad := netip.ParseAddr(host)
	return host == "localhost" || bad == nil && ip.Unmap().IsLoopback()
}

// openAddresses are the settings whose addresses other machines reach, each with its flag.
func (s *settings) openAddresses() (all []string) {
	// These are the first three of the table, in its order. --health gives nothing away.
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
	if s.users.bouncer && s.users.source == "" {
		open = slices.DeleteFunc(open, func(a string) bool { return strings.HasPrefix(a, "--http ") })
	}
	switch {
	// A certificate that each client must show is as good as a token.
	case len(open) == 0 || s.users.insecure, s.tls.clientAuth == certs.AuthRequire:
		return nil
	case s.users.source == "":
		return fmt.Errorf("%s can be reached from other machines, which need no token; "+
			"give --users FILE, or --insecure", strings.Join(open, " and "))
	case len(s.users.proxies) == 0 && s.tls.cert == "":
		return fmt.Errorf("%s can be reached from other machines, which would send tokens without TLS; "+
			"give --tls-cert, --trusted-proxy CIDR if a proxy in front of it speaks TLS, or --insecure",
			strings.Join(open, " and "))
	}
	return nil
}

// newUsers returns the users of a server, nil without a source of them, which is followed in the background.
func (proc *serverProcess) newUsers(
	ctx context.Context, p *servePlan, metrics *prometheus.Registry, observer *decisions.Recorder,
) (*access.Users, error) {
	s := &p.users
	if s.bouncer && s.source == "" && !s.insecure && !isLocalAddress(p.http) {
		proc.log.Warn("other machines can reach this server and need no token, because "+
			"BOUNCER_HOST says so; give --users FILE, or --insecure to hide this", "http", p.http)
	}
	if s.source == "" {
		return nil, nil
	}
	policy, source := p.policy, usersSource{address: s.source}
	if policy == nil {
		// A server that does not know its users yet would turn all of them away.
		var err error
		source.read = etcdkey.Read(ctx, s.source)
		policy, err = parseReading(source.read)
		if err != nil {
			return nil, err
		}
	}
	users := access.NewUsers(policy, time.Now)
	users.Register(metrics, proc.log, observer.CountRefusedUser)
	users.LookUp(proc.gate)
	if proxies, _ := s.trusted(); !s.insecure {
		users.RefusePlain(proxies)
	}
	proc.addReload(func(ctx context.Context, again <-chan os.Signal) error {
		return proc.followUsers(ctx, source, users, again)
	})
	return users, nil
}

// followUsers reads the users again when their source changes, and at each value of again. One with a fault
// leaves the users as they are.
func (proc *serverProcess) followUsers(
	ctx context.Context, source usersSource, users *access.Users, again <-chan os.Signal,
) error {
	reload := usersReload{users: users, log: proc.log}
	if isEtcdAddress(source.address) {
		// From what was read at the start on, so that no change between the two is missed.
		etcdkey.Watch(ctx, etcdkey.KeyWatch{
			Address: source.address, After: source.read, Again: again,
			Report: func(r etcdkey.Reading, asked bool) {
				policy, err := parseReading(r)
				reload.apply(policy, err, asked)
			},
		})
		return nil
	}
	return filewatch.Watch(ctx, filewatch.Watching{
		Paths: []string{source.address}, Again: again,
		Read: func(asked bool) {
			policy, err := readUsersFile(source.address)
			reload.apply(policy, err, asked)
		},
		Unwatched: func(err error) {
			proc.log.Warn("changes of the users will go unnoticed until SIGHUP", "error", err)
		},
	})
}

// A usersReload puts users in force that were read again.
type usersReload struct {
	users *access.Users
	log   *slog.Logger
	last  filewatch.LastReading
}

// apply puts a policy in force, unless there is an error instead: then the users stay as they are.
func (r *usersReload) apply(policy *access.Policy, err error, asked bool) {
	changed := false
	if err == nil {
		changed = r.users.SetPolicy(policy)
	} else {
		// A metric says from now on that the source and what is in force differ.
		r.users.SetStale()
	}
	switch {
	// A source is also read when it has not changed, and the same fault is logged once.
	case !r.last.IsNews(asked, changed, err):
	case err != nil:
		r.log.Error("the new users cannot be used; those before stay in force", "error", err)
	default:
		r.log.Info("the users are in force", "file", policy.Path, "users", policy.Len())
	}
}

// readPolicy reads the file of users. Those in etcd are read as the server starts, as a plan does not
// connect.
func (p *servePlan) readPolicy() (err error) {
	if p.users.source == "" || isEtcdAddress(p.users.source) {
		return nil
	}
	p.policy, err = readUsersFile(p.users.source)
	return err
}
