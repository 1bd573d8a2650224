package http

import (
	"context"
	"io"
	"testing"
	"time"

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

// Lists that others have asked for before cannot keep one waiting for longer than an answer may take, and a
// delete of many names not at all.
func TestListsInFront(t *testing.T) {
	r := newRig(t, Config{WriteTimeout: 50 * time.Millisecond})
	turn := r.config.Budget.List
	if !turn.Begin(t.Context()) {
		t.Fatal(t.Context().Err())
	}
	defer turn.End()
	c := r.dial(t)
	c.send("/v1/lock")
	c.want(503, "server makes one list at a time, and others came first; try again soon")
	_, _ = io.WriteString(c, "DELETE /v1/lock?prefix=a&confirm=lock HTTP/1.1\r\nHost: localhost\r\n\r\n")
	c.want(200, `{"kind":"lock","deleted":0,"next":""}`)
}
