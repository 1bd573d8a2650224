//go:build linux || darwin

package etcd

import (
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/gate"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

const (
	// patience is how long anything may take that has no bound of its own in a test.
	patience = 60 * time.Second
	// stall is how long a busy machine may let a process wait. What should come at once comes by then.
	stall = 30 * time.Second
)

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6") // most tests only wait
	}
	goleak.VerifyTestMain(m)
}

// A server is a gate with a store of its own, as a process has them.
type server struct {
	*gate.Gate
	store   *cas.Store
	backend *Backend
	end     sync.Once
}

// serve starts a server that is closed when the test ends.
func serve(tb testing.TB, address string, options ...grpc.DialOption) *server {
	tb.Helper()
	return serveOn(tb, opened(tb, address, options...))
}

// opened opens a backend. With a user name etcd must answer within a time that a busy machine may exceed: it
// is asked again.
func opened(tb testing.TB, address string, options ...grpc.DialOption) *Backend {
	tb.Helper()
	deadline := time.Now().Add(patience)
	for {
		b, err := openBackend(address, options...)
		if err == nil {
			return b
		}
		if !errors.Is(err, context.DeadlineExceeded) || time.Now().After(deadline) {
			tb.Fatal(err)
		}
	}
}

// serveOn makes a server on a backend that answers, however busy the machine is.
func serveOn(tb testing.TB, backend *Backend) *server {
	tb.Helper()
	return serveWithin(tb, backend, patience/3)
}

// serveWithin makes a server that waits for at most timeout for its store.
func serveWithin(tb testing.TB, backend *Backend, timeout time.Duration) *server {
	tb.Helper()
	s := &server{backend: backend}
	number := 1 + rand.Uint32N(1<<32-1)
	s.store = cas.New(backend, cas.Config{Server: number, Timeout: timeout})
	s.Gate = gate.New(s.store, gate.Config{FirstTicket: cas.FirstTicket(number)})
	tb.Cleanup(s.leave)
	return s
}

// leave closes a server in good order.
func (s *server) leave() {
	s.end.Do(func() {
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_ = s.Drain(ctx) // it has failed if etcd is away
		s.store.Close()
		_ = s.backend.Close()
	})
}

// servers starts several that share one etcd.
func servers(tb testing.TB, cluster *etcdtest.Cluster, number int) []*server {
	tb.Helper()
	all := make([]*server, number)
	for i := range all {
		all[i] = serve(tb, cluster.URL(""))
	}
	return all
}

func named(kind gatehouse.Kind, name string) gatehouse.Key {
	return gatehouse.Key{Kind: kind, Name: name}
}

// acquire takes one slot of one, for a minute unless it is told otherwise.
func acquire(holder string) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpAcquire, Holder: holder, Rule: gatehouse.Rule{Size: 1}, Cost: 1, Expires: time.Minute,
	}
}

func release(holder string) gatehouse.Command {
	return gatehouse.Command{Op: gatehouse.OpRelease, Holder: holder, Cost: 1}
}

// do asks a server, which has to answer with that outcome.
func (s *server) do(
	tb testing.TB, key gatehouse.Key, cmd gatehouse.Command, want gatehouse.Outcome,
) gatehouse.Decision {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	d, err := s.Do(ctx, key, cmd)
	if err != nil || d.Outcome != want {
		tb.Fatalf("%s %s by %q = %s %q, %v, want %s",
			key, cmd.Op, cmd.Holder, d.Outcome, d.Message, err, want)
	}
	return d
}

// An answer is what a call that waits gets, and when.
type answer struct {
	gatehouse.Decision
	err error
	at  time.Time
}

// later asks a server without waiting for the answer.
func (s *server) later(tb testing.TB, key gatehouse.Key, cmd gatehouse.Command) <-chan answer {
	tb.Helper()
	answers := make(chan answer, 1)
	s.Submit(&gate.Request{Key: key, Command: cmd, Decided: func(r *gate.Request) {
		answers <- answer{*r.Decision, r.Err, time.Now()}
	}})
	return answers
}

// until waits until a condition holds, which it asks for often.
func until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	await.True(tb, what, holds)
}

// granted waits for the answer to a call, which must be granted.
func granted(tb testing.TB, answers <-chan answer) answer {
	tb.Helper()
	select {
	case a := <-answers:
		if a.err != nil || a.Outcome != gatehouse.Granted {
			tb.Fatalf("the answer is %s %q, %v, want it granted", a.Outcome, a.Message, a.err)
		}
		return a
	case <-time.After(patience):
		tb.Fatalf("no answer after %v, want it granted", patience)
		return answer{}
	}
}

// below counts the keys that begin so.
func below(tb testing.TB, client *clientv3.Client, prefix string) int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	response, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	if err != nil {
		tb.Fatal(err)
	}
	return int(response.Count)
}

// holdLeases counts the leases there are, but those that records share.
func holdLeases(tb testing.TB, client *clientv3.Client, all ...*server) int {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	response, err := client.Leases(ctx)
	if err != nil {
		tb.Fatal(err)
	}
	n := len(response.Leases)
	for _, s := range all {
		s.backend.pool.mu.Lock()
		n -= len(s.backend.pool.byLength)
		s.backend.pool.mu.Unlock()
	}
	return n
}
