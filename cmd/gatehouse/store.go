package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/gatehousehq/gatehouse/store/disk"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// An openedStore is a store, and what the server needs to know about it.
type openedStore struct {
	gate.Store
	logName      string          // its address for logs, without a password
	firstTicket  control.Ticket  // of this server; 0 if no other server uses the store
	countNames   func() int      // returns how many names it keeps
	countHolders func() int      // returns how many holders it has; nil when that is not known
	healthLine   func() string   // returns its line in health checks; nil for none
	close        func() error    // may be called after the last command
	failed       <-chan struct{} // closed when the store cannot go on; nil if that cannot happen
	err          func() error    // returns why it failed, once failed is closed
}

// wantStore describes the values of --store.
const wantStore = "memory, disk:DIR, redis://HOST, rediss://HOST or etcd://HOST,HOST"

// checkStore returns what is wrong with a value of --store, or "". It opens no store and connects to none.
func checkStore(store string) (fault string) {
	kind, rest, _ := strings.Cut(store, ":")
	// Also for a folder that cannot be read, the error is left to opening: it may be mounted by then.
	switch {
	case store == "memory":
		return ""
	case kind == "disk" && rest != "":
		// A directory that does not exist is made when the store is opened.
		if info, err := os.Stat(rest); err == nil && !info.IsDir() {
			return "is " + store + ", which is no directory"
		}
		return ""
	case kind == "disk":
		return "is disk: without a directory, want disk:DIR"
	case isShared(kind):
		if err := checkShared(store); err != nil {
			return "is no address: " + err.Error()
		}
		return ""
	}
	return fmt.Sprintf("is %q, want %s", withoutPassword(store), wantStore)
}

// A storeOpener opens the store that the settings name.
type storeOpener struct {
	*settings
	rules   config.Rules
	servers int // how many share the store; 0 when the settings do not say
	memory  *weight.Total
	metrics *prometheus.Registry
	log     *slog.Logger
}

// openStore opens the store. The settings have been checked before.
func (o *storeOpener) openStore(ctx context.Context) (*openedStore, error) {
	kind, rest, _ := strings.Cut(o.store, ":")
	switch {
	case isShared(kind):
		return o.openSharedStore(ctx)
	case kind == "disk":
		ignoreFileLimit() // so that a full file is an error of the store, and not the end of the process
		store, err := disk.Open(rest, disk.Config{
			Names: o.maxNames, Holders: o.maxHolders, Memory: o.memory, Log: o.log,
		})
		if err != nil {
			return nil, err
		}
		registerDiskMetrics(o.metrics, store)
		return &openedStore{
			Store: store, logName: o.store, countNames: store.Len, countHolders: store.Holders,
			close: store.Close, failed: store.Failed(), err: store.Err,
		}, nil
	default: // memory
		store := memory.New(memory.Config{Names: o.maxNames, Holders: o.maxHolders, Memory: o.memory})
		return &openedStore{
			Store: store, logName: o.store, countNames: store.Len, countHolders: store.Holders,
			close: func() error { return nil },
		}, nil
	}
}

// watchFailure waits until the store cannot go on, and returns why, or until ctx ends. For a store that does
// not fail, receiving from the nil channel blocks forever, and only ctx ends it.
func (s *openedStore) watchFailure(ctx context.Context) error {
	select {
	case <-s.failed:
		return s.err()
	case <-ctx.Done():
		return nil
	}
}
