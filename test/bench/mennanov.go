//go:build peers

package main

import (
	"context"
	"time"

	"github.com/mennanov/limiters"
)

// heavy are the contestants that bring much else along: this one the clients of AWS, Azure and etcd, which
// take minutes to build. make bench has them.
func heavy() []contestant {
	return []contestant{
		{"mennanov/limiters", alone("", newMennanov, allowMennanov).one, newMennanovRegistry},
	}
}

func newMennanov() *limiters.TokenBucket {
	return limiters.NewTokenBucket(1e15, time.Second, limiters.NewLockNoop(),
		limiters.NewTokenBucketInMemory(), limiters.NewSystemClock(), limiters.NewStdLogger())
}

func allowMennanov(l *limiters.TokenBucket) bool {
	_, err := l.Limit(context.Background())
	return err == nil
}

// mennanov/limiters has a registry of its own.
func newMennanovRegistry(int) func(key string) {
	registry := limiters.NewRegistry()
	return func(key string) {
		// The time to live is long enough that no key expires while it is measured.
		l := registry.GetOrCreate(key, func() any { return newMennanov() }, time.Hour, time.Now())
		let("mennanov/limiters", allowMennanov(l.(*limiters.TokenBucket)))
	}
}
