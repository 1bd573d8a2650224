//go:build linux || darwin

package etcd

import (
	"context"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
)

// The calls that faults are about.
const (
	txnCall   = "/etcdserverpb.KV/Txn"
	grantCall = "/etcdserverpb.Lease/LeaseGrant"
)

// A thief takes the answers to changes away: etcd has done them, and the client does not know.
type thief struct {
	method string
	next   atomic.Int64              // how many answers it takes
	then   func(ctx context.Context) // what happens before the client hears of the loss
}

// option puts the thief between a client and etcd.
func (th *thief) option() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(th.call)
}

func (th *thief) call(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
	invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
) error {
	err := invoker(ctx, method, req, reply, conn, opts...)
	txn, _ := req.(*pb.TxnRequest)
	if changes := txn.GetSuccess(); len(changes) > 0 && changes[0].GetRequestRange() != nil {
		return err // it only read
	}
	if err != nil || method != th.method || th.next.Load() == 0 || th.next.Add(-1) < 0 {
		return err
	}
	if th.then != nil {
		th.then(ctx)
	}
	return status.Error(codes.Unavailable, "the connection broke")
}

// An acquire whose answer was lost is not a second grant, and one of the lease leaves none behind.
func TestLostAnswerToAcquire(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	var all []*server
	for _, method := range []string{txnCall, grantCall} {
		th := &thief{method: method}
		s := serve(t, cluster.URL("/"+t.Name()+method), th.option())
		key := named(gatehouse.Semaphore, "s")
		th.next.Store(1)
		cmd := acquire("one")
		cmd.Size = 2
		d := s.do(t, key, cmd, gatehouse.Granted)
		if d.Remaining != 1 {
			t.Errorf("%s: after one acquire %d slots of 2 are left, want 1", method, d.Remaining)
		}
		if n := below(t, client, "/"+t.Name()+method+"/holds/"); n != 1 {
			t.Errorf("%s: there are %d hold keys, want 1", method, n)
		}
		s.do(t, key, release("one"), gatehouse.Granted)
		until(t, "unused leases given back", s.backend.leases.idle)
		s.leave()
		all = append(all, s)
	}
	if n := holdLeases(t, client, all...); n != 0 {
		t.Errorf("there are %d leases of holds, want none", n)
	}
}

// counts are exact though answers get lost.
func TestLostAnswersToCounts(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	th := &thief{method: txnCall}
	s := serve(t, cluster.URL(""), th.option())
	key := named(gatehouse.Counter, "c")
	for n := range int64(50) {
		th.next.Store(n % 3)
		d := s.do(t, key, gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}, gatehouse.Granted)
		if d.Value != n+1 {
			t.Fatalf("count %d answers %d", n+1, d.Value)
		}
	}
}

// The answer to a release is lost, another takes the lock, and the release is repeated. With the lock that
// etcd's client brings the other loses it by that, and a third gets what the second still holds. With ours it
// does not.
func TestStaleUnlock(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	t.Run("theirs", func(t *testing.T) { staleUnlockTheirs(t, cluster) })
	t.Run("ours", func(t *testing.T) { staleUnlockOurs(t, cluster) })
}

func staleUnlockTheirs(t *testing.T, cluster *etcdtest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client := cluster.Client(t)
	session, err := concurrency.NewSession(client)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = session.Close() }()
	first := concurrency.NewMutex(session, "/theirs")
	if err := first.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Delete(ctx, first.Key()); err != nil { // what Unlock asks for; its answer is lost
		t.Fatal(err)
	}
	second := concurrency.NewMutex(session, "/theirs") // another goroutine of the same program
	if err := second.Lock(ctx); err != nil {
		t.Fatal(err)
	}
	if err := first.Unlock(ctx); err != nil { // again, as no answer has come
		t.Fatalf("the repeated Unlock = %v; it is mended: it knows that the lock is another one's", err)
	}
	other, err := concurrency.NewSession(client)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := concurrency.NewMutex(other, "/theirs").TryLock(ctx); err != nil {
		t.Errorf("TryLock of a third = %v; it is mended: the second still has the lock", err)
	}
}

func staleUnlockOurs(t *testing.T, cluster *etcdtest.Cluster) {
	t.Helper()
	key := named(gatehouse.Lock, "ours")
	others := servers(t, cluster, 2)
	th := &thief{method: txnCall}
	th.then = func(ctx context.Context) {
		if d, err := others[0].Do(ctx, key, acquire("second")); err != nil || d.Outcome != gatehouse.Granted {
			t.Errorf("acquire by the second = %s, %v, want it granted", d.Outcome, err)
		}
	}
	s := serve(t, cluster.URL(""), th.option())
	s.do(t, key, acquire("first"), gatehouse.Granted)
	th.next.Store(1)
	s.do(t, key, release("first"), gatehouse.Granted)  // it was repeated inside
	s.do(t, key, release("first"), gatehouse.Conflict) // and is by the caller
	others[1].do(t, key, acquire("third"), gatehouse.Refused)
	others[0].do(t, key, release("second"), gatehouse.Granted)
}

// The same change sent twice, as by a network that repeats it: the second time it finds another record.
func TestChangeComesTwice(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	twice := grpc.WithChainUnaryInterceptor(func(
		ctx context.Context, method string, req, reply any, conn *grpc.ClientConn,
		invoker grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if method == txnCall {
			if err := invoker(ctx, method, req, reply, conn, opts...); err != nil {
				return err
			}
		}
		return invoker(ctx, method, req, reply, conn, opts...)
	})
	s := serve(t, cluster.URL(""), twice)
	counter, lock := named(gatehouse.Counter, "c"), named(gatehouse.Lock, "l")
	for n := range int64(10) {
		count := gatehouse.Command{Op: gatehouse.OpCount, Amount: 1}
		if d := s.do(t, counter, count, gatehouse.Granted); d.Value != n+1 {
			t.Fatalf("count %d answers %d", n+1, d.Value)
		}
		s.do(t, lock, acquire("one"), gatehouse.Granted)
		s.do(t, lock, acquire("two"), gatehouse.Refused)
		s.do(t, lock, release("one"), gatehouse.Granted)
	}
}

// All answers are lost for a while, over a real connection: what was granted meanwhile to calls that failed
// is taken back, and nothing else is.
func TestAllAnswersAreLost(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client := cluster.Client(t)
	link := etcdtest.NewLink(t, cluster)
	s, other := serve(t, link.URL("")), serve(t, cluster.URL(""))
	key := named(gatehouse.Semaphore, "s")
	cmd := acquire("kept")
	cmd.Size = 10
	s.do(t, key, cmd, gatehouse.Granted)
	link.LoseAnswers()
	var lost []<-chan answer
	for _, holder := range []string{"a", "b", "c"} {
		cmd := acquire(holder)
		cmd.Size = 10
		lost = append(lost, s.later(t, key, cmd))
	}
	failed := 0
	for _, one := range lost {
		if a := <-one; a.err != nil {
			failed++
		}
	}
	link.Mend()
	if failed != len(lost) {
		t.Errorf("%d of %d calls failed without an answer of etcd", failed, len(lost))
	}
	until(t, "what nobody knows of taken back", func() bool {
		return below(t, client, "/gatehouse/holds/semaphore/s/") == 1
	})
	other.do(t, key, release("kept"), gatehouse.Granted)
}
