// Package etcd parses etcd:// addresses, and opens clients that neither log nor hang.
package etcd

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/certs/rpccerts"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	scheme = "etcd://"
	// defaultPort is where etcd listens for clients by default.
	defaultPort = "2379"

	// maxHosts is far above the seven members that etcd advises at most.
	maxHosts = 32
	// maxKey is far above any path a person would type. Etcd itself has no bound.
	maxKey = 512

	// authTimeout bounds the request for a token while opening. Only addresses with a user name make one.
	authTimeout = 5 * time.Second
	// pingAfter is the silence after which gRPC checks that the other end is still there, and pingTimeout
	// how long the answer may take. Etcd closes connections of clients that ping more than once in 5 s.
	pingAfter, pingTimeout = 10 * time.Second, 3 * time.Second
	// A member that comes back should be used soon: gRPC's own default waits up to two minutes.
	firstRedial, lastRedial, dialTimeout = 100 * time.Millisecond, time.Second, 3 * time.Second
)

// Open makes a client for an address such as
//
//	etcd://user:password@host1:2379,host2:2379/path/of/key?ttl=10s
//
// The parameters ca (a file with authorities, or "system"), cert and key are for TLS. It also returns the
// key, which is the path with its first slash, and the rest of the query, whose meaning is the caller's. The
// port is 2379 when it is left out. Open does not connect, so etcd need not be reachable yet; only with a
// user name it has to answer at once, for a token. Each call needs a context that ends. The caller closes
// the client.
func Open(address string, options ...grpc.DialOption) (*clientv3.Client, string, url.Values, error) {
	t, err := parseAddress(address)
	if err != nil {
		return nil, "", nil, err
	}
	redial := backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial}
	// Pings without a stream find a dead member also between two calls, so that the next call does not hang.
	// The client's own log would go to the process's standard error.
	latest, err := t.readTLS()
	if err != nil {
		return nil, "", nil, err
	}
	var secure *tls.Config
	if latest != nil {
		// The library has read it once; the option stands behind its own.
		secure, options = latest(), append([]grpc.DialOption{rpccerts.Option(latest)}, options...)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            t.hosts,
		TLS:                  secure,
		Username:             t.user,
		Password:             t.password,
		DialTimeout:          authTimeout,
		DialKeepAliveTime:    pingAfter,
		DialKeepAliveTimeout: pingTimeout,
		PermitWithoutStream:  true,
		Logger:               zap.NewNop(),
		DialOptions: append([]grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{Backoff: redial, MinConnectTimeout: dialTimeout}),
		}, options...),
	})
	if err != nil {
		return nil, "", nil, fmt.Errorf("etcd at %s: %w", strings.Join(t.hosts, ","), err)
	}
	return client, t.key, t.query, nil
}

// Check returns the key and the query of an address, or what is wrong with it. It connects to no server.
func Check(address string) (key string, query url.Values, err error) {
	t, err := parseAddress(address)
	return t.key, t.query, err
}

// A parsedAddress is an address in parts.
type parsedAddress struct {
	hosts          []string
	user, password string
	key            string
	query          url.Values
	tls            *certs.ClientFiles // nil without TLS
}

// parseAddress splits an address. net/url would read several hosts as one with a strange name, and its
// errors show the whole address; errors from here never contain the user's password.
func parseAddress(address string) (parsedAddress, error) {
	var t parsedAddress
	rest, ok := strings.CutPrefix(address, scheme)
	if !ok {
		return t, fmt.Errorf("etcd address: scheme is %q, want %s", schemeOf(address), scheme)
	}
	whole := rest
	rest, query, _ := strings.Cut(rest, "?")
	hosts, path, _ := strings.Cut(rest, "/")
	if strings.Contains(whole[len(hosts):], "@") {
		// A password with / or ? in it would be cut there, and shown as part of a host, key or query.
		return t, errors.New("etcd address: an @ behind the first / or ?, want it written as %40, " +
			"and in a password / as %2F and ? as %3F")
	}
	var err error
	// The last @ ends the user: a host cannot have one, a password may.
	if at := strings.LastIndexByte(hosts, '@'); at >= 0 {
		t.user, t.password, err = parseUser(hosts[:at])
		if err != nil {
			return t, err
		}
		hosts = hosts[at+1:]
	}
	t.hosts, err = parseHosts(hosts)
	if err != nil {
		return t, err
	}
	t.key, err = parseKey(path)
	if err != nil {
		return t, err
	}
	t.query, err = url.ParseQuery(query)
	if err != nil {
		return t, fmt.Errorf("etcd address: query %q: %w", query, err)
	}
	err = t.parseTLS()
	return t, err
}

// parseTLS takes the parameters ca, cert and key out of the query: any of them is for TLS.
func (t *parsedAddress) parseTLS() error {
	files := certs.FilesOf(t.query)
	for _, name := range []string{"ca", "cert", "key"} {
		given := t.query[name]
		t.query.Del(name)
		if len(given) > 1 || len(given) == 1 && given[0] == "" {
			return fmt.Errorf("etcd address: %s is %q, want one file", name, given)
		}
	}
	if err := files.CheckPair(); err != nil {
		return fmt.Errorf("etcd address: %w", err)
	}
	if !files.IsZero() {
		t.tls = &files
	}
	return nil
}

// readTLS reads the files for TLS, and returns what reads them again; nil without.
func (t *parsedAddress) readTLS() (latest func() *tls.Config, err error) {
	if t.tls == nil {
		return nil, nil
	}
	latest, err = t.tls.Latest()
	if err != nil {
		return nil, fmt.Errorf("etcd address: %w", err)
	}
	return latest, nil
}

// schemeOf returns the scheme of an address with its "://", and nothing of the rest, which may contain a
// password.
func schemeOf(address string) string {
	if end := strings.Index(address, "://"); end >= 0 {
		return address[:end+len("://")]
	}
	return ""
}

func parseUser(text string) (user, password string, err error) {
	before, after, ok := strings.Cut(text, ":")
	user, err = url.PathUnescape(before)
	if err != nil {
		return "", "", fmt.Errorf("etcd address: user %q: %w", before, err)
	}
	password, err = url.PathUnescape(after)
	if err != nil {
		// The error of url.PathUnescape would quote the password.
		return "", "", fmt.Errorf("etcd address: password of user %q is not well escaped, "+
			"want %%25 for a percent sign", user)
	}
	// Etcd has no user without a password; a missing one is a mistake.
	if !ok || user == "" || password == "" {
		return "", "", fmt.Errorf("etcd address: user %q without password, want user:password@", user)
	}
	return user, password, nil
}

func parseHosts(text string) ([]string, error) {
	if text == "" {
		return nil, fmt.Errorf("etcd address: no host, want host:port,host:port behind %s", scheme)
	}
	hosts := strings.Split(text, ",")
	if len(hosts) > maxHosts {
		return nil, fmt.Errorf("etcd address: %d hosts, want at most %d", len(hosts), maxHosts)
	}
	for i, host := range hosts {
		var err error
		hosts[i], err = parseHost(host)
		if err != nil {
			return nil, err
		}
	}
	return hosts, nil
}

// parseHost returns host:port, with the default port if there is none.
func parseHost(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil { // most likely the port was left out
		host, port, err = net.SplitHostPort(text + ":" + defaultPort)
	}
	// The characters that net.SplitHostPort lets pass, but no host has.
	if err != nil || host == "" || strings.ContainsAny(host, " \t@%?#") {
		return "", fmt.Errorf("etcd address: host %q, want host:port", text)
	}
	// Port 0 would parse, but it means any free port, and no client can connect to it.
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", fmt.Errorf("etcd address: port of host %q is %q, want 1 to 65535", text, port)
	}
	return net.JoinHostPort(host, port), nil
}

func parseKey(path string) (string, error) {
	key, err := url.PathUnescape(path)
	switch {
	case err != nil:
		return "", fmt.Errorf("etcd address: key %q: %w", "/"+path, err)
	case key == "":
		return "", fmt.Errorf("etcd address: no key, want a path behind the hosts, such as %sh/path", scheme)
	// What is meant as a fragment would become part of the key without notice.
	case strings.Contains(key, "#"):
		return "", fmt.Errorf("etcd address: key %q has a #, want it written as %%23", "/"+path)
	case len(key) >= maxKey:
		return "", fmt.Errorf("etcd address: key of %d bytes, want at most %d", len(key)+1, maxKey)
	}
	// The slash is part of the key, so that the key reads as it does in the address.
	return "/" + key, nil
}
