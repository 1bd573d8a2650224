package redis

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/redis/rueidis"
)

// How long a lost subscription is left alone before it is made again: at first, and at most.
const (
	subscribeSoon = 20 * time.Millisecond
	subscribeLate = time.Second
)

// Listen implements cas.Backend: it subscribes to the server's channel, on a connection of its own.
func (b *Backend) Listen(server uint32, wake func(key gatehouse.Key)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.keepSubscribed(ctx, b.names.wakeChannel(server), wake)
	}()
	return func() {
		cancel()
		<-done
	}
}

// keepSubscribed subscribes again until ctx ends.
func (b *Backend) keepSubscribed(ctx context.Context, channel string, wake func(gatehouse.Key)) {
	pause := subscribeSoon
	for ctx.Err() == nil {
		heard := b.subscribeOnce(ctx, channel, wake)
		pause = min(2*pause, subscribeLate)
		if heard {
			pause = subscribeSoon
		}
		select {
		// A random part keeps the servers from coming back all at once after Redis has restarted.
		case <-time.After(pause/2 + rand.N(pause/2)):
		case <-ctx.Done():
		}
	}
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
