package http

import (
	"context"
	"testing"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/store/memory"
)

// A longStore is a memory store whose lists end with their context alone.
type longStore struct {
	*memory.Store
	begun, ended chan struct{}
}

func (s *longStore) Range(
	ctx context.Context, _ gatehouse.Kind, _ string, _ func(gatehouse.Key, control.State) bool,
) error {
	s.begun <- struct{}{}
	<-ctx.Done()
	s.ended <- struct{}{}
	return ctx.Err()
}

// A list ends when its client leaves, one that has not begun too, and the next one has the turn.
func TestListEndsWithItsClient(t *testing.T) {
	store := &longStore{memory.New(memory.Config{}), make(chan struct{}), make(chan struct{})}
	r := newRigOn(t, Config{}, store)
	first, second, third := r.dial(t), r.dial(t), r.dial(t)
	first.send("/v1/lock")
	<-store.begun
	second.send("/v1/lock") // has to wait for its turn
	third.send("/v1/lock/x/acquire?key=k")
	third.want(200, "k") // and keeps no other waiting
	_ = second.Close()
	await.True(t, "who waits for a turn and leaves is gone", func() bool { return r.open.Load() == 2 })
	_ = first.Close()
	<-store.ended
	third.send("/v1/lock")
	<-store.begun
	_ = third.Close()
	<-store.ended
	await.True(t, "all are gone", func() bool { return r.open.Load() == 0 })
}
