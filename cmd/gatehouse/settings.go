package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/activity"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/decisions"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/traces"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/spf13/pflag"
)

// settings are the settings of serve, which flags, the environment or a file may set.
type settings struct {
	http     string
	health   string
	resp     string
	store    string
	cors     []string
	hosts    []string
	keep     time.Duration
	drain    time.Duration
	maxPause time.Duration
	refusal  int

	storeTimeout time.Duration

	logLevel, logFormat string

	maxNames, maxWaiters, maxLine, maxConns, maxConnsPerAddress int

	maxHolders             int
	decisions, history     int
	traces                 string
	maxBuffered, maxMemory size

	readTimeout, writeTimeout, idleTimeout, respIdleTimeout time.Duration

	users    userSettings
	capacity capacitySettings
	tls      tlsSettings
}

// addresses are the settings that are addresses.
var addresses = []string{"http", "resp", "grpc", "health"}

// addFlags adds a flag for each setting, with its default.
func (s *settings) addFlags(f *pflag.FlagSet) {
	f.StringVar(&s.http, "http", "localhost:5505", "address of the HTTP API; empty for none")
	f.StringVar(&s.resp, "resp", "localhost:5507", "address for Redis clients; empty for none")
	f.StringVar(&s.health, "health", "",
		"address for /healthz, /readyz and /metrics alone, without TLS; empty for none")
	s.users.addFlags(f)
	s.capacity.addFlags(f)
	s.tls.addFlags(f)
	f.StringVar(&s.store, "store", "memory", "where state is kept: "+wantStore)
	f.DurationVar(&s.storeTimeout, "store-timeout", breaker.DefaultTimeout,
		"longest time for a shared store to respond")
	f.StringSliceVar(&s.cors, "cors", nil, "origins whose web pages may call the API, or *")
	f.StringSliceVar(&s.hosts, "hosts", nil, "names by which requests may address the HTTP API, or *")
	f.IntVar(&s.refusal, "refusal-status", refusedTimeout,
		"HTTP status of a refusal when the request asks for none: 408, as bouncer has, or 429")
	f.DurationVar(&s.keep, "keep", gatehouse.DefaultKeep,
		"time for which sent events and idle counters are kept")
	f.DurationVar(&s.drain, "drain", defaultDrain, "longest time for open requests after SIGTERM")
	f.DurationVar(&s.maxPause, "max-pause", gatehouse.DefaultMaxPause,
		"longest pause of a limiter after a third party's 429")
	f.IntVar(&s.maxNames, "max-names", memory.DefaultNames, "most names of controllers at once")
	f.Var(&s.maxMemory, "max-memory", "most bytes of memory for state (default 40 % of the machine's)")
	f.IntVar(&s.maxHolders, "max-holders", memory.DefaultHolders, "most holders of locks and semaphores")
	f.IntVar(&s.maxWaiters, "max-waiters", gate.DefaultWaiters,
		"most requests waiting at once, in all lines (queues)")
	f.IntVar(&s.maxLine, "max-line", gate.DefaultLine, "most requests waiting in line (queued) at one name")
	f.IntVar(&s.history, "history", activity.DefaultHistory,
		"most names with fifteen minutes of history on the page at /; 0 for none")
	f.IntVar(&s.maxConns, "max-connections", httpfront.DefaultConns, "most connections at once")
	f.IntVar(&s.maxConnsPerAddress, "max-connections-per-address", 0,
		"most connections from one address; 0 is a quarter of --max-connections")
	// A flag of an own type has no parameter for its default: the value that it finds is the default.
	s.maxBuffered = budget.DefaultBytes
	f.Var(&s.maxBuffered, "max-buffered", "most bytes that wait to be sent or received")
	f.DurationVar(&s.readTimeout, "read-timeout", httpfront.DefaultReadTimeout,
		"longest time for a request to arrive")
	f.DurationVar(&s.writeTimeout, "write-timeout", httpfront.DefaultWriteTimeout,
		"longest time to send a response")
	f.DurationVar(&s.idleTimeout, "idle-timeout", httpfront.DefaultIdleTimeout,
		"longest time between two requests on a connection")
	f.DurationVar(&s.respIdleTimeout, "resp-idle-timeout", 0,
		"longest time between two commands of a Redis client; 0 is no limit")
	f.IntVar(&s.decisions, "decisions", decisions.DefaultKept,
		"how many refusals are kept to be explained by their ids; 0 for none")
	f.StringVar(&s.traces, "traces", "",
		"where traces are sent by OTLP over HTTP, such as http://localhost:4318; empty for nowhere")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal")
}

// The values of --refusal-status.
const refusedTimeout, refusedTooMany = 408, 429

// defaultDrain leaves time to spare under a supervisor that kills a process after 30 seconds.
const defaultDrain = 10 * time.Second

// The bounds of --store-timeout. No store answers in less, and no client waits for more.
const minStoreTimeout, maxStoreTimeout = 10 * time.Millisecond, time.Minute

// A settingFault is a flag whose value cannot work, and what is wrong with it.
type settingFault struct{ flag, text string }

// findFaults returns a fault for each setting that cannot work. All of them are reported, not only the first,
// so that a user need not correct them one start at a time.
func (s *settings) findFaults() (all []settingFault) {
	note := func(flag, format string, args ...any) {
		all = append(all, settingFault{flag, fmt.Sprintf(format, args...)})
	}
	// Texts whose form is given elsewhere: stores, addresses, browsers. An empty address is allowed
	// and switches the listener off.
	if fault := checkStore(s.store); fault != "" {
		note("store", "%s", fault)
	}
	for i, address := range []string{s.http, s.resp, s.capacity.grpc, s.health} {
		if _, err := config.ParseAddress(address); address != "" && err != nil {
			note(addresses[i], "%v", err)
		}
	}
	for _, origin := range s.cors {
		if !isOrigin(origin) {
			note("cors", "has %q, want *, null or an origin such as https://app.example", origin)
		}
	}
	if s.refusal != refusedTimeout && s.refusal != refusedTooMany {
		note("refusal-status", "is %d, want %d or %d", s.refusal, refusedTimeout, refusedTooMany)
	}
	// Counts, sizes and times that have to be above 0. --max-memory is not among them, where 0 means a part
	// of the machine's memory.
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"max-names", int64(s.maxNames)}, {"max-waiters", int64(s.maxWaiters)},
		{"max-line", int64(s.maxLine)}, {"max-connections", int64(s.maxConns)},
		{"max-buffered", int64(s.maxBuffered)}, {"max-holders", int64(s.maxHolders)},
		{"keep", int64(s.keep)}, {"drain", int64(s.drain)}, {"max-pause", int64(s.maxPause)},
		{"read-timeout", int64(s.readTimeout)}, {"write-timeout", int64(s.writeTimeout)},
		{"idle-timeout", int64(s.idleTimeout)},
		{"max-resources", int64(s.capacity.maxResources)}, {"max-leases", int64(s.capacity.maxLeases)},
		{"max-leases-total", int64(s.capacity.maxLeasesTotal)},
	} {
		if n.value <= 0 {
			note(n.flag, "is not above 0")
		}
	}
	// Where 0 means something else: an idle Redis client is never disconnected.
	if s.respIdleTimeout < 0 {
		note("resp-idle-timeout", "is below 0")
	}
	if s.storeTimeout < minStoreTimeout || s.storeTimeout > maxStoreTimeout {
		note("store-timeout", "is %s, want %s to %s", s.storeTimeout, minStoreTimeout, maxStoreTimeout)
	}
	if s.keep > gatehouse.MaxDuration {
		note("keep", "is %s, want at most 100 years", s.keep)
	}
	if s.maxPause > gatehouse.MaxDuration {
		note("max-pause", "is %s, want at most 100 years", s.maxPause)
	}
	if err := new(slog.Level).UnmarshalText([]byte(s.logLevel)); err != nil {
		note("log-level", "is %q, want debug, info, warn or error", s.logLevel)
	}
	if !slices.Contains([]string{"auto", "text", "json"}, s.logFormat) {
		note("log-format", "is %q, want text, json or auto", s.logFormat)
	}
	s.findClientFaults(note)
	s.findPageFaults(note)
	s.users.findFaults(note)
	s.capacity.findFaults(note)
	s.tls.findFaults(note)
	return all
}

// findPageFaults checks how much is kept for people to look at.
func (s *settings) findPageFaults(note func(flag, format string, args ...any)) {
	if err := traces.CheckURL(s.traces); s.traces != "" && err != nil {
		note("traces", "is %q, %v", s.traces, err)
	}
	if s.decisions < 0 || s.decisions > decisions.MaxKept {
		note("decisions", "is %d, want 0 to %d", s.decisions, decisions.MaxKept)
	}
	if s.history < 0 || s.history > activity.MaxHistory {
		note("history", "is %d, want 0 to %d", s.history, activity.MaxHistory)
	}
}

// findClientFaults checks the settings about clients: by which names they may address the server, and the
// most connections from one address.
func (s *settings) findClientFaults(note func(flag, format string, args ...any)) {
	// A port would never match: it is cut off a request before its name is compared.
	for _, host := range s.hosts {
		if !isHostName(host) {
			note("hosts", "has %q, want * or a name without a port such as gatehouse.example", host)
		}
	}
	if s.maxConnsPerAddress < 0 {
		note("max-connections-per-address", "is below 0")
	}
}

// isOrigin reports whether a text may be the value of an Origin header: a scheme and a host, without a slash
// at the end.
func isOrigin(text string) bool {
	if text == "*" || text == "null" {
		return true
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return false
	}
	// Origins are compared byte by byte later. Browsers send them in lower case, so that any other form, or
	// one with a path, would never match and is refused now.
	origin := strings.ToLower(u.Scheme + "://" + u.Host)
	return text == origin
}

// isHostName reports whether a text may be the name of a server. An IPv6 address is none; requests may
// address the server by its IP addresses anyway.
func isHostName(text string) bool {
	// Not a full check: a name that passes and is wrong matches no request, and does no harm.
	odd := func(r rune) bool { return r <= ' ' || strings.ContainsRune("/:@?#[]*", r) }
	return text == "*" || text != "" && !strings.ContainsFunc(text, odd)
}

// ownHosts returns the names by which requests may address the server: those of --hosts, and the hosts of the
// addresses that it listens on or advertises.
func (s *settings) ownHosts() []string {
	// An address without a host listens on all addresses of the machine, and adds no name.
	all := slices.Clone(s.hosts)
	for _, address := range []string{s.http, s.capacity.advertise} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			all = append(all, host)
		}
	}
	return all
}

// minConnsPerAddress is the lowest default of connections from one address.
const minConnsPerAddress = 100

// connsPerAddress returns the most connections from one address: that of the settings, or a quarter of all.
func (s *settings) connsPerAddress() int {
	return cmp.Or(s.maxConnsPerAddress, max(s.maxConns/4, minConnsPerAddress))
}

// checkFlags returns an error that names each flag whose value cannot work.
func (s *settings) checkFlags() error {
	var all []error
	for _, fault := range s.findFaults() {
		all = append(all, fmt.Errorf("--%s %s", fault.flag, fault.text))
	}
	return errors.Join(all...)
}

// newLogger returns a logger for a level and a format that were checked before.
func newLogger(level, format string, out *os.File) *slog.Logger {
	// The flags may also be defaults in code, as for jarl, so that an unknown level only means info.
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	var least slog.Level
	if least.UnmarshalText([]byte(level)) == nil {
		options.Level = least
	}
	// A person reads a terminal, and a program what is behind a pipe.
	if format == "text" || format == "auto" && isTerminal(out) {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}

// A size is a flag's number of bytes, such as 64KiB, 128MiB or 2GiB. Without a unit it is in bytes.
type size int64

var units = []struct {
	name  string
	bytes int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// String implements [pflag.Value].
func (s *size) String() string {
	// The largest unit that gives a whole number, so that Set reads the same value back.
	for _, unit := range units {
		if n := int64(*s); n != 0 && n%unit.bytes == 0 && unit.bytes > 1 {
			return strconv.FormatInt(n/unit.bytes, 10) + unit.name
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}

// Set implements [pflag.Value].
func (s *size) Set(text string) error {
	// Plain B comes last in units: the others end in it too.
	bytes := int64(1)
	for _, unit := range units {
		if number, ok := strings.CutSuffix(text, unit.name); ok {
			text = number
			bytes = unit.bytes
			break
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n > math.MaxInt64/bytes {
		return errors.New("want " + wantSize)
	}
	*s = size(n * bytes)
	return nil
}

// Type implements [pflag.Value].
func (s *size) Type() string { return "size" }

const wantSize = "a number of bytes such as 64KiB, 128MiB or 2GiB"
