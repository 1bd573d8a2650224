//go:build unix

package redistest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// StartReplica starts a server that copies another, and waits until it has.
func StartReplica(tb testing.TB, of *Server, arguments ...string) *Server {
	tb.Helper()
	host, port := of.hostPort(tb)
	of.CLI(tb, "CONFIG", "SET", "repl-diskless-sync-delay", "0") // it waits 5 s for more replicas otherwise
	s := Start(tb, append([]string{"--replicaof", host + " " + port}, arguments...)...)
	Until(tb, func() bool {
		return strings.Contains(s.CLI(tb, "INFO", "replication"), "master_link_status:up")
	})
	return s
}

// StartSentinel starts a sentinel that looks after a master, alone, and gives it up after 300 ms. Further
// arguments are those of redis-server.
func StartSentinel(tb testing.TB, name string, master *Server, arguments ...string) *Server {
	tb.Helper()
	host, port := master.hostPort(tb)
	config := filepath.Join(tb.TempDir(), "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s %[2]s %[3]s 1\nsentinel down-after-milliseconds %[1]s 300\n"+
		"sentinel failover-timeout %[1]s 3000\n", name, host, port)
	// A file and not options: a sentinel rewrites it with what it learns.
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		tb.Fatal(err)
	}
	address, err := freeport.Next()
	if err != nil {
		tb.Fatal(err)
	}
	s := &Server{Address: address, config: config, arguments: append([]string{"--sentinel"}, arguments...)}
	s.Begin(tb)
	tb.Cleanup(s.Kill)
	return s
}

// clusterSlots is how many slots a cluster has.
const clusterSlots = 16384

// StartCluster starts a cluster of masters that share the slots evenly. The arguments are those of each.
func StartCluster(tb testing.TB, masters int, arguments ...string) []*Server {
	tb.Helper()
	nodes := make([]*Server, masters)
	for i := range nodes {
		nodes[i] = StartNode(tb, arguments...)
		// By multiples, so that the ranges meet without a gap also when the slots do not divide evenly.
		first, last := i*clusterSlots/masters, (i+1)*clusterSlots/masters-1
		nodes[i].CLI(tb, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last))
		// Each node needs an epoch of its own, and it can be set only before they meet.
		nodes[i].CLI(tb, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
	}
	// The others learn of each other by gossip. All must know all before a client asks one of them.
	for _, n := range nodes[1:] {
		n.Meet(tb, nodes[0])
	}
	for _, n := range nodes {
		Until(tb, func() bool {
			return strings.Contains(n.CLI(tb, "CLUSTER", "INFO"), "cluster_state:ok") &&
				strings.Count(n.CLI(tb, "CLUSTER", "NODES"), "\n")+1 == masters
		})
	}
	return nodes
}

// StartNode starts a server that may join a cluster. It takes another for dead after a second.
func StartNode(tb testing.TB, arguments ...string) *Server {
	tb.Helper()
	// By default the bus is 10000 above the port for clients, which may be taken or too high.
	bus, err := freeport.Next()
	if err != nil {
		tb.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(bus)
	return Start(tb, append([]string{
		"--cluster-enabled", "yes", "--cluster-port", port, "--cluster-node-timeout", "1000",
		"--dir", tb.TempDir(), "--repl-diskless-sync-delay", "0", "--cluster-replica-validity-factor", "0",
	}, arguments...)...)
}

// Meet joins the cluster of another node.
func (s *Server) Meet(tb testing.TB, other *Server) {
	tb.Helper()
	// The bus is at a port of its own here, and not 10000 above that for clients.
	host, port := other.hostPort(tb)
	_, bus, _ := strings.Cut(other.CLI(tb, "CONFIG", "GET", "cluster-port"), "\n")
	s.CLI(tb, "CLUSTER", "MEET", host, port, bus)
}

// ID is a node's name in its cluster.
func (s *Server) ID(tb testing.TB) string {
	tb.Helper()
	return s.CLI(tb, "CLUSTER", "MYID")
}

func (s *Server) hostPort(tb testing.TB) (host, port string) {
	tb.Helper()
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		tb.Fatal(err)
	}
	return host, port
}
