package redis

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse/internal/certs"
)

// An address says where Redis is, how to log in, and which part of it is ours.
type address struct {
	hosts      []string           // host:port of servers, or of sentinels
	tls        *tls.Config        // nil without TLS
	latestTLS  func() *tls.Config // reads its files again; nil without files
	login      login
	sentinel   login // to the sentinels
	master     string
	database   int
	prefix     string
	text       string // without passwords
	passwords  []string
	parameters url.Values
}

// A login is an ACL user.
type login struct{ user, password string }

const (
	defaultPort   = "6379"
	sentinelPort  = "26379"
	defaultPrefix = "gatehouse:"
	maxPrefix     = 64
	maxDatabase   = 1<<31 - 1
	maxHosts      = 64
)

// knownParameters are the parameters of an address, and whether they may be given more than once.
var knownParameters = map[string]bool{
	"addr": true, "master_set": false, "prefix": false, "ca": false, "cert": false, "key": false,
	"sentinel_username": false, "sentinel_password": false,
}

// errNotURL is all that is said of what is no URL: a part of it may be a password.
var errNotURL = errors.New("redis address: it is no URL, want redis://[user:password@]host[:port][/db]" +
	"[?parameter=value&...] with other characters than letters and digits in user and password as %XX")

// errMisplacedAt is said of an @ that does not end a user and password: what is before it may be a part of
// one.
var errMisplacedAt = errors.New(
	"redis address: an @ behind the first / or ?, want it written as %40, and in a " +
		"password / as %2F and ? as %3F")

// parseAddress reads redis://[user:password@]host[:port][/db][?parameters], or rediss:// for TLS.
func parseAddress(text string) (*address, error) {
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.Contains(text, "#") {
		return nil, errNotURL
	}
	_, rest, _ := strings.Cut(text, "://")
	if strings.LastIndexByte(rest, '@') > strings.IndexAny(rest+"/", "/?") {
		return nil, errMisplacedAt
	}
	a := &address{prefix: defaultPrefix}
	a.parameters, err = url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, errors.New("redis address: its parameters cannot be read, want name=value&name=value")
	}
	// The order matters: the hosts need to know whether they are sentinels, and the database how many hosts
	// there are.
	steps := []func(*url.URL) error{
		a.parseScheme, a.checkParameters, a.parseLogin, a.parseHosts, a.parseDatabase, a.parsePrefix,
		a.parseTLS,
	}
	for _, step := range steps {
		if err := step(u); err != nil {
			return nil, fmt.Errorf("redis address: %w", err)
		}
	}
	a.describeAddress(u)
	return a, nil
}

func (a *address) parseScheme(u *url.URL) error {
	switch u.Scheme {
	case "redis":
	case "rediss":
		a.tls = &tls.Config{MinVersion: tls.VersionTLS12}
	default:
		return fmt.Errorf("scheme %q, want redis or rediss", u.Scheme)
	}
	return nil
}

func (a *address) checkParameters(*url.URL) error {
	for name, values := range a.parameters {
		// A parameter with a typo would be ignored, and the store be another one than was meant.
		several, ok := knownParameters[name]
		switch {
		case !ok:
			return fmt.Errorf("parameter %q is not known, want one of addr, master_set, prefix, ca, cert, "+
				"key, sentinel_username, sentinel_password", name)
		case len(values) > 1 && !several:
			return fmt.Errorf("parameter %q is given %d times, want one", name, len(values))
		case slices.Contains(values, ""):
			return fmt.Errorf("parameter %q is empty, want a value", name)
		}
	}
	return nil
}

func (a *address) parseLogin(u *url.URL) error {
	if u.User != nil {
		a.login.user = u.User.Username()
		a.login.password, _ = u.User.Password()
		if a.login.password == "" {
			return errors.New("there is a user or an @ without a password, want user:password@ or :password@")
		}
	}
	a.sentinel = login{a.parameters.Get("sentinel_username"), a.parameters.Get("sentinel_password")}
	a.master = a.parameters.Get("master_set")
	switch {
	case a.sentinel.user != "" && a.sentinel.password == "":
		return errors.New("sentinel_username is given without sentinel_password, want both")
	case a.sentinel.password != "" && a.master == "":
		return errors.New("sentinel_password is given without master_set, want the name of the master too")
	}
	// The passwords are collected, so that no error shows one.
	for _, l := range []login{a.login, a.sentinel} {
		if l.password != "" {
			a.passwords = append(a.passwords, l.password)
		}
	}
	return nil
}

func (a *address) parseHosts(u *url.URL) error {
	if u.Host == "" {
		return errors.New("there is no host, want redis://host")
	}
	for _, text := range append([]string{u.Host}, a.parameters["addr"]...) {
		if strings.Contains(text, "@") { // and what is before it is not to be shown
			return errors.New("addr has an @, want host or host:port; the first host's login is for all")
		}
		host, port := text, ""
		// An address without a port is no error here; an IPv6 host may stand in brackets.
		if h, p, err := net.SplitHostPort(text); err == nil {
			host, port = h, p
		}
		host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
		if port == "" {
			port = defaultPort
			if a.master != "" {
				port = sentinelPort
			}
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fmt.Errorf("port %q of host %q, want 1 to 65535", port, host)
		}
		if host == "" || strings.ContainsAny(host, "/@ ?#") || strings.Count(host, ":") == 1 {
			return fmt.Errorf("host %q, want host or host:port", text)
		}
		a.hosts = append(a.hosts, net.JoinHostPort(host, port))
	}
	if len(a.hosts) > maxHosts {
		return fmt.Errorf("%d hosts, want at most %d", len(a.hosts), maxHosts)
	}
	return nil
}

func (a *address) parseDatabase(u *url.URL) error {
	text := strings.TrimPrefix(u.Path, "/")
	if text == "" {
		return nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > maxDatabase || strings.ContainsAny(text, "+-") {
		return fmt.Errorf("database %q, want a number from 0", text)
	}
	// Several hosts without sentinels are a cluster.
	if n > 0 && len(a.hosts) > 1 && a.master == "" {
		return fmt.Errorf("database %d of a cluster, which has only database 0", n)
	}
	a.database = n
	return nil
}

// parsePrefix allows no character that means something in a pattern, in a rule of an ACL or for the place of
// a key in a cluster.
func (a *address) parsePrefix(*url.URL) error {
	if !a.parameters.Has("prefix") {
		return nil
	}
	a.prefix = a.parameters.Get("prefix")
	odd := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') &&
			!strings.ContainsRune(":._-/", r)
	}
	if len(a.prefix) > maxPrefix || strings.ContainsFunc(a.prefix, odd) {
		return fmt.Errorf("prefix %q, want at most %d letters, digits and : . _ - /", a.prefix, maxPrefix)
	}
	return nil
}

func (a *address) parseTLS(*url.URL) error {
	files := certs.FilesOf(a.parameters)
	switch {
	case files.IsZero():
		return nil
	case a.tls == nil:
		return errors.New("ca, cert and key are for TLS, want rediss:// with them")
	}
	// Read again for each connection, so that renewed certificates are used.
	latest, err := files.Latest()
	if err != nil {
		return fmt.Errorf("ca, cert and key: %w", err)
	}
	a.tls, a.latestTLS = latest(), latest
	return nil
}

// describeAddress writes the address without what is secret.
func (a *address) describeAddress(u *url.URL) {
	var text strings.Builder
	text.WriteString(u.Scheme + "://")
	// The user may be shown; the password is left out.
	if a.login.user != "" {
		text.WriteString(url.User(a.login.user).String() + "@")
	}
	text.WriteString(strings.Join(a.hosts, ","))
	if a.database > 0 {
		text.WriteString("/" + strconv.Itoa(a.database))
	}
	if a.master != "" {
		text.WriteString(" master " + a.master)
	}
	a.text = text.String()
}

// redactText takes the passwords out of what Redis or a library has said.
func (a *address) redactText(text string) string {
	for _, password := range a.passwords {
		text = strings.ReplaceAll(text, password, "***")
	}
	return text
}
