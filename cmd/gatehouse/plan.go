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

var errNoDoor = errors.New(
	"--http, --resp and --grpc are empty, which leaves no door open; want one such as localhost:5505")

// A plan is what a server begins with: settings that can work, and what was read of the files they name.
type plan struct {
	*settings
	file      *config.File
	templates capacity.Templates // nil when they are in etcd, or there are none
	version   string             // of the templates
}

// newPlan reads flags, environment and files, and refuses all that serve could not begin with or would end
// with later. It neither listens nor connects: whether a port is free, a store answers or a folder is locked
// depends on the moment. --check says no to what newPlan refuses, and serve runs what it returns, so that
// the two cannot differ.
func newPlan(ctx context.Context, s *settings, flags *pflag.FlagSet, path *string) (*plan, error) {
	if err := readEnv(flags, os.LookupEnv); err != nil {
		return nil, usageError{err}
	}
	file, err := readFile(*path, flags) // the environment may have set the path
	if err != nil {
		return nil, err
	}
	p := &plan{settings: s, file: file}
	if err := errors.Join(s.check(), p.checkAddresses()); err != nil {
		return nil, usageError{err}
	}
	if s.capacity.leases != "" {
		if err := grpcfront.CheckLeases(s.capacity.leases); err != nil {
			return nil, err
		}
	}
	err = p.readTemplates(ctx)
	return p, err
}

// readTemplates reads the capacity templates. Those that are in etcd may not be there yet, and the server
// waits for them.
func (p *plan) readTemplates(ctx context.Context) (err error) {
	source := p.capacity.config
	if source == "" || strings.HasPrefix(source, "etcd:") {
		return nil
	}
	p.templates, p.version, err = config.LoadCapacity(ctx, source)
	return err
}

// checkAddresses refuses addresses at which not all doors can be open together.
func (p *plan) checkAddresses() error {
	type door struct {
		config.Address
		what string
	}
	var doors []door
	add := func(what, text string) {
		// One that cannot be read is refused with the other settings.
		if address, err := config.ParseAddress(text); err == nil {
			doors = append(doors, door{address, what})
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
		return errNoDoor
	}
	for i, a := range doors {
		for _, b := range doors[:i] {
			if a.Meets(b.Address) {
				return fmt.Errorf("%s and %s cannot listen at the same time, want another port for one",
					a.what, b.what)
			}
		}
	}
	return nil
}
