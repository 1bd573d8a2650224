package main

import (
	"errors"
	"fmt"
	"net"
	"os"
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

// newJARL makes the verb that has JARL's command line, and more options that it has not.
func newJARL() *cobra.Command {
	var listener config.Listener
	limit, admits := &listener.Limit, &listener.Admits
	var ip, port string
	cmd := &cobra.Command{
		Use:   "jarl --service S --requests N --period P --ip A --port X",
		Short: "Answer JARL's clients: one limit at one TCP port",
		Long: "Answer JARL's clients. A connection is a request; the answer is how many seconds to sleep\n" +
			"before the call, such that no period has more than so many calls. All is kept in memory.",
		Example: "  gatehouse jarl --service github --requests 5000 --period 3600 --ip 0.0.0.0 --port 5001",
		Args:    noWords,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := missing(cmd.Flags(), "service", "requests", "period", "ip", "port"); err != nil {
				return usageError{err}
			}
			if err := limit.Check(); err != nil { // all but the service was looked at
				return usageError{fmt.Errorf("--service: %w", err)}
			}
			listener.Address = net.JoinHostPort(strings.Trim(ip, "[]"), port)
			return serveJARL(cmd, &listener)
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	option(f, "service", "name of the limit, which is the limiter pace/NAME", text(&limit.Name))
	option(f, "requests", "how many calls a period may have", whole(gatehouse.MaxSize, func(n int64) {
		limit.Requests = n
	}))
	option(f, "period", "how long a period is, in seconds", whole(longestPeriod, func(n int64) {
		limit.Period = time.Duration(n) * time.Second
	}))
	option(f, "ip", "address to listen at; 0.0.0.0 is all of the machine", text(&ip))
	option(f, "port", "port to listen at", whole(65535, func(n int64) { port = strconv.FormatInt(n, 10) }))
	f.Func("mode", jarl.ModeNames()+" (default reserve)", limit.SetMode)
	f.Func("guard", "added to the period, for clients that call late by as much", guard(&limit.Guard))
	f.Func("max-delay", "longest delay that is promised; beyond it connections are closed (default any)",
		admits.SetMaxDelay)
	f.Func("allow", "address or block such as 10.0.0.0/8 of clients; may be given often (default all)",
		admits.AddAllowed)
	return cmd
}

// longestPeriod is the longest time, in seconds.
const longestPeriod = int64(gatehouse.MaxDuration / time.Second)

// jarlConnsPerAddress is how many connections one address may have, as by the defaults of serve.
const jarlConnsPerAddress = httpfront.DefaultConns / 4

// serveJARL runs the one listener until a signal ends it.
func serveJARL(cmd *cobra.Command, listener *config.Listener) error {
	h := &house{
		log: newLogger("info", "auto", os.Stderr), drain: defaultDrain, connsPerAddress: jarlConnsPerAddress,
		gate: gate.New(memory.New(memory.Config{}), gate.Config{}),
	}
	d, err := h.newJARLDoor(listener, nil)
	if err != nil {
		return err
	}
	d.chosen = "with --ip and --port"
	h.doors = append(h.doors, d)
	return h.run(cmd.Context())
}

// option adds an option that may be given once.
func option(f *pflag.FlagSet, name, usage string, set func(string) error) {
	given := false
	f.Func(name, usage, func(value string) error {
		if given {
			return errors.New("it is given twice")
		}
		given = true
		return set(value)
	})
}

// missing refuses a command line that lacks an option.
func missing(f *pflag.FlagSet, names ...string) error {
	var absent []string
	for _, name := range names {
		if !f.Changed(name) {
			absent = append(absent, "--"+name)
		}
	}
	if len(absent) == 0 {
		return nil
	}
	return fmt.Errorf("missing: %s", strings.Join(absent, ", "))
}

// text reads an option that may be anything but empty.
func text(into *string) func(string) error {
	return func(value string) error {
		*into = value
		if value == "" {
			return errors.New("want it not empty")
		}
		return nil
	}
}

// guard reads an option that is a time.
func guard(into *time.Duration) func(string) error {
	return func(value string) (err error) {
		*into, err = time.ParseDuration(value)
		if err != nil || *into < 0 || *into > gatehouse.MaxDuration {
			return errors.New("want a time such as 5ms, at most 100 years")
		}
		return nil
	}
}

// whole reads an option that is a whole number from 1 to most.
func whole(most int64, set func(int64)) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil || n < 1 || n > most {
			return fmt.Errorf("want a whole number from 1 to %d", most)
		}
		set(n)
		return nil
	}
}
