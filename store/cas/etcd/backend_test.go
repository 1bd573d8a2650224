//go:build linux || darwin

package etcd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/internal/freeport"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// backend is one without a store.
func backend(tb testing.TB, address string) *Backend {
	tb.Helper()
	b := opened(tb, address)
	tb.Cleanup(func() { _ = b.Close() })
	return b
}

// put makes a change that must be made.
func put(tb testing.TB, b *Backend, key gatehouse.Key, change *cas.RecordChange) cas.Reply {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	if change.Keep == 0 {
		change.Keep = gatehouse.Forever
	}
	r, err := b.Swap(ctx, key, change)
	if err != nil || !r.Swapped {
		tb.Fatalf("swap of %s = %+v, %v, want it made", key, r, err)
	}
	return r
}

// The promises of swap.Backend, one by one.
func TestSwap(t *testing.T) {
	t.Parallel()
	b := backend(t, etcdtest.Start(t, 1).URL(""))
	key := named(gatehouse.Lock, "a")
	ctx := t.Context()
	none, err := b.Swap(ctx, key, &cas.RecordChange{If: 1<<64 - 1, Read: true})
	if err != nil || none.Swapped || none.Record != nil || none.Version != 0 || none.Live == nil {
		t.Errorf("reading what is not there = %+v, %v", none, err)
	}
	hold := control.Hold{Holder: "h", Fence: none.MinFence, Expires: time.Hour}
	one := put(t, b, key, &cas.RecordChange{Next: []byte("one"), Begin: []control.Hold{hold}})
	if one.Version == 0 || !one.Live[hold.Fence] || one.MinFence <= hold.Fence {
		t.Errorf("the first change = %+v, want its hold live", one)
	}
	lost, err := b.Swap(ctx, key, &cas.RecordChange{Next: []byte("two"), Keep: time.Minute})
	if err != nil || lost.Swapped || string(lost.Record) != "one" || lost.Version != one.Version ||
		!lost.Live[hold.Fence] {
		t.Errorf("a change of what is not the present record = %+v, %v", lost, err)
	}
	same, err := b.Swap(ctx, key, &cas.RecordChange{If: one.Version, Read: true})
	if err != nil || !same.Swapped || same.Record != nil || same.Version != one.Version ||
		!same.Live[hold.Fence] {
		t.Errorf("reading what is known = %+v, %v", same, err)
	}
	gone := put(t, b, key, &cas.RecordChange{If: one.Version, End: []control.Hold{hold}})
	if gone.Version != 0 || len(gone.Live) != 0 {
		t.Errorf("the delete = %+v, want nothing left", gone)
	}
	if again := put(t, b, key, &cas.RecordChange{Next: []byte("1")}); again.MinFence <= gone.MinFence {
		t.Errorf("after a delete the least token is %d, and was %d before", again.MinFence, gone.MinFence)
	}
}

// What is not reachable has done nothing, and what etcd refuses is told as that.
func TestErrors(t *testing.T) {
	t.Parallel()
	nowhere, err := freeport.Next()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	key, change := named(gatehouse.Lock, "a"), &cas.RecordChange{Next: []byte("x"), Keep: time.Minute}
	if _, err := backend(t, "etcd://"+nowhere).Swap(ctx, key, change); !errors.Is(err, cas.ErrNotSent) {
		t.Errorf("without etcd swap = %v, want it not sent", err)
	}

	cluster := etcdtest.Start(t, 1)
	b, client := backend(t, cluster.URL("")), cluster.Client(t)
	put(t, b, named(gatehouse.Counter, "c"), &cas.RecordChange{Next: []byte("x")})
	large := &cas.RecordChange{Next: make([]byte, 2<<20), Keep: gatehouse.Forever}
	if _, err := b.Swap(t.Context(), key, large); !errors.Is(err, cas.ErrRefused) {
		t.Errorf("swap of 2 MiB = %v, want it refused", err)
	}
	full := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: 1}
	if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(t.Context(), full); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Swap(t.Context(), key, change); !errors.Is(err, cas.ErrRefused) {
		t.Errorf("without space swap = %v, want it refused", err)
	}
	read := &cas.RecordChange{If: 1<<64 - 1, Read: true}
	r, err := b.Swap(t.Context(), named(gatehouse.Counter, "c"), read)
	if err != nil || string(r.Record) != "x" {
		t.Errorf("without space a read = %+v, %v, want the record", r, err)
	}
	cluster.Pause(0)
	ctx, cancel = context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Swap(ctx, key, change); err == nil {
		t.Error("a paused etcd answers")
	}
	cluster.Resume(0)
}

// With a user etcd allows what the user may do, below a prefix.
func TestPermissions(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	client, ctx := cluster.Client(t), t.Context()
	must := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(client.UserAdd(ctx, "root", "r"))
	must(client.UserGrantRole(ctx, "root", "root"))
	must(client.UserAdd(ctx, "u", "p"))
	must(client.RoleAdd(ctx, "ours"))
	must(client.RoleGrantPermission(ctx, "ours", "/ours/", clientv3.GetPrefixRangeEnd("/ours/"),
		clientv3.PermissionType(clientv3.PermReadWrite)))
	must(client.UserGrantRole(ctx, "u", "ours"))
	must(client.AuthEnable(ctx))
	address := strings.Replace(cluster.URL(""), "etcd://", "etcd://u:p@", 1)
	serve(t, address+"/ours").do(t, named(gatehouse.Lock, "a"), acquire("one"), gatehouse.Granted)
	change := &cas.RecordChange{Next: []byte("x"), Keep: time.Minute}
	if _, err := backend(t, address+"/other").Swap(ctx, named(gatehouse.Lock, "a"), change); !errors.Is(err,
		cas.ErrRefused) {
		t.Errorf("swap below another prefix = %v, want it refused", err)
	}
}

// Records are listed in the order of names, each once, over several pages.
func TestRange(t *testing.T) {
	t.Parallel()
	b := backend(t, etcdtest.Start(t, 1).URL(""))
	names := []string{"%", "%2F", "/", "a", "a/", "a/b", "a0", "ä"}
	for n := range 2*pageSize + 3 {
		names = append(names, fmt.Sprintf("n%03d", n))
	}
	slices.Sort(names)
	for _, name := range names {
		put(t, b, named(gatehouse.Counter, name), &cas.RecordChange{Next: []byte(name)})
	}
	put(t, b, named(gatehouse.Lock, "lock"), &cas.RecordChange{
		Next: []byte("lock"), Begin: []control.Hold{{Holder: "h", Fence: 1}},
	})
	for _, after := range []string{"", "a/b", "n", names[len(names)-1]} {
		var got []string
		err := b.Range(t.Context(), gatehouse.Counter, after, func(name string, record []byte) bool {
			if name != string(record) {
				t.Errorf("the record of %q is %q", name, record)
			}
			got = append(got, name)
			return true
		})
		want := slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name <= after })
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("after %q there are %q, %v, want %q", after, got, err, want)
		}
	}
	visits := 0
	_ = b.Range(t.Context(), gatehouse.Counter, "", func(string, []byte) bool { visits++; return visits < 5 })
	if visits != 5 {
		t.Errorf("%d visits, want 5", visits)
	}
}

// A record is under a lease that lasts for what it is worth at least, and not much longer. Many share one.
func TestRecordsGo(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	b, client := backend(t, cluster.URL("")), cluster.Client(t)
	leases := map[int64]bool{}
	for _, keep := range []time.Duration{1, time.Minute, 65 * time.Second, time.Hour, gatehouse.MaxDuration} {
		for n := range 3 {
			key := named(gatehouse.GCRA, fmt.Sprint(keep, n))
			put(t, b, key, &cas.RecordChange{Next: []byte("x"), Keep: keep})
			response, err := client.Get(t.Context(), b.keys.recordKey(key))
			if err != nil || len(response.Kvs) != 1 || response.Kvs[0].Lease == 0 {
				t.Fatalf("%s is %v, %v, want it under a lease", key, response, err)
			}
			lease := response.Kvs[0].Lease
			leases[lease] = true
			left, err := client.TimeToLive(t.Context(), clientv3.LeaseID(lease))
			most := max(4*int64(keep/time.Second), 4*minSharedLength) + sharedMargin
			if err != nil || left.TTL < ttl(keep) || left.TTL > most {
				t.Errorf("a record worth something for %v goes in %d s, %v", keep, left.TTL, err)
			}
		}
	}
	if len(leases) != 4 { // the first two share one
		t.Errorf("the records have %d leases, want 4", len(leases))
	}
	for range maxUses + 1 {
		id, err := b.pool.leaseFor(t.Context(), time.Second)
		if err != nil {
			t.Fatal(err)
		}
		leases[int64(id)] = true
	}
	if len(leases) != 5 {
		t.Errorf("after %d more there are %d leases, want 5", maxUses+1, len(leases))
	}
	forever := named(gatehouse.Counter, "forever")
	put(t, b, forever, &cas.RecordChange{Next: []byte("x"), Keep: gatehouse.Forever})
	response, err := client.Get(t.Context(), b.keys.recordKey(forever))
	if err != nil || len(response.Kvs) != 1 || response.Kvs[0].Lease != 0 {
		t.Errorf("what is worth something for ever is %v, %v, want it under no lease", response, err)
	}
}
