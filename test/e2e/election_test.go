package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/client/lease"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/front/grpc/doormanpb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
)

const (
	// electionTTL is how long a master that died stays master. So a busy machine may hold one up for seconds.
	electionTTL = 8 * time.Second
	// bridge is how many seconds leases hold: for an election, though each client waits for who is gone.
	bridge = 25
)

// A trio is servers that elect a master, by the addresses at which they answer. They may be fewer.
type trio map[string]*server

func (s trio) addresses() []string { return slices.Sorted(maps.Keys(s)) }

// newTrio starts three with the same capacity of 100.
func newTrio(t *testing.T, etcd *etcdtest.Cluster, ttl time.Duration) trio {
	t.Helper()
	how, _ := treeRoot(t, bridge)
	config := how.flags[len(how.flags)-1]
	all := make(trio)
	for range 3 {
		s := launched(t, settings{flags: []string{
			"--http", "localhost:0", "--grpc", "localhost:0", "--capacity-config", config,
			"--election", etcd.URL("/gatehouse/master?ttl=" + ttl.String()),
		}})
		all[s.grpcAddress(t)] = s
	}
	return all
}

// master waits until one of the servers is master, which the last one, if any is named, is not any more.
func (s trio) master(t *testing.T, last string) string {
	t.Helper()
	master := ""
	until(t, fmt.Sprintf("one of %v is master, and not %q", s.addresses(), last), func() bool {
		for _, address := range s.addresses() {
			if address != last && isMaster(t, address) {
				master = address
			}
		}
		return master != ""
	})
	return master
}

// isMaster asks a server that may be gone.
func isMaster(t *testing.T, address string) bool {
	t.Helper()
	conn, err := grpc.NewClient(address, plainText())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	answer, err := doormanpb.NewCapacityClient(conn).Discovery(ctx, new(doormanpb.DiscoveryRequest))
	return err == nil && answer.GetIsMaster()
}

// lost is how often a server has stopped being master.
func (s *server) lost() int { return strings.Count(s.journal.String(), "is no longer master") }

// won is how often a server has become master.
func (s *server) won() int { return strings.Count(s.journal.String(), "this server is master") }

// lose waits until it has once more.
func (s *server) lose(t *testing.T) {
	t.Helper()
	awaitLine(t, s.journal, "is no longer master")
}

// Three servers and three members of etcd, of which one is stopped, the leader is moved, the master dies, and
// the next one stands still for a while. At no time do clients hold more than there is. One that is
// written with the Go library keeps what it has.
func TestElectedMasters(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 3)
	servers := newTrio(t, etcd, electionTTL)
	f := &fleet{tb: t, limit: 100}
	for name, wants := range map[string]float64{"a": 200, "b": 30, "c": 200} {
		f.join(name, wants, servers.addresses()...)
	}
	api := newAPI(t, servers)
	want := map[string]float64{"a": 35, "b": 30, "c": 35}
	f.holdsSoon(want)
	first := servers.master(t, "")

	leader := etcd.Leader(t)
	etcd.Stop((leader + 1) % 3)
	etcd.MoveLeader(t, (leader+2)%3)
	f.keepsFor(electionTTL, 100, "with one member of etcd stopped and the leader moved")
	if got := servers.master(t, ""); got != first || servers[first].lost() != 0 {
		t.Errorf("the master is %s, want %s still", got, first)
	}

	began := time.Now()
	servers[first].kill(t)
	second := servers.master(t, first)
	if took := time.Since(began); took > 3*electionTTL {
		t.Errorf("the next was master after %v, want at most %v", took, 3*electionTTL)
	}
	f.keepsFor(5*time.Second, 99.9, "while the second took over")
	if got := api.Capacity(); got != 40 {
		t.Errorf("the library's client has %v, want its 40", got)
	}

	stopped := servers[second]
	if err := stopped.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	third := servers.master(t, second)
	answer := askLater(t, second)
	if err := stopped.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// It was asked while it stood still, as master; it answers as somebody who is not. On a machine with too
	// much to do it may have been elected again before it answers.
	got := <-answer
	if got.err != nil {
		t.Errorf("a server that stood still answers %v, want no lease", got.err)
	} else if len(got.GetResponse()) > 0 || got.GetMastership() == nil {
		until(t, fmt.Sprintf("a server that stood still was elected again: it answers %v",
			got.GetCapacityResponse), func() bool { return stopped.won() > 1 })
	}
	f.keepsFor(5*time.Second, 99.9, "while the third took over")
	f.holdsSoon(want)
	if got := servers.master(t, ""); got != third && servers[third].lost() == 0 {
		t.Errorf("the master is %s, want %s still", got, third)
	}
	if has := api.Capacity(); has != 40 {
		t.Errorf("the library's client has %v, want its 40", has)
	}
}

// newAPI has a client of the library ask for 40 of something else.
func newAPI(t *testing.T, servers trio) *lease.Resource {
	t.Helper()
	client, err := lease.New(lease.Config{
		Servers: servers.addresses(), MinRefresh: time.Second, Timeout: time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Second)
		defer cancel()
		_ = client.Close(ctx) // the servers may be gone
	})
	api, err := client.Resource("api", 40, 0)
	if err != nil {
		t.Fatal(err)
	}
	// First a new master learns what others have.
	until(t, "the library's client has 40", func() bool { return api.Capacity() == 40 })
	return api
}

// A lateAnswer is what a server said when it could.
type lateAnswer struct {
	*doormanpb.GetCapacityResponse
	err error
}

// askLater asks a server that stands still. The request is with the machine when it returns.
func askLater(t *testing.T, address string) <-chan lateAnswer {
	t.Helper()
	conn, err := grpc.NewClient(address, plainText(), grpc.WithWriteBufferSize(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	answers := make(chan lateAnswer, 1)
	go func() {
		answer, err := doormanpb.NewCapacityClient(conn).GetCapacity(soon(t), &doormanpb.GetCapacityRequest{
			ClientId: new("late"), Resource: []*doormanpb.ResourceRequest{{
				ResourceId: new("late"), Priority: proto.Int64(0), Wants: proto.Float64(1),
			}},
		}, grpc.WaitForReady(true))
		answers <- lateAnswer{answer, err}
	}()
	return answers
}

// Etcd is away for less than a master's time: it grants on, and leads on. Then for more: it stops granting,
// and says so, until etcd is back. Never is more held than there is.
func TestServersWithoutEtcd(t *testing.T) {
	t.Parallel()
	etcd := etcdtest.Start(t, 1)
	const ttl = 12 * time.Second // two thirds of it are left when etcd goes away, or more
	servers := newTrio(t, etcd, ttl)
	f := &fleet{tb: t, limit: 100}
	for name, wants := range map[string]float64{"a": 200, "b": 30, "c": 200} {
		f.join(name, wants, servers.addresses()...)
	}
	want := map[string]float64{"a": 35, "b": 30, "c": 35}
	f.holdsSoon(want)
	master := servers.master(t, "")

	etcd.Kill(0)
	f.keepsFor(time.Second, 100, "with etcd away for a moment")
	etcd.Restart(t, 0)
	etcd.Healthy(t)
	f.keepsFor(ttl, 100, "when etcd was back")
	if got := servers.master(t, ""); got != master || servers[master].lost() != 0 {
		t.Fatalf("the master is %s, want %s still", got, master)
	}

	answered := pester(t, servers)
	etcd.Pause(0)
	servers[master].lose(t)
	for _, address := range servers.addresses() {
		if isMaster(t, address) {
			t.Errorf("%s is master without etcd, want nobody to be", address)
		}
	}
	if _, err := grants(t, master); !errors.Is(err, errNoLease) {
		t.Errorf("a master whose time is over answers %v, want no lease", err)
	}
	etcd.Resume(0)
	servers.master(t, "")
	if granted, sent := answered(); granted == 0 || sent == 0 {
		t.Errorf("of all who kept asking %d got something and %d were sent away, want both", granted, sent)
	}
	f.holdsSoon(want)
	for address, s := range servers {
		if err := s.stop(); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
}

// pester asks all servers for leases, as clients and as servers do, again and again, also at the instant at
// which one stops being master. Each must answer. The function returned ends it.
func pester(t *testing.T, servers trio) (answered func() (granted, sent int64)) {
	t.Helper()
	var granted, sent atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, address := range servers.addresses() {
		conn, err := grpc.NewClient(address, plainText())
		if err != nil {
			t.Fatal(err)
		}
		all.Go(func() {
			defer func() { _ = conn.Close() }()
			for ctx.Err() == nil {
				leases, err := askBoth(ctx, doormanpb.NewCapacityClient(conn))
				switch {
				case ctx.Err() != nil:
				case err != nil:
					t.Errorf("%s answers %v, want a lease or where the master is", address, err)
					return
				case leases > 0:
					granted.Add(1)
				default:
					sent.Add(1)
				}
				shared().passes(t, pause)
			}
		})
	}
	return func() (int64, int64) {
		cancel()
		all.Wait()
		return granted.Load(), sent.Load()
	}
}

// askBoth asks as a client and as a server, and counts the leases in both answers.
func askBoth(ctx context.Context, server doormanpb.CapacityClient) (int, error) {
	a, err := server.GetCapacity(ctx, &doormanpb.GetCapacityRequest{
		ClientId: new("pest"), Resource: []*doormanpb.ResourceRequest{{
			ResourceId: new("pest"), Priority: proto.Int64(0), Wants: proto.Float64(1),
		}},
	})
	if err != nil {
		return 0, err
	}
	b, err := server.GetServerCapacity(ctx, &doormanpb.GetServerCapacityRequest{
		ServerId: new("pests"), Resource: []*doormanpb.ServerCapacityResourceRequest{{
			ResourceId: new("pest"), Wants: []*doormanpb.PriorityBandAggregate{{
				Priority: proto.Int64(0), NumClients: proto.Int64(1), Wants: proto.Float64(1),
			}},
		}},
	})
	return len(a.GetResponse()) + len(b.GetResponse()), err
}

var errNoLease = errors.New("no lease")

// grants asks a server for something.
func grants(t *testing.T, address string) (float64, error) {
	t.Helper()
	answer := <-askLater(t, address)
	switch {
	case answer.err != nil:
		return 0, answer.err
	case len(answer.GetResponse()) == 0:
		return 0, errNoLease
	}
	return answer.GetResponse()[0].GetGets().GetCapacity(), nil
}
