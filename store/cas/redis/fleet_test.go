package redis_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
)

// newStore returns a store on a backend, that ends with the test.
func newStore(t *testing.T, b *redis.Backend) *cas.Store {
	t.Helper()
	s := cas.New(b, cas.Config{Server: 1, Timeout: 5 * time.Second})
	t.Cleanup(s.Close)
	return s
}

// Sentinels say who the master is. When they make another one it is used, and tokens go on rising.
func TestSentinel(t *testing.T) {
	t.Parallel()
	master := redistest.Start(t)
	replica := redistest.StartReplica(t, master)
	sentinel := redistest.StartSentinel(t, "gate", master)
	s := newStore(t, open(t, "redis://127.0.0.1:1?master_set=gate&addr="+sentinel.Address))
	first := apply(t, s, "a", acquire("1", 2))
	redistest.Until(t, func() bool {
		return replica.Int(t, "EXISTS", "gatehouse:semaphore/a") == 1 &&
			strings.Contains(sentinel.CLI(t, "SENTINEL", "REPLICAS", "gate"), replica.Address)
	})
	master.Kill()
	redistest.Until(t, func() bool { // it is given up after 300 ms
		return strings.HasPrefix(replica.CLI(t, "ROLE"), "master")
	})
	second, took := eventually(t, s, "a", acquire("2", 2))
	if second.Outcome != gatehouse.Granted || second.Fence <= first.Fence {
		t.Errorf("after the failover = %+v, want it granted with a token above %d", second, first.Fence)
	}
	if took > soon {
		t.Errorf("it took %v, want at most 1s", took)
	}
	if d := apply(t, s, "a", acquire("3", 2)); d.Outcome != gatehouse.Refused {
		t.Errorf("acquire of a third of 2 = %+v, want it refused: nothing was lost", d)
	}
}

// A cluster is found by one of its nodes; a key that moves is followed; what one server changes wakes another
// whatever node they are at; Range sees all nodes.
func TestCluster(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	b := open(t, "redis://"+nodes[1].Address)
	heard := make(chan gatehouse.Key, 1000)
	stop := open(t, "redis://"+nodes[0].Address+"?addr="+nodes[2].Address).
		Listen(7, func(k gatehouse.Key) { heard <- k })
	t.Cleanup(stop)
	wantKey(t, heard, gatehouse.Key{})
	var want []string
	for i := range 300 {
		name, nonce := fmt.Sprintf("{x}%03d", i), uint64(i+1)
		ask(t, b, key(name), &cas.RecordChange{Next: record(nonce, name), Nonce: nonce, Keep: time.Minute})
		change := &cas.RecordChange{
			If: nonce, Next: record(nonce+1000, name), Nonce: nonce + 1000, Keep: time.Minute,
		}
		if i%100 == 0 {
			change.Wake = []uint32{7}
		}
		if reply := ask(t, b, key(name), change); !reply.Swapped {
			t.Fatalf("swap of %q = %+v, want it swapped", name, reply)
		}
		if i%100 == 0 {
			wantKey(t, heard, key(name))
		}
		want = append(want, name)
	}
	for _, n := range nodes {
		if keys := n.Int(t, "DBSIZE"); keys < 50 {
			t.Errorf("a node has %d of 300 keys, want about 100", keys)
		}
	}
	checkRange(t, b, want)

	moved := "gatehouse:lock/%7Bx%7D042"
	slot := nodes[0].CLI(t, "CLUSTER", "KEYSLOT", moved)
	from := slices.IndexFunc(nodes, func(n *redistest.Server) bool {
		return strings.Contains(n.CLI(t, "CLUSTER", "GETKEYSINSLOT", slot, "10"), moved)
	})
	source, target := nodes[from], nodes[(from+1)%3]
	target.CLI(t, "CLUSTER", "SETSLOT", slot, "IMPORTING", source.ID(t))
	source.CLI(t, "CLUSTER", "SETSLOT", slot, "MIGRATING", target.ID(t))
	host, port, _ := strings.Cut(target.Address, ":")
	source.CLI(t, "MIGRATE", host, port, moved, "0", "5000")
	change := &cas.RecordChange{If: 1043, Next: record(5, ""), Nonce: 5, Keep: time.Minute}
	if reply := ask(t, b, key("{x}042"), change); !reply.Swapped { // by ASK
		t.Errorf("swap of a key under way = %+v, want it swapped", reply)
	}
	for _, n := range []*redistest.Server{target, source, nodes[(from+2)%3]} {
		n.CLI(t, "CLUSTER", "SETSLOT", slot, "NODE", target.ID(t))
	}
	change = &cas.RecordChange{If: 5, Next: record(6, ""), Nonce: 6, Keep: time.Minute}
	if reply := ask(t, b, key("{x}042"), change); !reply.Swapped { // by MOVED
		t.Errorf("swap of a key that has moved = %+v, want it swapped", reply)
	}
	checkRange(t, b, want)
}

func checkRange(t *testing.T, b *redis.Backend, want []string) {
	t.Helper()
	var got []string
	err := b.Range(soonest(t), gatehouse.Lock, "", func(name string, _ []byte) bool {
		got = append(got, name)
		return true
	})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("Range = %d names, %v, want %d", len(got), err, len(want))
	}
}

// A node that fails keeps nobody back who wants another; its replica takes its place, and is used then.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	nodes := redistest.StartCluster(t, 3)
	replica := redistest.StartNode(t)
	replica.Meet(t, nodes[0])
	redistest.Until(t, func() bool {
		return strings.Contains(replica.CLI(t, "CLUSTER", "NODES"), nodes[0].ID(t))
	})
	replica.CLI(t, "CLUSTER", "REPLICATE", nodes[0].ID(t))
	redistest.Until(t, func() bool {
		return strings.Contains(replica.CLI(t, "INFO", "replication"), "master_link_status:up")
	})
	for _, n := range nodes { // who does not know the replica yet does not vote for it
		redistest.Until(t, func() bool { return strings.Contains(n.CLI(t, "CLUSTER", "NODES"), " slave ") })
	}
	redistest.Until(t, func() bool {
		known := replica.CLI(t, "CLUSTER", "NODES")
		return strings.Count(known, " connected") == 4 && !strings.Contains(known, "handshake")
	})
	s := newStore(t, open(t, "redis://"+nodes[1].Address+"?addr="+nodes[2].Address))
	var there, elsewhere string // names at the node that fails, and at another
	for i := 0; there == "" || elsewhere == ""; i++ {
		name := fmt.Sprint(i)
		if nodes[1].Int(t, "CLUSTER", "KEYSLOT", "gatehouse:semaphore/"+name) < 16384/3 {
			there = name
		} else {
			elsewhere = name
		}
	}
	first := apply(t, s, there, acquire("1", 1))
	apply(t, s, elsewhere, acquire("1", 100))
	redistest.Until(t, func() bool { return replica.Int(t, "DBSIZE") == nodes[0].Int(t, "DBSIZE") })
	nodes[0].Freeze()
	t.Cleanup(nodes[0].Thaw)
	began := time.Now()
	if d, err := try(s, elsewhere, acquire("2", 100)); err != nil || d.Outcome != gatehouse.Granted {
		t.Errorf("at a node that is well = %+v, %v, want it granted", d, err)
	}
	if took := time.Since(began); took > late {
		t.Errorf("it took %v, want it at once", took)
	}
	redistest.Until(t, func() bool { return strings.HasPrefix(replica.CLI(t, "ROLE"), "master") })
	began = time.Now()
	redistest.Until(t, func() bool {
		_, err := try(s, there, gatehouse.Command{Op: gatehouse.OpStats})
		return err == nil
	})
	t.Logf("the new master was used after %v", time.Since(began))
	if d := apply(t, s, there, acquire("2", 1)); d.Outcome != gatehouse.Refused {
		t.Errorf("acquire of what is held = %+v, want it refused", d)
	}
	apply(t, s, there, gatehouse.Command{Op: gatehouse.OpRelease, Holder: "1"})
	if d := apply(t, s, there, acquire("3", 1)); d.Outcome != gatehouse.Granted || d.Fence <= first.Fence {
		t.Errorf("acquire = %+v, want it granted with a token above %d", d, first.Fence)
	}
}
