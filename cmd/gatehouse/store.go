package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/store/disk"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A keeper is where state is kept, and what the server needs to know of it.
type keeper struct {
	gate.Store
	names  func() int      // how many are kept
	close  func() error    // after the last command
	failed <-chan struct{} // closed when the store cannot go on; nil when that does not happen
	err    func() error    // why it failed
}

// wantStore says which stores there are.
const wantStore = "memory or disk:DIR"

// checkStore says what is wrong with a value of --store, or nothing.
func checkStore(store string) (fault string) {
	dir, onDisk := strings.CutPrefix(store, "disk:")
	switch {
	case store == "memory":
		return ""
	case onDisk && dir == "":
		return "is disk: without a directory, want disk:DIR"
	case onDisk:
		return ""
	}
	return fmt.Sprintf("is %q, want %s", store, wantStore)
}

// openStore opens the store that the settings, which were checked, name.
func openStore(s *settings, log *slog.Logger) (*keeper, error) {
	kind, rest, _ := strings.Cut(s.store, ":")
	switch kind {
	case "disk":
		ignoreFileLimit()
		store, err := disk.Open(rest, disk.Config{Names: s.maxNames, Log: log})
		if err != nil {
			return nil, err
		}
		return &keeper{
			Store: store, names: store.Len, close: store.Close, failed: store.Failed(), err: store.Err,
		}, nil
	default:
		store := memory.New(memory.Config{Names: s.maxNames})
		return &keeper{Store: store, names: store.Len, close: func() error { return nil }}, nil
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
