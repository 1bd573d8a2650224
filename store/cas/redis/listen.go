package redis

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/backoff"
	"github.com/redis/rueidis"
)

// How long a lost subscription is left alone before it is made again: at first, and at most.
const (
	subscribeSoon = 20 * time.Millisecond
	subscribeLate = time.Second
)

// Listen implements cas.Backend: it subscribes to the server's channel, on a connection of its own.
func (b *Backend) Listen(server uint32, wake func(key gatehouse.Key)) (stop func()) {
	return backoff.Repeat(subscribeSoon, subscribeLate, func(ctx context.Context) bool {
		return b.subscribeOnce(ctx, b.names.wakeChannel(server), wake)
	})
}

// Absent tells whether a server listens by how many have heard a message to it. One without text says nothing
// to a server. A node of a cluster counts only those that listen at it.
func (b *Backend) Absent(ctx context.Context, asking, server uint32) bool {
	l := b.link.Load()
	if l == nil || l.client.Mode() == rueidis.ClientModeCluster {
		return false
	}
	heard := func(server uint32) (count int64, err error) {
		command := l.client.B().Publish().Channel(b.names.wakeChannel(server)).Message("").Build()
		return l.client.Do(ctx, command).AsInt64()
	}
	if count, err := heard(server); err != nil || count > 0 {
		return false
	}
	// The one that asks is heard, so the count can be relied on.
	count, err := heard(asking)
	return err == nil && count > 0
}

// subscribeOnce listens until the connection is lost or ctx ends, and reports whether it ever listened.
func (b *Backend) subscribeOnce(ctx context.Context, channel string, wake func(gatehouse.Key)) bool {
	l, err := b.currentLink(ctx)
	if err != nil {
		return false
	}
	var heard atomic.Bool
	began := func(s rueidis.PubSubSubscription) {
		if s.Kind == "subscribe" {
			heard.Store(true)
			wake(gatehouse.Key{}) // what was told before has been missed
		}
	}
	told := func(m rueidis.PubSubMessage) {
		if key, ok := b.names.parseKey(m.Message); ok {
			wake(key)
		}
	}
	// The reason of its end is dropped: the next subscription says what is to be known.
	_ = l.client.Dedicated(func(c rueidis.DedicatedClient) error {
		command := c.B().Subscribe().Channel(channel).Build()
		err := c.Receive(rueidis.WithOnSubscriptionHook(ctx, began), command, told)
		// A cancelled subscription leaves its connection in that mode, so it is closed.
		if errors.Is(err, context.Canceled) {
			c.Close()
		}
		return err
	})
	return heard.Load()
}
