package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/config"
	"github.com/gatehousehq/gatehouse/internal/weight"
	"github.com/gatehousehq/gatehouse/store/disk"
	"github.com/gatehousehq/gatehouse/store/memory"
	"github.com/prometheus/client_golang/prometheus"
)

// A keeper is where state is kept, and what the server needs to know of it.
type keeper struct {
	gate.Store
	about  string           // what it is called in logs: no password is in it
	first  gatehouse.Ticket // of this server's
	names  func() int       // how many are kept
	holds  func() int       // how many holders there are; nil when that is not known
	health func() string    // a line for operators; nil when there is nothing to tell
	close  func() error     // after the last command
	failed <-chan struct{}  // closed when the store cannot go on; nil when that does not happen
	err    func() error     // why it failed
}

// wantStore says which stores there are.
const wantStore = "memory, disk:DIR, redis://HOST, rediss://HOST or etcd://HOST,HOST"

// checkStore says what is wrong with a value of --store, or nothing. It asks no store.
func checkStore(store string) (fault string) {
	kind, rest, _ := strings.Cut(store, ":")
	switch {
	case store == "memory":
		return ""
	case kind == "disk" && rest != "":
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

// An opening is what a store is opened with.
type opening struct {
	*settings
	rules   config.Rules
	servers int // that share it; 0 when nobody has said
	memory  *weight.Total
	figures *prometheus.Registry
	log     *slog.Logger
}

// open opens the store that the settings, which were checked, name.
func (o *opening) open(ctx context.Context) (*keeper, error) {
	kind, rest, _ := strings.Cut(o.store, ":")
	switch {
	case isShared(kind):
		return o.openShared(ctx)
	case kind == "disk":
		ignoreFileLimit()
		store, err := disk.Open(rest, disk.Config{
			Names: o.maxNames, Holders: o.maxHolders, Memory: o.memory, Log: o.log,
		})
		if err != nil {
			return nil, err
		}
		registerDisk(o.figures, store)
		return &keeper{
			Store: store, about: o.store, names: store.Len, holds: store.Holders, close: store.Close,
			failed: store.Failed(), err: store.Err,
		}, nil
	default:
		store := memory.New(memory.Config{Names: o.maxNames, Holders: o.maxHolders, Memory: o.memory})
		return &keeper{
			Store: store, about: o.store, names: store.Len, holds: store.Holders,
			close: func() error { return nil },
		}, nil
	}
}

// watch ends with an error when the store cannot go on.
func (k *keeper) watch(ctx context.Context) error {
	select {
	case <-k.failed:
		return k.err()
	case <-ctx.Done():
		return nil
	}
}
