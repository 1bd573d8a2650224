package etcd

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/backoff"
)

const (
	// silenceLimit is the longest that a watch may be silent before it is asked for a sign of life, and how
	// long it may take for it. A connection to a member that hangs is silent too.
	silenceLimit = 2 * time.Second
	// firstPause and lastPause are between two tries to watch.
	firstPause, lastPause = 50 * time.Millisecond, 2 * time.Second
)

// A listener watches all keys for one server.
type listener struct {
	client *clientv3.Client
	keys   keys
	server uint32
	wake   func(gatehouse.Key)
}

// Listen implements cas.Backend by one watch of all keys.
func (b *Backend) Listen(server uint32, wake func(key gatehouse.Key)) (stop func()) {
	l := &listener{client: b.client, keys: b.keys, server: server, wake: wake}
	return backoff.Repeat(firstPause, lastPause, l.watchOnce)
}

// watchOnce hears of changes until the watch ends or is silent for too long. It reports whether there was
// one.
func (l *listener) watchOnce(ctx context.Context) (began bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	opening := time.AfterFunc(silenceLimit, cancel) // Watch waits for the member's answer
	changes := l.client.Watch(ctx, string(l.keys), clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	opening.Stop()
	ticker := time.NewTicker(silenceLimit)
	defer ticker.Stop()
	asked := true // it answers that it watches
	for {
		select {
		case response, open := <-changes:
			if !open || response.Err() != nil {
				return began
			}
			if response.Created { // what came before was missed
				began = true
				l.wake(gatehouse.Key{})
			}
			// Anything that arrives is a sign of life.
			asked = false
			l.handleEvents(response.Events)
		// Silence may mean that nothing changes, or that the member hangs: it is asked.
		case <-ticker.C:
			// The last question was not answered within one tick, so the connection is dead.
			if asked || !l.requestProgress(ctx) {
				return began
			}
			asked = true
		case <-ctx.Done():
			return began
		}
	}
}

// requestProgress asks for a sign of life. The client takes the question only while it has a connection.
func (l *listener) requestProgress(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, silenceLimit)
	defer cancel()
	return l.client.RequestProgress(ctx) == nil
}

// handleEvents tells of events, those of one change of etcd together.
func (l *listener) handleEvents(events []*clientv3.Event) {
	for len(events) > 0 {
		n := 1
		// Events of one revision belong to one transaction: whether a hold ended by itself shows only when
		// they are seen together.
		for n < len(events) && events[n].Kv.ModRevision == events[0].Kv.ModRevision {
			n++
		}
		l.handleChange(events[:n])
		events = events[n:]
	}
}

// handleChange wakes the lines that a change of etcd is about. A record that was written says itself whom it
// concerns, also for the holds that ended with it. A hold that ended without its record being written has
// been ended by its lease; that concerns everybody.
func (l *listener) handleChange(events []*clientv3.Event) {
	written := map[string]bool{} // what the keys of their holds begin with
	// Records first: a hold that ends together with a write of its record is no news of its own.
	for _, e := range events {
		key, isHold, ok := l.keys.parseKey(string(e.Kv.Key))
		if !ok || isHold {
			continue
		}
		written[l.keys.holdPrefix(key)] = true
		if !e.IsCreate() && !e.IsModify() || wakesServer(e.Kv.Value, l.server) {
			l.wake(key)
		}
	}
	for _, e := range events {
		text := string(e.Kv.Key)
		key, isHold, ok := l.keys.parseKey(text)
		if ok && isHold && e.Type == clientv3.EventTypeDelete &&
			!written[text[:strings.LastIndexByte(text, '/')+1]] {
			l.wake(key)
		}
	}
}
