package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/peer"
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
	losses := &lossLog{log: o.log, store: logName, vanished: o.vanished}
	shared := cas.New(backend, cas.Config{
		Server: server, Timeout: o.storeTimeout, Names: o.maxNames,
		Vanished: losses.noteVanished, ClockSet: losses.logClockStep,
	})
	eviction := &evictionCheck{log: o.log, store: logName}
	eviction.reader, _ = backend.(policyReader)
	circuit := breaker.New(shared, breaker.Config{
		Timeout: o.storeTimeout, Observe: registerApplySeconds(o.metrics, kind),
		Changed: func(err error) {
			if err != nil {
				o.log.Warn("the store does not respond; the on-unreachable rules decide until it does",
					"store", logName, "error", err)
				return
			}
			o.log.Info("the store responds again", "store", logName)
			// Another server with another policy may have taken over. In the background: the breaker calls
			// this while commands wait for it.
			eviction.checks.Go(func() { eviction.checkPolicy(ctx) })
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
			eviction.checks.Wait() // they use the backend
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
	direct, ok := backend.(interface {
		Ping(ctx context.Context) error
	})
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

// storeHealthLine returns the line about the store that health checks show.
func storeHealthLine(kind string, circuit *breaker.Breaker) string {
	since, err := circuit.Away()
	if err == nil {
		return "store " + kind + ": reachable\n"
	}
	return fmt.Sprintf("store %s: unreachable for %s\n", kind, time.Since(since).Round(time.Millisecond))
}

// An evictionCheck reads the store's eviction policy and warns of every policy except noeviction: when the
// record of a lock is evicted, the lock can be acquired a second time.
type evictionCheck struct {
	log    *slog.Logger
	store  string                 // for the log
	reader policyReader           // nil for a backend that evicts nothing
	policy atomic.Pointer[string] // nil while the store has not answered
	checks sync.WaitGroup         // in the background
}

// policyReader is a store that may evict records.
type policyReader interface {
	EvictionPolicy(ctx context.Context) (string, error)
}

const unknownPolicy = "unknown"

// checkPolicy reads the policy, and logs a warning if it is dangerous and differs from the one before.
func (c *evictionCheck) checkPolicy(ctx context.Context) {
	if c.reader == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	// With a time of its own: the ctx of the server has none, and the store may be slow just now.
	policy, err := c.reader.EvictionPolicy(ctx)
	if err != nil && !isPermanent(err) {
		return // the next check comes when the store is back
	}
	if err != nil {
		// The store answers but refuses the question. That does not pass, and may hide an eviction.
		policy = unknownPolicy
	}
	before := c.policy.Swap(&policy)
	switch {
	case before != nil && *before == policy: // logged already
	case err != nil:
		c.log.Warn("whether the store evicts is unknown, because its user may not call INFO; "+
			"maxmemory-policy must be noeviction, because an evicted record is a lost hold or limit",
			"store", c.store, "error", err)
	case policy != redis.NoEviction:
		c.log.Warn("the store evicts records when its memory is full, and so loses holds and limits; "+
			"set its maxmemory-policy to noeviction",
			"store", c.store, "maxmemory-policy", policy)
	}
}

// healthLine returns the line that health checks show, or "" while nothing is wrong.
func (c *evictionCheck) healthLine(kind string) string {
	// Before the first answer nothing is known, and the line about the store itself says that it is away.
	policy := c.policy.Load()
	if policy == nil || *policy == redis.NoEviction {
		return ""
	}
	return "store " + kind + ": maxmemory-policy " + *policy + ", want " + redis.NoEviction + "\n"
}

// A lossLog logs lost records and steps of the store's clock. A restarted store may lose thousands of records
// at once, and a store whose nodes have different clocks looks like one clock that is set with every answer.
// So it writes at most one line of each sort within lossInterval, with the number since the line before.
type lossLog struct {
	log      *slog.Logger
	store    string
	vanished func(gatehouse.Key) // counts a lost record; nil for nothing

	losses, sets peer.RareLine
}

// lossInterval is the least time between two lines of one sort.
const lossInterval = 10 * time.Second

// logVanished logs a record that was gone before it expired.
func (l *lossLog) logVanished(key string) {
	l.logCounted(&l.losses, "the store has lost records before their time: it evicts, was restarted without "+
		"them, failed over to a replica without them, or they were deleted by hand; what they held may be "+
		"granted again", "last", key, "records")
}

// noteVanished counts and logs a record that was gone before it expired.
func (l *lossLog) noteVanished(key gatehouse.Key) {
	if l.vanished != nil {
		l.vanished(key)
	}
	l.logVanished(key.String())
}

// logClockStep logs that the store's clock was set.
func (l *lossLog) logClockStep(by time.Duration) {
	l.logCounted(&l.sets, "the store's clock was set, or another store took over whose clock differs, or "+
		"this machine slept: forward ends holds and limits early, back lengthens them",
		"step", by.Round(time.Millisecond).String(), "steps")
}

// logCounted counts what happened, and logs it unless there was a line lately. fields are those of the line,
// and the name of the number at their end.
func (l *lossLog) logCounted(line *peer.RareLine, text string, fields ...any) {
	silent, ok := line.MayLog(time.Now(), lossInterval)
	if ok {
		l.log.Warn(text, append(append([]any{"store", l.store}, fields...), silent+1)...)
	}
}
