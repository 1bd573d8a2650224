package election

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// awaitChange returns nil when the key has changed since it was seen, and an error when it cannot be watched
// any more. It calls alive at each sign that etcd would still report a change.
//
// A connection to a member that hangs, or to a machine that is gone, looks like a quiet one. So the watch is
// asked for a sign of life, and given up when none comes: the next watch goes to another member.
func (e *Election) awaitChange(ctx context.Context, seen keyState, alive func()) error {
	ctx, cancel := context.WithCancelCause(clientv3.WithRequireLeader(ctx))
	defer cancel(nil)
	beat := min(max(e.ttl/renewalsPerTTL, minHeartbeat), maxHeartbeat)
	silent := fmt.Errorf("watching the key: etcd gave no sign of life for %v", beat)
	opening := time.AfterFunc(beat, func() { cancel(silent) }) // Watch itself blocks until the member answers
	// From the revision that was seen, not the one after it: a watch of a future revision gets no sign of
	// life until something is written.
	changes := e.client.Watch(ctx, e.key, clientv3.WithRev(seen.revision), clientv3.WithCreatedNotify())
	opening.Stop()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	asked := true // WithCreatedNotify asks for the first sign
	for {
		select {
		case response, open := <-changes:
			// The order matters: when ctx has ended the client closes the channel, and an event may come
			// together with an error.
			switch {
			case ctx.Err() != nil:
				return context.Cause(ctx)
			case slices.ContainsFunc(response.Events, seen.isBefore):
				return nil
			case response.Err() != nil:
				return fmt.Errorf("watching the key: %w", response.Err())
			case !open:
				return errors.New("watching the key: etcd ended the watch")
			}
			asked = false
			alive()
		case <-ticker.C:
			// A whole heartbeat has passed since the request, without any message.
			if asked {
				return silent
			}
			asked = true
			if e.askProgress(ctx, beat) != nil {
				return silent
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// askProgress asks for a sign of life. The client accepts the request only while it has a connection.
func (e *Election) askProgress(ctx context.Context, within time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return e.client.RequestProgress(ctx)
}
