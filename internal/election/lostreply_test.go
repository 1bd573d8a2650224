//go:build linux || darwin

package election

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// A candidate whose key was written knows it by its lease, though it was never told.
func TestLostAnswerToTheKey(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	client := etcd.Client(t)
	a := enter(t, etcd.URL("/k?ttl=60s"), "a", loses(txnCall, 2, func() {}), loses(grantCall, 1, func() {}))
	began := time.Now()
	a.leads(t)
	if took := time.Since(began); took > 6*stall {
		t.Errorf("it led after %v, want it to recognise its key, and not to wait for its end", took)
	}
	response, err := client.Get(t.Context(), "/k")
	if err != nil || len(response.Kvs) != 1 || response.Kvs[0].Version != 1 {
		t.Errorf("the key is %v, %v, want it written once", response, err)
	}
}

// An end of a mastership that is asked for twice, because the first answer was lost, takes nothing from who
// has won meanwhile.
func TestRepeatedEndTakesNothing(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=20s")
	client := etcd.Client(t)
	var b *candidate
	a := enter(t, url, "a", loses(revokeCall, 1, func() { b.leads(t) }))
	a.leads(t)
	b = enter(t, url, "b")
	b.follows(t, "a")
	a.leave(t)
	s, _ := b.last()
	response, err := client.Get(t.Context(), "/k")
	if err != nil || len(response.Kvs) != 1 || string(response.Kvs[0].Value) != "b" || !s.Leading {
		t.Errorf("b was told %+v and the key is %v, %v, want b to lead on", s.MasterStatus, response, err)
	}
	if n := apart(t, a, b); n != 2 {
		t.Errorf("there were %d masterships, want 2:\n%s%s", n, a, b)
	}
}

// A mastership that cannot be given back is told, and ends by its lease.
func TestEndThatIsNotHeard(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	url := etcd.URL("/k?ttl=6s")
	a := enter(t, url, "a", onCall(revokeCall, func(ctx context.Context, _ func() error) error {
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}))
	a.leads(t)
	b := enter(t, url, "b")
	b.follows(t, "a")
	a.cancel()
	<-a.ended
	if a.err == nil {
		t.Error("Run = nil, want an error that says that the key was not given back")
	}
	b.leads(t)
	apart(t, a, b)
}
