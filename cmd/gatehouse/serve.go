package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/front/bouncer"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/spf13/cobra"
)

// settings are what serve can be told, by flags or by the environment.
type settings struct {
	http  string
	store string
	cors  []string
	keep  time.Duration
	drain time.Duration

	logLevel, logFormat string

	maxNames, maxWaiters, maxLine, maxConns int

	readTimeout, writeTimeout, idleTimeout time.Duration
}

func newServe() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server. A flag --max-names can also be given as GATEHOUSE_MAX_NAMES.\n" +
			"bouncer's BOUNCER_HOST, BOUNCER_PORT and BOUNCER_LOGLEVEL are honoured.",
		Example: "  gatehouse serve\n  gatehouse serve --http :5505 --max-waiters 10000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := readEnv(cmd.Flags(), os.LookupEnv); err != nil {
				return err
			}
			return serve(cmd.Context(), &s)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&s.http, "http", "localhost:5505", "address of the HTTP API")
	f.StringVar(&s.store, "store", "memory", "where state is kept; memory forgets it on exit")
	f.StringSliceVar(&s.cors, "cors", nil, "origins whose web pages may call the API, or *")
	f.DurationVar(&s.keep, "keep", gatehouse.DefaultKeep, "how long sent events and idle counters are kept")
	f.DurationVar(&s.drain, "drain", 10*time.Second, "how long answers may take after SIGTERM")
	f.IntVar(&s.maxNames, "max-names", memory.DefaultNames, "most names at once")
	f.IntVar(&s.maxWaiters, "max-waiters", gate.DefaultWaiters, "most requests waiting at once")
	f.IntVar(&s.maxLine, "max-line", gate.DefaultLine, "most requests waiting at one name")
	f.IntVar(&s.maxConns, "max-connections", bouncer.DefaultConns, "most connections at once")
	f.DurationVar(&s.readTimeout, "read-timeout", bouncer.DefaultReadTimeout, "for a request to arrive")
	f.DurationVar(&s.writeTimeout, "write-timeout", bouncer.DefaultWriteTimeout, "for an answer to leave")
	f.DurationVar(&s.idleTimeout, "idle-timeout", bouncer.DefaultIdleTimeout, "between two requests")
	f.StringVar(&s.logLevel, "log-level", "info", "debug, info, warn or error")
	f.StringVar(&s.logFormat, "log-format", "auto", "text, json, or auto: text on a terminal")
	return cmd
}

// serve runs the server until a signal, or ctx, ends it. All the wiring is here.
func serve(ctx context.Context, s *settings) error {
	log, err := newLogger(s, os.Stderr)
	if err != nil {
		return err
	}
	if err := s.check(); err != nil {
		return err
	}
	store := memory.New(memory.Config{Names: s.maxNames})
	doors := gate.New(store, gate.Config{Waiters: s.maxWaiters, Line: s.maxLine})
	server, err := bouncer.New(bouncer.Config{
		Gate: doors, Names: store.Len, Log: log, Version: buildVersion(), CORS: s.cors, Keep: s.keep,
		Conns: s.maxConns, ReadTimeout: s.readTimeout, WriteTimeout: s.writeTimeout,
		IdleTimeout: s.idleTimeout,
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.http)
	if err != nil {
		return fmt.Errorf("listening for HTTP: %w; choose another address with --http", err)
	}
	signals, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	log.Info("serving HTTP", "address", listener.Addr().String(), "store", s.store, "version", buildVersion())

	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return errors.Join(err, end(server, doors, s.drain))
	case <-signals.Done():
	}
	stop() // a second signal ends the process at once
	log.Info("stopping", "waiting", doors.Waiting(), "drain", s.drain.String())
	if err := end(server, doors, s.drain); err != nil {
		log.Warn("connections that were not done within --drain are cut", "error", err)
		return nil
	}
	if err := <-failed; err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// end answers everybody who waits, lets what is in hand finish, and closes the server.
func end(server *bouncer.Server, doors *gate.Gate, drain time.Duration) error {
	server.Stopping()
	doors.Close()
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	return server.Shutdown(ctx)
}

// check refuses settings that cannot work, by the name of their flag.
func (s *settings) check() error {
	if s.store != "memory" {
		return fmt.Errorf("--store is %q, want memory", s.store)
	}
	if s.http == "" {
		return errors.New("--http is empty, which leaves no door open; want one such as localhost:5505")
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
			return fmt.Errorf("--%s is not above 0", n.flag)
		}
	}
	if s.keep > gatehouse.MaxDuration {
		return fmt.Errorf("--keep is %s, want at most 100 years", s.keep)
	}
	return nil
}

// newLogger makes the log that the settings ask for.
func newLogger(s *settings, out *os.File) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(s.logLevel)); err != nil {
		return nil, fmt.Errorf("--log-level is %q, want debug, info, warn or error", s.logLevel)
	}
	options := &slog.HandlerOptions{Level: level}
	switch s.logFormat {
	case "auto", "text", "json":
	default:
		return nil, fmt.Errorf("--log-format is %q, want text, json or auto", s.logFormat)
	}
	if s.logFormat == "text" || s.logFormat == "auto" && isTerminal(out) {
		return slog.New(slog.NewTextHandler(out, options)), nil
	}
	return slog.New(slog.NewJSONHandler(out, options)), nil
}
