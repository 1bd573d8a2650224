package main

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/config"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/gatehousehq/gatehouse/store/outage"
	"github.com/spf13/pflag"
)

// settings are what serve can be told, by flags, by the environment or by a file.
type settings struct {
	http    string
	resp    string
	store   string
	cors    []string
	hosts   []string
	keep    time.Duration
	drain   time.Duration
	refusal int

	storeTimeout time.Duration

	logLevel, logFormat string

	maxNames, maxWaiters, maxLine, maxConns, maxConnsPerAddress int

	maxHolders             int
	maxBuffered, maxMemory size

	readTimeout, writeTimeout, idleTimeout, respIdleTimeout time.Duration

	capacity capacitySettings
}

// addresses are the settings that are addresses.
var addresses = []string{"http", "resp", "grpc"}

// add adds a flag for each setting, with its default.
func (s *settings) add(f *pflag.FlagSet) {
	f.StringVar(&s.http, "http", "localhost:5505", "address of the HTTP API; empty for none")
	f.StringVar(&s.resp, "resp", "localhost:5507", "address for Redis clients; empty for none")
	s.capacity.add(f)
	f.StringVar(&s.store, "store", "memory", "where state is kept: "+wantStore)
	f.DurationVar(&s.storeTimeout, "store-timeout", outage.DefaultTimeout, "for a shared store to answer")
	f.StringSliceVar(&s.cors, "cors", nil, "origins whose web pages may call the API, or *")
	f.StringSliceVar(&s.hosts, "hosts", nil, "names by which requests may address the HTTP API, or *")
	f.IntVar(&s.refusal, "refusal-status", refusedTimeout,
		"status of a refusal over HTTP, if the request gives none: 408 as bouncer, or 429")
	f.DurationVar(&s.keep, "keep", gatehouse.DefaultKeep, "how long sent events and idle counters are kept")
	f.DurationVar(&s.drain, "drain", defaultDrain, "how long answers may take after SIGTERM")
	f.IntVar(&s.maxNames, "max-names", memory.DefaultNames, "most names at once")
	f.Var(&s.maxMemory, "max-memory", "most bytes of memory for state (default 40 % of what there is)")
	f.IntVar(&s.maxHolders, "max-holders", memory.DefaultHolders, "most holders of locks and semaphores")
	f.IntVar(&s.maxWaiters, "max-waiters", gate.DefaultWaiters, "most requests waiting at once")
	f.IntVar(&s.maxLine, "max-line", gate.DefaultLine, "most requests waiting at one name")
	f.IntVar(&s.maxConns, "max-connections", httpfront.DefaultConns, "most connections at once")
	f.IntVar(&s.maxConnsPerAddress, "max-connections-per-address", 0,
		"most of them from one address; 0 is a quarter of them")
	s.maxBuffered = budget.DefaultBytes
	f.Var(&s.maxBuffered, "max-buffered", "most bytes that wait to be sent or received")
	f.DurationVar(&s.readTimeout, "read-timeout", httpfront.DefaultReadTimeout, "for a request to arrive")
	f.DurationVar(&s.writeTimeout, "write-timeout", httpfront.DefaultWriteTimeout, "for an answer to leave")
	f.DurationVar(&s.idleTimeout, "idle-timeout", httpfront.DefaultIdleTimeout, "between two requests")
	f.DurationVar(&s.respIdleTimeout, "resp-idle-timeout", 0,
		"between two commands of a Redis client; 0 for ever")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal")
}

// What --refusal-status may be.
const refusedTimeout, refusedTooMany = 408, 429

// defaultDrain leaves a supervisor that kills after half a minute some time.
const defaultDrain = 10 * time.Second

// A store may have so long for an answer. In less, none gives one; after more, nobody waits for it.
const leastStoreTimeout, mostStoreTimeout = 10 * time.Millisecond, time.Minute

// A fault is a setting that cannot work, and what is wrong with it.
type fault struct{ flag, text string }

// faults are the settings that cannot work.
func (s *settings) faults() (all []fault) {
	note := func(flag, format string, args ...any) {
		all = append(all, fault{flag, fmt.Sprintf(format, args...)})
	}
	if fault := checkStore(s.store); fault != "" {
		note("store", "%s", fault)
	}
	for i, address := range []string{s.http, s.resp, s.capacity.grpc} {
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
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"max-names", int64(s.maxNames)}, {"max-waiters", int64(s.maxWaiters)},
		{"max-line", int64(s.maxLine)}, {"max-connections", int64(s.maxConns)},
		{"max-buffered", int64(s.maxBuffered)}, {"max-holders", int64(s.maxHolders)},
		{"keep", int64(s.keep)}, {"drain", int64(s.drain)}, {"read-timeout", int64(s.readTimeout)},
		{"write-timeout", int64(s.writeTimeout)}, {"idle-timeout", int64(s.idleTimeout)},
	} {
		if n.value <= 0 {
			note(n.flag, "is not above 0")
		}
	}
	if s.respIdleTimeout < 0 {
		note("resp-idle-timeout", "is below 0")
	}
	if s.storeTimeout < leastStoreTimeout || s.storeTimeout > mostStoreTimeout {
		note("store-timeout", "is %s, want %s to %s", s.storeTimeout, leastStoreTimeout, mostStoreTimeout)
	}
	if s.keep > gatehouse.MaxDuration {
		note("keep", "is %s, want at most 100 years", s.keep)
	}
	if err := new(slog.Level).UnmarshalText([]byte(s.logLevel)); err != nil {
		note("log-level", "is %q, want debug, info, warn or error", s.logLevel)
	}
	switch s.logFormat {
	case "auto", "text", "json":
	default:
		note("log-format", "is %q, want text, json or auto", s.logFormat)
	}
	s.clientFaults(note)
	s.capacity.faults(note)
	return all
}

// clientFaults looks at the settings about who may come, and by which name.
func (s *settings) clientFaults(note func(flag, format string, args ...any)) {
	for _, host := range s.hosts {
		if !isHostName(host) {
			note("hosts", "has %q, want * or a name without a port such as gatehouse.example", host)
		}
	}
	if s.maxConnsPerAddress < 0 {
		note("max-connections-per-address", "is below 0")
	}
}

// isOrigin reports whether a browser may send a text as Origin: a scheme and a host, and no slash behind it.
func isOrigin(text string) bool {
	if text == "*" || text == "null" {
		return true
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return false
	}
	origin := strings.ToLower(u.Scheme + "://" + u.Host) // browsers send it in lower case
	return text == origin
}

// isHostName reports whether a text may be the name of a server. An IP address is none: it needs not be
// given.
func isHostName(text string) bool {
	odd := func(r rune) bool { return r <= ' ' || strings.ContainsRune("/:@?#[]*", r) }
	return text == "*" || text != "" && !strings.ContainsFunc(text, odd)
}

// ownHosts are the names by which requests may address the server: those that were given, and those of the
// addresses that it listens at or tells others.
func (s *settings) ownHosts() []string {
	all := slices.Clone(s.hosts)
	for _, address := range []string{s.http, s.capacity.advertise} {
		if host, _, err := net.SplitHostPort(address); err == nil && host != "" {
			all = append(all, host)
		}
	}
	return all
}

// fewConns is how many connections one address may have at least where nothing else is said.
const fewConns = 100

// connsPerAddress is how many connections one address may have.
func (s *settings) connsPerAddress() int {
	return cmp.Or(s.maxConnsPerAddress, max(s.maxConns/4, fewConns))
}

// check refuses settings that cannot work, by the names of their flags.
func (s *settings) check() error {
	var all []error
	for _, fault := range s.faults() {
		all = append(all, fmt.Errorf("--%s %s", fault.flag, fault.text))
	}
	return errors.Join(all...)
}

// newLogger makes the log that the settings, which were checked, ask for.
func newLogger(level, format string, out *os.File) *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelInfo}
	var least slog.Level
	if least.UnmarshalText([]byte(level)) == nil {
		options.Level = least
	}
	if format == "text" || format == "auto" && isTerminal(out) {
		return slog.New(slog.NewTextHandler(out, options))
	}
	return slog.New(slog.NewJSONHandler(out, options))
}
