package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gatehousehq/gatehouse/capacity"
	"github.com/gatehousehq/gatehouse/internal/config"
	grpcfront "github.com/gatehousehq/gatehouse/internal/front/grpc"
	"github.com/spf13/pflag"
)

var errNoListener = errors.New(
	"--http, --resp and --grpc are empty, which leaves no door open; want one such as localhost:5505")

// A servePlan is what a server starts with: settings that were checked, and the content of the files they
// name.
type servePlan struct {
	*settings
	file      *config.File
	templates capacity.Templates // nil when they are in etcd, or there are none
	version   string             // of the templates
}

// newServePlan reads flags, environment and files, and refuses everything that the server could not start
// with, or would fail with later. It neither listens nor connects: whether a port is free, a store answers or
// a folder is locked depends on the moment. --check fails on what newServePlan refuses, and runServer runs
// what it returns, so that the two cannot differ.
func newServePlan(ctx context.Context, s *settings, flags *pflag.FlagSet, path *string) (*servePlan, error) {
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
	if err := errors.Join(s.checkFlags(), p.checkAddresses()); err != nil {
		return nil, usageError{err}
	}
	// The server reads the saved leases when it starts. Here a file that it could not read is refused before.
	if s.capacity.leases != "" {
		if err := grpcfront.CheckLeases(s.capacity.leases); err != nil {
			return nil, err
		}
	}
	// Files come after the settings, whose errors are usage errors with a status of their own.
	err = p.readTemplates(ctx)
	return p, err
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
	for _, l := range p.file.JARL {
		at := fmt.Sprintf("%s:%d:%d", p.file.Path, l.At.Line, l.At.Column)
		add("the listener "+l.Address+" at "+at, l.Address)
	}
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
