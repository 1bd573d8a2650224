package main

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// readEnv sets the flags that were not given from the environment: --max-names from
// GATEHOUSE_MAX_NAMES, and the flags that are still not set from bouncer's own variables. An empty variable
// counts as not set. Other variables that begin with GATEHOUSE_ are no error: Kubernetes makes some for every
// service.
func readEnv(flags *pflag.FlagSet, lookup func(string) (string, bool)) error {
	// Only the first error is kept. VisitAll cannot be stopped, and goes by the order of the flags.
	var failed error
	set := func(flag *pflag.Flag, variable, value string) {
		if err := flags.Set(flag.Name, value); err != nil && failed == nil {
			failed = fmt.Errorf("%s is %q, want %w", variable, value, cmp.Or(wantedValue(flag), err))
		}
	}
	flags.VisitAll(func(flag *pflag.Flag) {
		variable := "GATEHOUSE_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value, ok := lookup(variable); ok && value != "" && !flag.Changed && flag.Name != "help" {
			set(flag, variable, value)
		}
	})
	if failed != nil {
		return failed
	}
	if level, ok := lookup("BOUNCER_LOGLEVEL"); ok && !flags.Changed("log-level") {
		set(flags.Lookup("log-level"), "BOUNCER_LOGLEVEL", bouncerLevel(level))
	}
	// Bouncer has one address in two variables. One of them is enough: the other has bouncer's default.
	host, _ := lookup("BOUNCER_HOST")
	port, _ := lookup("BOUNCER_PORT")
	if flags.Changed("http") || host == "" && port == "" {
		return failed
	}
	if host == "" {
		host = "localhost"
	}
	if port == "" {
		port = "5505"
	}
	// It is refused here, as the text about --http would name a flag that the user never gave.
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("BOUNCER_PORT is %q, want a port from 1 to 65535", port)
	}
	set(flags.Lookup("http"), "BOUNCER_HOST", net.JoinHostPort(host, port))
	return failed
}

// bouncerLevel translates bouncer's names of log levels. As there, an unknown word means info.
func bouncerLevel(level string) string {
	switch level = strings.ToLower(level); level {
	case "debug", "error", "warn":
		return level
	case "warning":
		return "warn"
	case "critical", "fatal", "panic":
		return "error"
	default:
		return "info"
	}
}

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }
