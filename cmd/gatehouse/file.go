package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/access"
	"github.com/gatehousehq/gatehouse/internal/certs"
	"github.com/gatehousehq/gatehouse/internal/config"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"github.com/gatehousehq/gatehouse/internal/yamlnode"
	"github.com/spf13/pflag"
)

// secrets are the settings that may contain a password. Their values are never shown.
var secrets = []string{"store", "election", "capacity-config", "users"}

// readFile reads the configuration file and sets the flags that neither the command line nor the environment
// has set. If anything in the file is wrong, it sets none. With an empty path it returns an empty file.
func readFile(path string, flags *pflag.FlagSet) (*config.File, error) {
	if path == "" {
		return &config.File{}, nil
	}
	// First all settings of the file go into flags of their own. So a value that a flag overrules is checked
	// too, and an error here has no effect on the real flags.
	var alone settings
	scratch := pflag.NewFlagSet("file", pflag.ContinueOnError)
	scratch.SortFlags = false
	alone.addFlags(scratch)
	known := config.Known{Addresses: addresses}
	scratch.VisitAll(func(f *pflag.Flag) { known.Settings = append(known.Settings, f.Name) })
	file, err := config.Load(path, known)
	if err != nil {
		return nil, err
	}
	// Faults of single values: of the wrong type, or not readable at all.
	places := make(map[string]yamlnode.Position)
	for _, setting := range file.Settings {
		if err := setFlag(scratch.Lookup(setting.Name), setting.Values); err != nil {
			value := setting.String()
			if slices.Contains(secrets, setting.Name) {
				// A value that is a list by mistake may still have a password in it.
				value = fmt.Sprintf("a list of %d values", len(setting.Values))
			}
			file.Fault(setting.At, "%s is %s, want %v", setting.Name, value, err)
			continue
		}
		places[setting.Name] = setting.At
	}
	// Faults of values that can be read and make no sense. Load has reported the addresses already, and
	// faults without a place are those of defaults that the file does not mention.
	for _, fault := range alone.findFaults() {
		if at, ok := places[fault.flag]; ok && !slices.Contains(addresses, fault.flag) {
			file.Fault(at, "%s %s", fault.flag, fault.text)
		}
	}
	if err := file.Err(); err != nil {
		return nil, err
	}
	for _, setting := range file.Settings {
		if flag := flags.Lookup(setting.Name); !flag.Changed {
			_ = setFlag(flag, setting.Values) // cannot fail: the same value was set above
		}
	}
	return file, nil
}

// setFlag sets a flag to the values from a file. The error describes the values that it takes.
func setFlag(flag *pflag.Flag, values []string) error {
	if slice, ok := flag.Value.(pflag.SliceValue); ok {
		return slice.Replace(values)
	}
	// A list in the file for a flag that has one value.
	if len(values) != 1 {
		return errors.New("one value")
	}
	if flag.Value.Set(values[0]) == nil {
		return nil
	}
	return cmp.Or(wantedValue(flag), errors.New("a "+flag.Value.Type()))
}

// wantedValue describes the values that a flag takes, as an error; nil if the flag's own error does so.
func wantedValue(flag *pflag.Flag) error {
	// The errors of the flag library name functions of Go, such as strconv.ParseInt, and no values.
	switch flag.Value.Type() {
	case "int", "int64":
		return errors.New("a whole number")
	case "uint64":
		return errors.New("a whole number that is not negative")
	case "duration":
		return errors.New("a time such as 500ms, 10s or 24h")
	case "size":
		return errors.New(wantSize)
	case "bool":
		return errors.New("true or false")
	}
	return nil
}

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
	host, port = cmp.Or(host, "localhost"), cmp.Or(port, "5505")
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

var errNoListener = errors.New(
	"--http, --resp and --grpc are empty, which leaves no door open; want one such as localhost:5505")

// A servePlan is what a server starts with: settings that were checked, and the content of the files they
// name.
type servePlan struct {
	*settings
	file      *config.File
	templates capacity.Templates // nil when they are in etcd, or there are none
	version   string             // of the templates
	certs     *certs.Server      // nil without TLS
	parentTLS func() *tls.Config // nil without TLS to parents
	policy    *access.Policy     // nil if there are no users
}

// newServePlan reads flags, environment and files, and refuses everything that the server could not start
// with, or would fail with later. It neither listens nor connects: whether a port is free, a store answers or
// a folder is locked depends on the moment. --check fails on what newServePlan refuses, and runServer runs
// what it returns, so that the two cannot differ.
func newServePlan(ctx context.Context, s *settings, flags *pflag.FlagSet, path *string) (*servePlan, error) {
	// Asked before the variables are read: afterwards --http does not tell what has set it.
	s.users.bouncer = !flags.Changed("http") && os.Getenv("GATEHOUSE_HTTP") == "" &&
		os.Getenv("BOUNCER_HOST") != ""
	if err := readEnv(flags, os.LookupEnv); err != nil {
		return nil, usageError{err}
	}
	// The order is the precedence: a flag is set already, the environment sets what is left, and the file
	// what is left then. The path is read only now, since the environment may have set it.
	file, err := readFile(*path, flags)
	if err != nil {
		return nil, err
	}
	p := &servePlan{settings: s, file: file}
	err = errors.Join(s.checkFlags(), p.checkAddresses())
	// Whether other machines reach an address is known only of one that is right.
	if err == nil {
		err = s.checkReach()
	}
	if err != nil {
		return nil, usageError{err}
	}
	// The server reads the saved leases when it starts. Here a file that it could not read is refused before.
	if s.capacity.leases != "" {
		if err := grpcfront.CheckLeases(s.capacity.leases); err != nil {
			return nil, err
		}
	}
	// Files come after the settings, whose errors are usage errors with a status of their own.
	p.certs, err = s.tls.openCerts()
	if files := s.capacity.parentTLS; err == nil && !files.IsZero() {
		p.parentTLS, err = files.Latest()
		if err != nil {
			err = fmt.Errorf("TLS to parents: %w", err)
		}
	}
	return p, errors.Join(err, p.readPolicy(), p.readTemplates(ctx))
}

// readTemplates reads the capacity templates. Those that are in etcd may not be there yet, and the server
// waits for them.
func (p *servePlan) readTemplates(ctx context.Context) (err error) {
	// etcd is a connection, which a plan does not make: the server watches it in the background.
	source := p.capacity.config
	if source == "" || strings.HasPrefix(source, "etcd:") {
		return nil
	}
	p.templates, p.version, err = config.LoadCapacity(ctx, source)
	return err
}

// checkAddresses refuses addresses at which not all listeners can be open together.
func (p *servePlan) checkAddresses() error {
	type namedAddress struct {
		config.Address
		what string
	}
	var used []namedAddress
	add := func(what, text string) {
		// An address that cannot be parsed is refused by settings.checkFlags, or when the file is read.
		if address, err := config.ParseAddress(text); err == nil {
			used = append(used, namedAddress{address, what})
		}
	}
	add("--http "+p.http, p.http)
	add("--resp "+p.resp, p.resp)
	add("--grpc "+p.capacity.grpc, p.capacity.grpc)
	add("--health "+p.health, p.health)
	for _, l := range p.file.JARL {
		at := fmt.Sprintf("%s:%d:%d", p.file.Path, l.At.Line, l.At.Column)
		add("the listener "+l.Address+" at "+at, l.Address)
	}
	// --health alone is not enough: it would tell how a server is that serves no client.
	if p.http == "" && p.resp == "" && p.capacity.grpc == "" && len(p.file.JARL) == 0 {
		return errNoListener
	}
	// Two addresses may meet without being equal: 0.0.0.0:5505 and localhost:5505 need the same port.
	for i, a := range used {
		for _, b := range used[:i] {
			if a.Meets(b.Address) {
				return fmt.Errorf("%s and %s cannot listen at the same time, want another port for one",
					a.what, b.what)
			}
		}
	}
	return nil
}
