package main

import (
	"context"
	"math"
	"sync"
	"time"

	upstream "github.com/RussellLuo/slidingwindow"
	"github.com/gatehousehq/gatehouse/limiter"
	"github.com/sethvargo/go-limiter/memorystore"
	"github.com/throttled/throttled/v2"
	"github.com/throttled/throttled/v2/store/memstore"
	"go.uber.org/ratelimit"
	"golang.org/x/time/rate"
)

// A contestant is a library that limits rates in one process. Its limits are such that it lets all
// through, at once and without sleeping, and panics when it does not.
type contestant struct {
	name string
	// one returns what takes one under one limit.
	one func() func()
	// many returns what takes one under the limit of a key.
	many func(keys int) func(key string)
}

// contestants are ours, and the others.
func contestants() []contestant {
	return append([]contestant{
		{"limiter", newDirect, newKeyed},
		alone("x/time/rate", newTimeRate, func(l *rate.Limiter) bool { return l.Allow() }),
		// uber-go/ratelimit never refuses, but sleeps: at one per nanosecond it has no time to.
		alone("uber-go/ratelimit", newUber, func(l ratelimit.Limiter) bool { return !l.Take().IsZero() }),
		keyed("throttled", newThrottled),
		keyed("go-limiter", newGoLimiter),
		alone("RussellLuo/slidingwindow", newUpstream, func(l *upstream.Limiter) bool { return l.Allow() }),
	}, heavy()...)
}

// alone is a library whose limiter is one limit. It gets keys as one gives them to such a library: by a
// map with a lock that many may read under.
func alone[L any](name string, makeOne func() L, allow func(L) bool) contestant {
	one := func() func() {
		l := makeOne()
		return func() { let(name, allow(l)) }
	}
	many := func(int) func(key string) {
		var mu sync.RWMutex
		all := make(map[string]L)
		return func(key string) {
			// A read lock first: once the keys are there, callers do not exclude one another, which is the
			// best case of such a map.
			mu.RLock()
			l, ok := all[key]
			mu.RUnlock()
			if !ok {
				mu.Lock()
				l, ok = all[key]
				if !ok {
					l = makeOne()
					all[key] = l
				}
				mu.Unlock()
			}
			let(name, allow(l))
		}
	}
	return contestant{name, one, many}
}

// keyed is a library whose limiter has keys.
func keyed(name string, many func(keys int) func(key string)) contestant {
	one := func() func() {
		take := many(1)
		return func() { take("hot") }
	}
	return contestant{name, one, many}
}

// must is for what cannot fail with arguments that are constant.
func must[T any](x T, err error) T {
	if err != nil {
		panic(err)
	}
	return x
}

// let panics when a contestant did not let one through.
func let(name string, ok bool) {
	if !ok {
		panic(name + " refused, want all let through")
	}
}

func newDirect() func() {
	l := must(limiter.New(limiter.Rate{Size: 1e9, Interval: time.Second, Burst: 1e12}))
	return func() { let("limiter", l.Allow()) }
}

func newKeyed(keys int) func(key string) {
	k := must(limiter.NewKeyed(limiter.Rate{Size: 1, Interval: time.Hour, Burst: 1000}, keys))
	return func(key string) { let("limiter", k.Allow(key)) }
}

func newTimeRate() *rate.Limiter { return rate.NewLimiter(1e9, math.MaxInt) }

func newUber() ratelimit.Limiter { return ratelimit.New(1e9) }

// throttled gives up with an error after losing ten races for one key; that counts as an answer.
func newThrottled(int) func(key string) {
	store := must(memstore.NewCtx(0))
	quota := throttled.RateQuota{MaxRate: throttled.PerSec(1e9), MaxBurst: 1e9}
	l := must(throttled.NewGCRARateLimiterCtx(store, quota))
	return func(key string) {
		limited, _, err := l.RateLimitCtx(context.Background(), key, 1)
		// An error is accepted: only a refusal would mean that the limit was too low.
		let("throttled", !limited || err != nil)
	}
}

func newGoLimiter(int) func(key string) {
	store := must(memorystore.New(&memorystore.Config{Tokens: 1e15, Interval: time.Hour}))
	return func(key string) {
		_, _, _, ok, err := store.Take(context.Background(), key)
		let("go-limiter", ok && err == nil)
	}
}

func newUpstream() *upstream.Limiter {
	l, _ := upstream.NewLimiter(time.Hour, math.MaxInt64/2, func() (upstream.Window, upstream.StopFunc) {
		return upstream.NewLocalWindow()
	})
	return l
}
