package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/budget"
	"github.com/gatehousehq/gatehouse/internal/peer"
	"github.com/gatehousehq/gatehouse/internal/weight"
)

// A server speaks one protocol at one listener.
type server interface {
	// Serve answers until Shutdown is called.
	Serve(listener net.Listener) error
	// Stopping says that the end is near: every answer is the last on its connection.
	Stopping()
	// Shutdown lets what is in hand finish, and cuts the rest when ctx ends.
	Shutdown(ctx context.Context) error
}

// A door is a server and the address it is at.
type door struct {
	server
	protocol string // as people call it
	address  string
	chosen   string // says where another address can be chosen
	listen   func(ctx context.Context, address string) (net.Listener, error)
	conns    int   // it may have at once; 0 if they end by themselves
	about    []any // for the log

	listener net.Listener
}

// open begins to listen.
func (d *door) open(ctx context.Context) (err error) {
	if d.listener, err = d.listen(ctx, d.address); err != nil {
		return fmt.Errorf("listening for %s: %w; choose another address %s", d.protocol, err, d.chosen)
	}
	return nil
}

// listenTCP listens as most servers do.
func listenTCP(ctx context.Context, address string) (net.Listener, error) {
	config := net.ListenConfig{Control: boundUnsent}
	config.SetMultipathTCP(false) // its connections would not inherit what is set on the listener
	return peer.Listen(ctx, config, address)
}

// A house is all that runs together: one gate and the doors to it.
type house struct {
	log   *slog.Logger
	gate  *gate.Gate
	doors []*door
	drain time.Duration // how long answers may take at the end

	budget *budget.Budget // which all doors share
	memory *weight.Total

	connsPerAddress int // that each door takes
	unaccepted      peer.Complaint

	// opened is called when all doors are open; nil for nothing.
	opened func()

	// beside is what runs beside the doors until its context ends. An error ends the house.
	beside []func(ctx context.Context) error
}

// collectAt is by how much the heap may grow, in percent, before it is collected. Most of it is those who
// wait, and hardly anything is thrown away, so that half of what Go takes costs next to no time.
const collectAt = 50

// run opens all doors, and closes them when a signal comes, ctx ends, or one of them fails. Nobody is
// served unless all addresses are to be had.
func (h *house) run(ctx context.Context) error {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
	if err := h.openAll(ctx); err != nil {
		return err
	}
	signals, stop := signal.NotifyContext(ctx, syscall.SIGTERM, os.Interrupt)
	defer stop()
	beside, leave := context.WithCancel(ctx)
	var company sync.WaitGroup
	defer company.Wait()
	defer leave()
	failed := make(chan error, len(h.beside))
	for _, run := range h.beside {
		company.Go(func() {
			if err := run(beside); err != nil && beside.Err() == nil {
				failed <- err
			}
		})
	}
	ended := make(chan error, len(h.doors))
	for _, d := range h.doors {
		h.log.Info("serving "+d.protocol, append(listening(d.listener), d.about...)...)
		go func() { ended <- d.Serve(d.listener) }()
	}
	if h.opened != nil {
		h.opened()
	}
	select {
	case err := <-ended:
		return errors.Join(err, h.end())
	case err := <-failed:
		return errors.Join(err, h.end())
	case <-signals.Done():
	}
	stop() // a second signal ends the process at once
	h.log.Info("stopping", "waiting", h.gate.Waiting(), "drain", h.drain.String())
	if err := h.end(); err != nil {
		h.log.Warn("stopped, but not in good order", "error", err)
		return nil
	}
	for range h.doors {
		if err := <-ended; err != nil {
			return err
		}
	}
	h.log.Info("stopped")
	return nil
}

// openAll opens all doors, or none. All those that cannot be opened are told at once.
func (h *house) openAll(ctx context.Context) error {
	var failed []error
	for _, d := range h.doors {
		if err := d.open(ctx); err != nil {
			failed = append(failed, err)
		}
	}
	if failed == nil {
		h.warnOfFewFiles(openFileLimit())
		return nil
	}
	for _, d := range h.doors {
		if d.listener != nil {
			_ = d.listener.Close()
		}
	}
	return errors.Join(failed...)
}

// listening says for the log where a listener is.
func listening(listener net.Listener) (about []any) {
	keys := []string{"address", "also"}
	for i, address := range peer.Addrs(listener) {
		about = append(about, keys[i], address.String())
	}
	return about
}

// end answers everybody who waits, lets what is in hand finish, closes all doors together, and waits for the
// store to have finished too. The store may be closed then.
func (h *house) end() error {
	h.unaccepted.End()
	for _, d := range h.doors {
		d.Stopping()
	}
	h.gate.Close()
	ctx, cancel := context.WithTimeout(context.Background(), h.drain)
	defer cancel()
	failed := make([]error, len(h.doors))
	var all sync.WaitGroup
	for i, d := range h.doors {
		all.Go(func() {
			failed[i] = d.Shutdown(ctx)
			_ = d.listener.Close() // it is, unless Serve was about to begin
		})
	}
	all.Wait()
	return errors.Join(errors.Join(failed...), h.gate.Drain(ctx))
}
