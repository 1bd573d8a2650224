package redis_test

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/certstest"
	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// tlsArguments are those of a Redis that speaks TLS, at a port of its own beside that without, and wants
// certificates of clients.
func tlsArguments(t *testing.T, ca *certstest.Authority) (address string, arguments []string) {
	t.Helper()
	address, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address)
	pair := ca.Server()
	return address, []string{
		"--tls-port", port, "--tls-auth-clients", "yes", "--tls-ca-cert-file", ca.File,
		"--tls-cert-file", pair.Cert, "--tls-key-file", pair.Key,
	}
}

// A cluster is followed over TLS to each of its nodes.
func TestTLSCluster(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	const masters, slots = 2, 16384
	var addresses [masters]string
	var nodes [masters]*redistest.Server
	for i := range nodes {
		var arguments []string
		addresses[i], arguments = tlsArguments(t, ca)
		nodes[i] = redistest.StartNode(t, append(arguments, "--tls-cluster", "yes")...)
		first, last := i*slots/masters, (i+1)*slots/masters-1
		nodes[i].CLI(t, "CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(first), fmt.Sprint(last))
		nodes[i].CLI(t, "CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i+1))
	}
	nodes[1].Meet(t, nodes[0])
	for _, n := range nodes {
		redistest.Until(t, func() bool {
			return strings.Contains(n.CLI(t, "CLUSTER", "INFO"), "cluster_state:ok") &&
				strings.Count(n.CLI(t, "CLUSTER", "NODES"), "\n")+1 == masters
		})
	}
	mine := ca.Issue("server", time.Hour)
	b := open(t, "rediss://"+addresses[0]+"?addr="+addresses[1]+"&ca="+ca.File+
		"&cert="+mine.Cert+"&key="+mine.Key)
	s := newStore(t, b)
	for i := range 20 { // of which some are on each node
		name := fmt.Sprint("n", i)
		if d := apply(t, s, name, acquire("1", 2)); d.Outcome != gatehouse.Granted {
			t.Errorf("acquire at %s = %+v, want it granted", name, d)
		}
	}
	for i, n := range nodes {
		if n.Int(t, "DBSIZE") == 0 {
			t.Errorf("node %d has no key, want some at each", i)
		}
	}
}

// An authority that is replaced is trusted without a restart.
func TestTLSReplacedAuthority(t *testing.T) {
	t.Parallel()
	ca, stranger := certstest.New(t), certstest.New(t)
	at, arguments := tlsArguments(t, ca)
	redistest.Start(t, arguments...)
	mine, file := ca.Issue("server", time.Hour), filepath.Join(t.TempDir(), "ca.pem")
	stranger.CopyTo(file)
	b := open(t, "rediss://"+at+"?ca="+file+"&cert="+mine.Cert+"&key="+mine.Key)
	s, hasty := newStore(t, b), cas.New(b, cas.Config{Server: 2, Timeout: 300 * time.Millisecond})
	defer hasty.Close()
	if d, err := try(hasty, "a", acquire("1", 2)); err == nil {
		t.Errorf("acquire by another authority = %+v, want an error", d)
	}
	ca.CopyTo(file)
	if d := apply(t, s, "a", acquire("1", 2)); d.Outcome != gatehouse.Granted {
		t.Errorf("acquire = %+v, want it granted", d)
	}
}

// A sentinel that is spoken to by TLS says where the master is, which is spoken to by TLS too.
func TestTLSSentinel(t *testing.T) {
	t.Parallel()
	ca := certstest.New(t)
	masterAt, arguments := tlsArguments(t, ca)
	redistest.Start(t, arguments...)
	sentinelAt, arguments := tlsArguments(t, ca)
	// It is told the port with TLS, and has to use it.
	arguments = append(arguments, "--tls-replication", "yes")
	sentinel := redistest.StartSentinel(t, "gate", &redistest.Server{Address: masterAt}, arguments...)
	redistest.Until(t, func() bool {
		return strings.Contains(sentinel.CLI(t, "SENTINEL", "MASTER", "gate"), "\nmaster\n")
	})
	mine := ca.Issue("server", time.Hour)
	s := newStore(t, open(t, "rediss://"+sentinelAt+"?master_set=gate&ca="+ca.File+
		"&cert="+mine.Cert+"&key="+mine.Key))
	if d := apply(t, s, "a", acquire("1", 2)); d.Outcome != gatehouse.Granted {
		t.Errorf("acquire = %+v, want it granted", d)
	}
}
