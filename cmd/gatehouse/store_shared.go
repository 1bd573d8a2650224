package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/store/breaker"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/etcd"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
	"github.com/gatehousehq/gatehouse/store/fallback"
	"github.com/gatehousehq/gatehouse/store/lazy"
)

// isShared reports whether several servers can share a store of this kind.
func isShared(kind string) bool { return kind == "redis" || kind == "rediss" || kind == "etcd" }

// checkShared returns what is wrong with the address of a store that servers share. It does not connect.
func checkShared(address string) error {
	if strings.HasPrefix(address, "etcd:") {
		return etcd.Check(address)
	}
	backend, err := redis.Open(address)
	if err == nil {
		backend.Close()
	}
	return err
}

// withoutPassword returns an address as it may be shown. It leaves out everything that could be a password,
// even when it is none.
func withoutPassword(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	} else {
		scheme += "://"
	}
	// It does not use url.Parse: an address that is wrong is shown too, in the error, and may have a password
	// with characters that no URL has.
	host, _, _ := strings.Cut(rest, "?")
	switch at := strings.LastIndexByte(rest, '@'); {
	case at >= len(host):
		// The @ is behind a question mark. Either the password has that mark in it, or a parameter has the @.
		return scheme + "…"
	case at >= 0:
		host = "…@" + rest[at+1:len(host)]
	}
	return scheme + host
}

// openBackend opens the backend of a shared store. end closes it.
func openBackend(address string) (backend cas.Backend, end func() error, err error) {
	if strings.HasPrefix(address, "etcd:") {
		cluster, err := etcd.Open(address)
		if err != nil {
			return nil, nil, err
		}
		return cluster, cluster.Close, nil
	}
	// isShared knows three schemes, so that what is not etcd is Redis.
	server, err := redis.Open(address)
	if err != nil {
		return nil, nil, err
	}
	return server, func() error { server.Close(); return nil }, nil
}

// openSharedStore opens a store that servers share. It is a chain, of which each part uses the next:
//
//	fallback.Store   responds by the on-unreachable rules while the breaker is open
//	lazy.Store       counts in memory and stores now and then; only if a rule says so
//	breaker.Breaker  stops calling a store that does not respond
//	cas.Store        makes a store of records that are compared and swapped
//	cas.Backend      Redis or etcd
func (o *storeOpener) openSharedStore(ctx context.Context) (*openedStore, error) {
	backend, closeBackend, err := openBackend(o.store)
	if err != nil {
		return nil, err
	}
	// A random number names this server among those that share the store. 0 stands for no server.
	server := max(1, rand.Uint32())
	kind, _, _ := strings.Cut(o.store, ":")
	logName := withoutPassword(o.store)
	losses := &lossLog{log: o.log, store: logName}
	shared := cas.New(backend, cas.Config{
		Server: server, Timeout: o.storeTimeout, Names: o.maxNames,
		Vanished: func(key gatehouse.Key) { losses.logVanished(key.String()) }, ClockSet: losses.logClockStep,
	})
	eviction := newEvictionCheck(o.log, logName, backend)
	circuit := breaker.New(shared, breaker.Config{
		Timeout: o.storeTimeout, Observe: registerApplySeconds(o.metrics, kind),
		Changed: func(err error) {
			logOutage(o.log, logName, err)
			if err == nil {
				// In the background: the breaker calls this while commands wait for it.
				eviction.startCheck(ctx)
			}
		},
	})
	// Without a rule that asks for it, lazy.Store is left out, as it would only pass commands on.
	var remote fallback.RemoteStore = circuit
	closeLazy := func() {}
	if o.rules.Lazy() {
		store := lazy.New(circuit, lazy.Config{Rule: func(key gatehouse.Key) lazy.SyncRule {
			rule := o.rules.Find(key)
			return lazy.SyncRule{Interval: rule.Lazy, Chunk: rule.Chunk}
		}})
		remote = store
		closeLazy = store.Close
	}
	opened := &openedStore{
		Store: fallback.New(remote, fallback.Config{
			Servers: o.servers, Names: o.maxNames, Latest: shared.Latest,
			Count: registerRuleCommands(o.metrics, kind),
			Rule:  func(key gatehouse.Key) fallback.Answer { return o.rules.Find(key).OnUnreachable },
		}),
		logName: logName, firstTicket: cas.FirstTicket(server), countNames: shared.Len,
		healthLine: func() string { return storeHealthLine(kind, circuit) + eviction.healthLine(kind) },
		// From the front to the back: closing the lazy store writes down what it counted, for which all
		// that is behind it must still be open.
		close: func() error {
			closeLazy()
			circuit.Close()
			eviction.awaitChecks()
			shared.Close()
			return closeBackend()
		},
	}
	registerSharedMetrics(o.metrics, kind, shared)
	registerReachable(o.metrics, kind, circuit)
	if err := probeStore(ctx, backend, circuit); err != nil {
		return nil, errors.Join(err, opened.close())
	}
	eviction.checkPolicy(ctx) // the first time at once, so that the warning is among the first lines
	return opened, nil
}

// How long the first answer of a store may take. It includes connecting and logging in, which a busy machine
// delays. A store that is not there fails within quickFailure, and is not tried again.
const (
	probeAttempts = 3
	probeTimeout  = 3 * time.Second
	quickFailure  = 500 * time.Millisecond
)

// probeStore sends the store a first command, so that a wrong password or certificate ends the server before
// it serves clients. A store that does not answer at present is no error: the breaker reports it, and the
// server starts without it.
func probeStore(ctx context.Context, backend cas.Backend, circuit *breaker.Breaker) error {
	for range probeAttempts {
		began := time.Now()
		err := pingBackend(ctx, backend)
		if err != nil && isPermanent(err) {
			return fmt.Errorf("--store: %w", err)
		}
		// A slow failure may be the connection being set up, and only that is worth another try.
		if err == nil || time.Since(began) < quickFailure {
			break
		}
	}
	// Through the breaker, so that it knows from the start whether the store answers. Reading statistics
	// changes nothing, but needs all the rights that reading a record needs.
	key := gatehouse.Key{Kind: gatehouse.Counter, Name: "gatehouse/probe/0"}
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	if err := (&control.Change{Key: key, Turns: turns}).ApplyTo(circuit); err != nil && isPermanent(err) {
		return fmt.Errorf("--store: %w", cmp.Or(errors.Unwrap(err), err))
	}
	return nil
}

// pingBackend pings a backend that supports it, and returns nil for others.
func pingBackend(ctx context.Context, backend cas.Backend) error {
	type pinger interface {
		Ping(ctx context.Context) error
	}
	direct, ok := backend.(pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return direct.Ping(ctx)
}

// isPermanent reports whether an error comes from the settings of the server or the store, and so does not
// pass by itself: a password, a permission, a certificate.
func isPermanent(err error) bool {
	// Errors of TLS are known by their texts: the clients of Redis and etcd have no types for them in common.
	return errors.Is(err, cas.ErrRefused) ||
		strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}

// logOutage logs that a store has become unreachable, because of err, or answers again, when err is nil.
func logOutage(log *slog.Logger, store string, err error) {
	if err != nil {
		log.Warn("the store does not respond; the on-unreachable rules decide until it does",
			"store", store, "error", err)
		return
	}
	log.Info("the store responds again", "store", store)
}

// storeHealthLine returns the line about the store that health checks show.
func storeHealthLine(kind string, circuit *breaker.Breaker) string {
	since, err := circuit.Away()
	if err == nil {
		return "store " + kind + ": reachable\n"
	}
	return fmt.Sprintf("store %s: unreachable for %s\n", kind, time.Since(since).Round(time.Millisecond))
}
