package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/config"
	"github.com/gatehousehq/gatehouse/front/bouncer"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/gatehousehq/gatehouse/store/outage"
	"github.com/spf13/pflag"
)

// settings are what serve can be told, by flags, by the environment or by a file.
type settings struct {
	http  string
	resp  string
	store string
	cors  []string
	keep  time.Duration
	drain time.Duration

	storeTimeout time.Duration

	logLevel, logFormat string

	maxNames, maxWaiters, maxLine, maxConns int

	readTimeout, writeTimeout, idleTimeout time.Duration

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
	f.DurationVar(&s.keep, "keep", gatehouse.DefaultKeep, "how long sent events and idle counters are kept")
	f.DurationVar(&s.drain, "drain", defaultDrain, "how long answers may take after SIGTERM")
	f.IntVar(&s.maxNames, "max-names", memory.DefaultNames, "most names at once")
	f.IntVar(&s.maxWaiters, "max-waiters", gate.DefaultWaiters, "most requests waiting at once")
	f.IntVar(&s.maxLine, "max-line", gate.DefaultLine, "most requests waiting at one name")
	f.IntVar(&s.maxConns, "max-connections", bouncer.DefaultConns, "most connections at once")
	f.DurationVar(&s.readTimeout, "read-timeout", bouncer.DefaultReadTimeout, "for a request to arrive")
	f.DurationVar(&s.writeTimeout, "write-timeout", bouncer.DefaultWriteTimeout, "for an answer to leave")
	f.DurationVar(&s.idleTimeout, "idle-timeout", bouncer.DefaultIdleTimeout, "between two requests")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal")
}

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
	for _, n := range []struct {
		flag  string
		value int64
	}{
		{"max-names", int64(s.maxNames)}, {"max-waiters", int64(s.maxWaiters)},
		{"max-line", int64(s.maxLine)}, {"max-connections", int64(s.maxConns)},
		{"keep", int64(s.keep)}, {"drain", int64(s.drain)}, {"read-timeout", int64(s.readTimeout)},
		{"write-timeout", int64(s.writeTimeout)}, {"idle-timeout", int64(s.idleTimeout)},
	} {
		if n.value <= 0 {
			note(n.flag, "is not above 0")
		}
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
	s.capacity.faults(note)
	return all
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
