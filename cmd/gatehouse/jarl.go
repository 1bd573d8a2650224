package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/config"
	httpfront "github.com/gatehousehq/gatehouse/internal/front/http"
	"github.com/gatehousehq/gatehouse/internal/front/jarl"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// newJARL returns the command that takes JARL's own options, and some that JARL does not have.
func newJARL() *cobra.Command {
	// The same as a listener of the configuration file, filled from flags.
	var listener config.Listener
	limit, admits := &listener.Limit, &listener.Admits
	var ip, port string
	cmd := &cobra.Command{
		Use:   "jarl --service S --requests N --period P --ip A --port X",
		Short: "Serve JARL's clients: one limit on one TCP port",
		Long: "Serve JARL's clients. A connection is a request; the response is how many seconds to sleep\n" +
			"before the call, so that no period has more than --requests calls. State is in memory only.",
		Example: "  gatehouse jarl --service github --requests 5000 --period 3600 --ip 0.0.0.0 --port 5001",
		Args:    refuseWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := requireFlags(cmd.Flags(), "service", "requests", "period", "ip", "port"); err != nil {
				return usageError{err}
			}
			// Only the service can be wrong here: the options below have checked their values themselves.
			if err := limit.Check(); err != nil {
				return usageError{fmt.Errorf("--service: %w", err)}
			}
			listener.Address = net.JoinHostPort(strings.Trim(ip, "[]"), port) // IPv6 with or without brackets
			return serveJARL(cmd, &listener)
		},
	}
	// The first five are JARL's, which have to be given once each. They have no defaults, since JARL has
	// none.
	f := cmd.Flags()
	f.SortFlags = false
	addSingleOption(f, "service", "name of the limit, which is the limiter pace/NAME",
		textSetter(&limit.Name))
	addSingleOption(f, "requests", "most calls in a period",
		wholeNumberSetter(gatehouse.MaxSize, func(n int64) { limit.Requests = n }))
	addSingleOption(f, "period", "length of a period in seconds",
		wholeNumberSetter(longestPeriod, func(n int64) { limit.Period = time.Duration(n) * time.Second }))
	addSingleOption(f, "ip", "address to listen on; 0.0.0.0 is every address of the machine", textSetter(&ip))
	addSingleOption(f, "port", "port to listen on",
		wholeNumberSetter(65535, func(n int64) { port = strconv.FormatInt(n, 10) }))
	f.Func("mode", jarl.ModeNames()+" (default reserve)", limit.SetMode)
	f.Func("guard", "time added to the period, for clients whose calls come late by up to that",
		durationSetter(&limit.Guard))
	f.Func("max-delay",
		"longest delay in a response; connections that would need more are closed (default any)",
		admits.SetMaxDelay)
	f.Func("allow", "address or block of clients, such as 10.0.0.0/8; may be repeated (default all)",
		admits.AddAllowed)
	return cmd
}

// longestPeriod is the longest --period, in seconds.
const longestPeriod = int64(gatehouse.MaxDuration / time.Second)

// jarlConnsPerAddress is the most connections from one client address, the same as the default of serve.
const jarlConnsPerAddress = httpfront.DefaultConns / 4

// serveJARL runs the one listener until a signal ends it.
func serveJARL(cmd *cobra.Command, listener *config.Listener) error {
	proc := &serverProcess{
		log: newLogger("info", "auto", os.Stderr), drainTimeout: defaultDrain,
		connsPerAddress: jarlConnsPerAddress,
		gate:            gate.New(memory.New(memory.Config{}), gate.Config{}),
	}
	l, err := proc.newJARLListener(listener, nil) // without metrics: there is no HTTP listener to show them
	if err != nil {
		return err
	}
	l.addressHint = "with --ip and --port"
	proc.listeners = append(proc.listeners, l)
	return proc.serveUntilSignal(cmd.Context())
}

// addSingleOption adds an option that may be given at most once.
func addSingleOption(f *pflag.FlagSet, name, usage string, set func(string) error) {
	// The flag library lets the last value win. Of two services or ports one would be ignored silently.
	given := false
	f.Func(name, usage, func(value string) error {
		if given {
			return errors.New("it is given twice")
		}
		given = true
		return set(value)
	})
}

// requireFlags returns an error that names all the options that were not given.
func requireFlags(f *pflag.FlagSet, names ...string) error {
	absent := slices.DeleteFunc(names, f.Changed)
	if len(absent) == 0 {
		return nil
	}
	return fmt.Errorf("missing: --%s", strings.Join(absent, ", --"))
}

// textSetter returns a function that sets *into, and refuses an empty text.
func textSetter(into *string) func(string) error {
	return func(value string) error {
		*into = value
		if value == "" {
			return errors.New("want it not empty")
		}
		return nil
	}
}

// durationSetter returns a function that parses a duration from 0 to 100 years into *into.
func durationSetter(into *time.Duration) func(string) error {
	return func(value string) (err error) {
		*into, err = time.ParseDuration(value)
		if err != nil || *into < 0 || *into > gatehouse.MaxDuration {
			return errors.New("want a time such as 5ms, at most 100 years")
		}
		return nil
	}
}

// wholeNumberSetter returns a function that parses a whole number from 1 to most, and calls set with it.
func wholeNumberSetter(most int64, set func(int64)) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("want a whole number from 1 to %d", most)
		}
		set(n)
		return nil
	}
}
