//go:build linux || darwin

package election

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"

	"github.com/gatehousehq/gatehouse/internal/etcd"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// These show what is wrong with the elections and locks that etcd's client brings, in the version that
// go.mod names. When one of them fails, that has been mended: see docs/decisions/0012-election.md.

// session is theirs, on a client of its own.
func session(t *testing.T, url string, ttl int, options ...grpc.DialOption) *concurrency.Session {
	t.Helper()
	client, _, _, err := etcd.Open(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	s, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.Close() // it may be gone
		_ = client.Close()
	})
	return s
}

// waiting waits until so many candidates or owners have a key below the prefix.
func waiting(t *testing.T, client *clientv3.Client, prefix string, keys int64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	changes := client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	for range changes {
		response, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			t.Fatal(err)
		}
		if response.Count == keys {
			return
		}
	}
	t.Fatalf("there are not %d keys below %s after %v", keys, prefix, patience)
}

// A lock that is unlocked twice, because the first answer was lost, deletes the key of who has it now.
func TestTheirLockIsTakenAwayByRepeatedUnlock(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	s := session(t, cluster.URL("/lock"), 60)
	other := session(t, cluster.URL("/lock"), 60)
	client := cluster.Client(t)
	first := concurrency.NewMutex(s, "/lock")
	if err := first.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	// This is what Unlock asks for. Its answer is lost.
	if _, err := client.Delete(t.Context(), first.Key()); err != nil {
		t.Fatal(err)
	}
	second := concurrency.NewMutex(s, "/lock")
	if err := second.Lock(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatalf("Unlock for the second time = %v; it is mended", err)
	}
	third := concurrency.NewMutex(other, "/lock")
	if err := third.TryLock(t.Context()); err != nil {
		t.Errorf("TryLock of another = %v; it is mended: the second owner still has it", err)
	}
}

// A resignation that is repeated after its answer was lost takes nothing: it asks for the key's revision.
// But one whose request was lost cannot be repeated: it says that all is well, and nobody can follow.
func TestTheirResignationCannotBeRepeated(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	var broken atomic.Bool
	s := session(t, cluster.URL("/e"), 60, onCall(txnCall, func(_ context.Context, call func() error) error {
		if broken.Load() {
			return lost()
		}
		return call()
	}))
	e := concurrency.NewElection(s, "/e")
	if err := e.Campaign(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	if err := e.Resign(t.Context()); err == nil {
		t.Fatal("Resign with a lost request = nil, want an error to begin with")
	}
	broken.Store(false)
	if err := e.Resign(t.Context()); err != nil {
		t.Errorf("Resign for the second time = %v; it is mended: it says that it did not work", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	other := concurrency.NewElection(session(t, cluster.URL("/e"), 60), "/e")
	if err := other.Campaign(ctx, "b"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Campaign after the resignation = %v; it is mended: the key is gone", err)
	}
}

// A candidate whose lease ends while it waits is told that it has won, without a key; so are others.
func TestTheirElectionHasTwoMasters(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client, url := cluster.Client(t), cluster.URL("/e")
	a, b, c := session(t, url, 60), session(t, url, 60), session(t, url, 60)
	first := concurrency.NewElection(a, "/e")
	if err := first.Campaign(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	won := make(chan error, 2)
	go func() { won <- concurrency.NewElection(b, "/e").Campaign(t.Context(), "b") }()
	waiting(t, client, "/e/", 2)
	if _, err := client.Revoke(t.Context(), b.Lease()); err != nil { // as etcd does, when b was away
		t.Fatal(err)
	}
	go func() { won <- concurrency.NewElection(c, "/e").Campaign(t.Context(), "c") }()
	waiting(t, client, "/e/", 2)
	if err := first.Resign(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-won; err != nil {
			t.Errorf("Campaign = %v; it is mended: who has no key does not win", err)
		}
	}
}

// A session counts its lease from when an answer came, and looks once a second. Others win before it is told.
func TestTheirSessionEndsLate(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	for range 5 { // on a busy machine the second may hear late that it has won
		if endsLate(t, cluster.URL("/e")) {
			return
		}
	}
	t.Error("each time the session of the first master has ended when the second wins; it is mended")
}

// endsLate is whether a second master has won while the first does not know that its session is over.
func endsLate(t *testing.T, url string) bool {
	t.Helper()
	s := session(t, url, 2, onlyFirst(), answersLate(t, 1500*time.Millisecond))
	if err := concurrency.NewElection(s, "/e").Campaign(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	other := concurrency.NewElection(session(t, url, 60), "/e")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := other.Campaign(ctx, "b"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	default:
		return true
	}
	if err := other.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	return false
}

// The same fault, and ours.
func TestOursEndsBeforeAnotherWins(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	url := cluster.URL("/k?ttl=5s")
	a := enter(t, url, "a", onlyFirst(), answersLate(t, 1500*time.Millisecond))
	a.leads(t)
	b := enter(t, url, "b")
	b.leads(t)
	a.follows(t, "b")
	apart(t, a, b)
}
