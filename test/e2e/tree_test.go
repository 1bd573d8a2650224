package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// treeTemplates share 100, with leases that are long enough for what the tests do between two of them.
const treeTemplates = `
resources:
  - identifier_glob: "*"
    capacity: 100
    algorithm: {kind: FAIR_SHARE, lease_length: %d, refresh_interval: 2}
`

// grpcAddress is where a server answers doorman's clients.
func (s *server) grpcAddress(tb testing.TB) string {
	tb.Helper()
	return loggedAddress(awaitLine(tb, s.journal, "serving gRPC"))
}

// treeRoot returns how to start the root of a tree, and where it will be.
func treeRoot(t *testing.T, leaseLength int) (how settings, address string) {
	t.Helper()
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "capacity.yaml")
	if err := os.WriteFile(path, fmt.Appendf(nil, treeTemplates, leaseLength), 0o600); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--http", "localhost:0", "--grpc", address, "--capacity-config", "file:" + path}
	return settings{flags: flags}, address
}

// kill ends a process without a chance to do anything about it.
func (s *server) kill(t *testing.T) {
	t.Helper()
	s.told = true
	_ = s.process.Signal(syscall.SIGKILL)
	if _, err := s.exit(); err != nil {
		t.Fatal(err)
	}
}

// launched starts a server that the test may kill.
func launched(t *testing.T, how settings) *server {
	t.Helper()
	s, err := launch(context.WithoutCancel(t.Context()), how)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !s.told {
			_ = s.stop()
		}
	})
	return s
}

// handover is how late clients may refresh, whose interval is a second, for none to lose its lease when that
// of its server runs out: they are given longer ones 2.5 s before.
const handover = time.Second

// A root and two servers below it, which hand out all of its 100. The root dies, for shorter and for longer
// than its leases, and begins anew, not knowing anything: no client loses anything by that, and
// never is more held than there is.
func TestTreeOutlivesItsRoot(t *testing.T) {
	t.Parallel()
	how, address := treeRoot(t, 10)
	root := launched(t, how)
	f := &fleet{tb: t, limit: 100, bears: handover}
	for n, wants := range [][]float64{{10, 60, 200}, {5, 60, 60}} {
		middle := start(t, "--grpc", "localhost:0", "--parent", address).grpcAddress(t)
		for i, w := range wants {
			f.join(fmt.Sprintf("client%d%d", n, i), w, middle)
		}
	}
	// The equal share of a client is 16.67; 5 leaves its server more for the other two.
	want := map[string]float64{
		"client00": 10, "client01": 20, "client02": 20, "client10": 5, "client11": 22.5, "client12": 22.5,
	}
	f.holdsSoon(want)
	root.kill(t)
	f.keepsFor(3*time.Second, 100, "with the root dead for shorter than its leases")
	root = launched(t, how)
	f.keepsFor(12*time.Second, 100, "while the root learned")
	f.holdsSoon(want)
	root.kill(t)
	f.keepsFor(14*time.Second, 100, "with the root dead for longer than its leases")
	launched(t, how)
	f.keepsFor(12*time.Second, 100, "while the root learned again")
	f.holdsSoon(want)
}

// Two servers below a root elect a master of them. The one that takes over when it dies goes on with the
// lease that it had: it has the same name at the root, and its clients say what they hold.
func TestTreeWithElection(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	lock := cluster.URL("/region/master") + "?ttl=3s"
	how, address := treeRoot(t, 20) // for three clients that wait in turn, and another master
	launched(t, how)
	f := &fleet{tb: t, limit: 100}
	pair := make(trio)
	for range 2 {
		s := launched(t, settings{flags: []string{
			"--http", "localhost:0", "--grpc", "localhost:0", "--parent", address, "--election", lock,
		}})
		pair[s.grpcAddress(t)] = s
	}
	f.join("a", 200, pair.addresses()...)
	f.join("b", 30, pair.addresses()...)
	f.join("c", 200, address)
	// At the root the pair has two clients, and gets two thirds.
	want := map[string]float64{"a": 36.666667, "b": 30, "c": 33.333333}
	f.holdsSoon(want)
	master := pair.master(t, "")
	pair[master].kill(t)
	f.keepsFor(22*time.Second, 99.9, "while the other took over")
	f.holdsSoon(want)
	pair.master(t, master)
}

// A server is cut off from its root for longer than a lease, and the root gives its share to another. What
// is held too much is what it was granted last, no more, and nothing when it has been back for a while.
func TestTreeKeepsItsBoundWhenCut(t *testing.T) {
	t.Parallel()
	how, address := treeRoot(t, 10)
	launched(t, how)
	w := lay(t, address)
	f := &fleet{tb: t, limit: 100, bears: handover}
	lonely := start(t, "--grpc", "localhost:0", "--parent", w.address)
	f.join("a", 100, lonely.grpcAddress(t))
	f.join("b", 100, start(t, "--grpc", "localhost:0", "--parent", address).grpcAddress(t))
	f.holdsSoon(map[string]float64{"a": 50, "b": 50})
	f.allow(150)
	w.set(true)
	kept := 150.0
	until(t, "b holds 100, and a the 50 that it had", func() bool {
		held := f.hold()
		if held["a"] != 50 && f.wasLate() { // its lease ran out, and its server has nothing to renew it from
			kept = 100
		}
		return held["b"] == 100 && (held["a"] == 50 || kept == 100)
	})
	f.keepsFor(10*time.Second, kept, "with one server cut off")
	if _, err := lonely.journal.await(func(line string) bool {
		return strings.Contains(line, "the parent does not respond")
	}); err != nil {
		t.Error(err)
	}
	w.set(false)
	f.holdsSoon(map[string]float64{"a": 50, "b": 50})
	f.allow(100)
	// The root may have had nothing for the server when it came back: then its client gives back what it held
	// beyond the root's word before it is given its share anew.
	f.keepsFor(5*time.Second, 0, "when all was well again")
	f.holdsSoon(map[string]float64{"a": 50, "b": 50})
}
