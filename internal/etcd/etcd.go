// Package etcd reads etcd:// addresses and opens clients that neither log nor hang.
package etcd

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
)

const (
	scheme = "etcd://"
	// defaultPort is where etcd listens for clients unless it is told otherwise.
	defaultPort = "2379"

	// maxHosts is far above the seven members that etcd advises at most.
	maxHosts = 32
	// maxKey is far above any path a person would type. etcd has no bound of its own.
	maxKey = 512

	// authTimeout bounds asking for a token while opening, with a user name only.
	authTimeout = 5 * time.Second
	// pingAfter is the shortest silence after which gRPC asks whether the other end is still there, and
	// pingTimeout how long it may take to answer. etcd hangs up on clients that ask more than each 5 s.
	pingAfter, pingTimeout = 10 * time.Second, 3 * time.Second
	// A member that comes back should be used soon: gRPC alone would wait up to two minutes.
	firstRedial, lastRedial, dialTimeout = 100 * time.Millisecond, time.Second, 3 * time.Second
)

// Open makes a client for an address such as
//
//	etcd://user:password@host1:2379,host2:2379/path/of/key?ttl=10s
//
// and returns what stands behind the hosts: the key, which is the path with its first slash, and the query,
// which is the caller's to understand. The port is 2379 when it is left out. Nothing is connected yet, so
// etcd need not be there; only with a user name it has to answer at once, for a token. Each call needs a
// context that ends. The caller closes the client.
func Open(address string, options ...grpc.DialOption) (*clientv3.Client, string, url.Values, error) {
	t, err := parseAddress(address)
	if err != nil {
		return nil, "", nil, err
	}
	redial := backoff.Config{BaseDelay: firstRedial, Multiplier: 1.6, Jitter: 0.2, MaxDelay: lastRedial}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            t.hosts,
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

// Check returns what Open would, but the client: the key of an address, its query, or what is wrong with
// the address. It asks nobody.
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
}

// parseAddress takes an address apart. It is not done by net/url, to which several hosts are one with a strange
// name, and whose errors show the whole address: these never have the user's password in them.
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
		// Part of a password may stand where hosts, a key or a query should.
		return t, errors.New("etcd address: an @ behind the first / or ?, want it written as %40, " +
			"and in a password / as %2F and ? as %3F")
	}
	var err error
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
	return t, nil
}

// schemeOf is the part of an address that says how it is to be read, and no more: the rest may hold a
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
		return "", "", fmt.Errorf("etcd address: password of user %q is not well escaped, "+
			"want %%25 for a percent sign", user)
	}
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

// parseHost is host:port with the port in its place.
func parseHost(text string) (string, error) {
	host, port, err := net.SplitHostPort(text)
	if err != nil { // there may be no port
		host, port, err = net.SplitHostPort(text + ":" + defaultPort)
	}
	if err != nil || host == "" || strings.ContainsAny(host, " \t@%?#") {
		return "", fmt.Errorf("etcd address: host %q, want host:port", text)
	}
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
	case strings.Contains(key, "#"):
		return "", fmt.Errorf("etcd address: key %q has a #, want it written as %%23", "/"+path)
	case len(key) >= maxKey:
		return "", fmt.Errorf("etcd address: key of %d bytes, want at most %d", len(key)+1, maxKey)
	}
	return "/" + key, nil
}
