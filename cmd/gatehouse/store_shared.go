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
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/etcd"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
	"github.com/gatehousehq/gatehouse/store/lazy"
	"github.com/gatehousehq/gatehouse/store/outage"
)

// isShared reports whether a store of this kind is one that servers share.
func isShared(kind string) bool { return kind == "redis" || kind == "rediss" || kind == "etcd" }

// checkShared says what is wrong with the address of a store that servers share. It asks nobody.
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

// withoutPassword is an address as it may be shown: what may be a password is left out, also when it is none.
func withoutPassword(address string) string {
	scheme, rest, ok := strings.Cut(address, "://")
	if !ok {
		scheme, rest = "", address
	} else {
		scheme += "://"
	}
	host, _, _ := strings.Cut(rest, "?")
	switch at := strings.LastIndexByte(rest, '@'); {
	case at >= len(host): // it may end a password with a ? in it, or be in one that is a parameter
		return scheme + "…"
	case at >= 0:
		host = "…@" + rest[at+1:len(host)]
	}
	return scheme + host
}

// openBackend opens the store that servers share. end closes it.
func openBackend(address string) (backend cas.Backend, end func() error, err error) {
	if strings.HasPrefix(address, "etcd:") {
		cluster, err := etcd.Open(address)
		if err != nil {
			return nil, nil, err
		}
		return cluster, cluster.Close, nil
	}
	server, err := redis.Open(address)
	if err != nil {
		return nil, nil, err
	}
	return server, func() error { server.Close(); return nil }, nil
}

// openShared opens a store that servers share: the backend, what makes it a store, a breaker in front of
// that, what counts in memory if a rule says so, and what answers when nobody can be asked.
func (o *opening) openShared(ctx context.Context) (*keeper, error) {
	backend, closeBackend, err := openBackend(o.store)
	if err != nil {
		return nil, err
	}
	server := max(1, rand.Uint32())
	kind, _, _ := strings.Cut(o.store, ":")
	about := withoutPassword(o.store)
	losses := &lossLog{log: o.log, store: about}
	shared := cas.New(backend, cas.Config{
		Server: server, Timeout: o.storeTimeout, Names: o.maxNames,
		Vanished: func(key gatehouse.Key) { losses.vanished(key.String()) }, ClockSet: losses.clockSet,
	})
	eviction := newEvictionCheck(o.log, about, backend)
	breaker := outage.NewBreaker(shared, outage.BreakerConfig{
		Name: kind, Timeout: o.storeTimeout, Metrics: o.figures,
		Changed: func(err error) {
			tellOutage(o.log, about, err)
			if err == nil {
				eviction.start(ctx)
			}
		},
	})
	var lasting outage.RemoteStore = breaker
	closeLazy := func() {}
	if o.rules.Lazy() {
		store := lazy.New(breaker, lazy.Config{Rule: func(key gatehouse.Key) lazy.SyncRule {
			rule := o.rules.Find(key)
			return lazy.SyncRule{Interval: rule.Lazy, Chunk: rule.Chunk}
		}})
		lasting, closeLazy = store, store.Close
	}
	k := &keeper{
		Store: outage.NewFallback(lasting, outage.FallbackConfig{
			Name: kind, Servers: o.servers, Names: o.maxNames, Metrics: o.figures, Latest: shared.Latest,
			Rule: func(key gatehouse.Key) outage.FallbackRule { return o.rules.Find(key).OnUnreachable },
		}),
		about: about, first: cas.FirstTicket(server), names: shared.Len,
		health: func() string { return storeHealth(kind, breaker) + eviction.health(kind) },
		close: func() error {
			closeLazy()
			breaker.Close()
			eviction.close()
			shared.Close()
			return closeBackend()
		},
	}
	registerSwaps(o.figures, kind, shared)
	if err := greet(ctx, backend, breaker); err != nil {
		return nil, errors.Join(err, k.close())
	}
	eviction.run(ctx)
	return k, nil
}

// A store has so many times so long for its first answer, which has connections and logins before it. That it
// is not there is known quickly; a busy machine alone takes longer.
const (
	greetings    = 3
	greetTimeout = 3 * time.Second
	quickly      = 500 * time.Millisecond
)

// greet asks the store, so that a wrong password or certificate is found out before anybody is served. That
// it does not answer at present is no such fault, and told by the breaker.
func greet(ctx context.Context, backend cas.Backend, breaker *outage.Breaker) error {
	for range greetings {
		began := time.Now()
		err := ping(ctx, backend)
		if err != nil && lasting(err) {
			return fmt.Errorf("--store: %w", err)
		}
		if err == nil || time.Since(began) < quickly {
			break
		}
	}
	key := gatehouse.Key{Kind: gatehouse.Counter, Name: "gatehouse/probe/0"}
	turns := []control.Turn{{Command: &gatehouse.Command{Op: gatehouse.OpStats}}}
	if err := breaker.Apply(ctx, key, turns); err != nil && lasting(err) {
		return fmt.Errorf("--store: %w", cmp.Or(errors.Unwrap(err), err))
	}
	return nil
}

// ping asks a backend that can be asked as such.
func ping(ctx context.Context, backend cas.Backend) error {
	type pinger interface {
		Ping(ctx context.Context) error
	}
	direct, ok := backend.(pinger)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	return direct.Ping(ctx)
}

// lasting reports whether a store fails by what was set here or there, which does not pass: a password, a
// permission, a certificate.
func lasting(err error) bool {
	return errors.Is(err, cas.ErrRefused) ||
		strings.Contains(err.Error(), "tls: ") || strings.Contains(err.Error(), "x509: ")
}

// tellOutage logs that a store has gone or come back.
func tellOutage(log *slog.Logger, store string, err error) {
	if err != nil {
		log.Warn("the store does not answer; commands are answered by the on-unreachable rules until it does",
			"store", store, "error", err)
		return
	}
	log.Info("the store answers again", "store", store)
}

// storeHealth is the line about the store that health checks show.
func storeHealth(kind string, breaker *outage.Breaker) string {
	since, err := breaker.Away()
	if err == nil {
		return "store " + kind + ": reachable\n"
	}
	return fmt.Sprintf("store %s: unreachable for %s\n", kind, time.Since(since).Round(time.Millisecond))
}
