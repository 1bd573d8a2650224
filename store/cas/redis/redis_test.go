package redis_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/redistest"
	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/gatehousehq/gatehouse/store/cas/redis"
	"go.uber.org/goleak"
)

// rueidis looks at a cluster anew some time after a connection was lost, and closes connections to servers
// that left it 5 s later, in goroutines that sleep until then.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"))
}

// open returns a backend that ends with the test.
func open(tb testing.TB, address string) *redis.Backend {
	tb.Helper()
	b, err := redis.Open(address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(b.Close)
	return b
}

// soonest is a context for one call.
func soonest(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// patience is longer than anything takes here.
const patience = time.Minute

// record is one that a change with this nonce writes.
func record(nonce uint64, text string) []byte {
	return append(binary.BigEndian.AppendUint64([]byte{1}, nonce), text...)
}

func key(name string) gatehouse.Key { return gatehouse.Key{Kind: gatehouse.Lock, Name: name} }

// ask swaps, and fails the test when that fails.
func ask(t *testing.T, b *redis.Backend, k gatehouse.Key, change *cas.RecordChange) cas.Reply {
	t.Helper()
	reply, err := b.Swap(soonest(t), k, change)
	if err != nil {
		t.Fatalf("Swap(%v, %+v): %v", k, change, err)
	}
	if passed := time.Since(reply.Now); passed < -time.Second || passed > time.Minute {
		t.Errorf("Swap(%v).Now is %v ago, want the present time", k, passed)
	}
	return reply
}

func TestSwap(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, k := open(t, "redis://"+server.Address), key("a b")
	const never, minute = 1<<64 - 1, time.Minute // a version that no record has
	first, second := record(1, "first"), record(1<<63+2, "\x00second\r\n")
	steps := []struct {
		what   string
		change cas.RecordChange
		want   cas.Reply
	}{
		{"read none", cas.RecordChange{If: never, Read: true}, cas.Reply{}},
		{"read none that is expected", cas.RecordChange{Read: true}, cas.Reply{Swapped: true}},
		{"replace none", cas.RecordChange{If: 9, Next: first, Nonce: 1, Keep: time.Minute}, cas.Reply{}},
		{"delete none", cas.RecordChange{If: 9, Nonce: 1}, cas.Reply{}},
		{"make", cas.RecordChange{Next: first, Nonce: 1, Keep: minute}, cas.Reply{Swapped: true, Version: 1}},
		{
			"make again", cas.RecordChange{Next: second, Nonce: 2, Keep: minute},
			cas.Reply{Record: first, Version: 1},
		},
		{"read the same", cas.RecordChange{If: 1, Read: true}, cas.Reply{Swapped: true, Version: 1}},
		{"read", cas.RecordChange{If: never, Read: true}, cas.Reply{Record: first, Version: 1}},
		{
			"replace", cas.RecordChange{If: 1, Next: second, Nonce: 1<<63 + 2, Keep: gatehouse.Forever},
			cas.Reply{Swapped: true, Version: 1<<63 + 2},
		},
		{
			"replace the old", cas.RecordChange{If: 1, Next: first, Nonce: 3, Keep: 1},
			cas.Reply{Record: second, Version: 1<<63 + 2},
		},
		{"delete the old", cas.RecordChange{If: 1, Nonce: 3}, cas.Reply{Record: second, Version: 1<<63 + 2}},
		{"delete", cas.RecordChange{If: 1<<63 + 2, Nonce: 4}, cas.Reply{Swapped: true}},
		{"read the deleted", cas.RecordChange{If: never, Read: true}, cas.Reply{}},
		{
			"make without end", cas.RecordChange{Next: first, Nonce: 1, Keep: gatehouse.Forever},
			cas.Reply{Swapped: true, Version: 1},
		},
	}
	for _, s := range steps {
		got := ask(t, b, k, &s.change)
		got.Now = time.Time{}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", s.want) {
			t.Errorf("%s = %+v, want %+v", s.what, got, s.want)
		}
	}
	if ttl := server.Int(t, "PTTL", "gatehouse:lock/a b"); ttl != -1 {
		t.Errorf("PTTL of a record without end = %d, want -1", ttl)
	}
	ask(t, b, k, &cas.RecordChange{If: 1, Next: second, Nonce: 2, Keep: time.Hour + 1})
	if ttl := server.Int(t, "PTTL", "gatehouse:lock/a b"); ttl < 3_000_000 || ttl > 3_600_001 {
		t.Errorf("PTTL = %d, want 3600001 and less what has passed", ttl)
	}
	if clients := server.CLI(t, "CLIENT", "LIST"); strings.Count(clients, "\n") > 2 {
		t.Errorf("the clients are\n%s\nwant one and redis-cli", clients)
	}
}

// What is at the key and is none of our records is left alone.
func TestForeign(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b := open(t, "redis://"+server.Address)
	for _, text := range []string{"x", "", "gate", strings.Repeat("y", 100)} {
		server.CLI(t, "SET", "gatehouse:lock/foreign", text)
		reply := ask(t, b, key("foreign"),
			&cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Minute})
		if reply.Swapped || string(reply.Record) != text || reply.Record == nil {
			t.Errorf("Swap over %q = %+v, want it not swapped, and the foreign text", text, reply)
		}
	}
	server.CLI(t, "RPUSH", "gatehouse:lock/list", "x")
	for _, change := range []cas.RecordChange{
		{If: 1, Next: record(1, ""), Nonce: 1}, {If: 1, Read: true}, {Next: record(1, ""), Nonce: 1},
		{If: 1, Nonce: 1},
	} {
		if _, err := b.Swap(soonest(t), key("list"), &change); !errors.Is(err, cas.ErrRefused) {
			t.Errorf("Swap(%+v) over a list: %v, want ErrRefused", change, err)
		}
	}
}

// A change is told to the servers it names and to no others, and a lost connection wakes all.
func TestListen(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, k := open(t, "redis://"+server.Address), key("a{b}%")
	heard := [3]chan gatehouse.Key{}
	for i := range heard {
		heard[i] = make(chan gatehouse.Key, 100)
		stop := b.Listen(uint32(i+1), func(k gatehouse.Key) { heard[i] <- k })
		t.Cleanup(stop)
		wantKey(t, heard[i], gatehouse.Key{})
	}
	ask(t, b, k, &cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Minute})
	second := cas.RecordChange{
		If: 9, Next: record(2, ""), Nonce: 2, Keep: time.Minute, Wake: []uint32{1, 2, 3}}
	ask(t, b, k, &second)
	second.If, second.Wake = 1, []uint32{1, 3, 99}
	ask(t, b, k, &second)
	wantKey(t, heard[0], k)
	wantKey(t, heard[2], k)
	ask(t, b, k, &cas.RecordChange{If: 2, Nonce: 3, Wake: []uint32{2}})
	wantKey(t, heard[1], k)
	server.CLI(t, "CLIENT", "KILL", "TYPE", "pubsub")
	for i := range heard {
		wantKey(t, heard[i], gatehouse.Key{})
	}
	for i := range heard {
		if len(heard[i]) > 0 {
			t.Errorf("server %d heard %d keys more, want none", i+1, len(heard[i]))
		}
	}
}

func wantKey(t *testing.T, from <-chan gatehouse.Key, want gatehouse.Key) {
	t.Helper()
	select {
	case k := <-from:
		if k != want {
			t.Errorf("heard of %v, want %v", k, want)
		}
	case <-time.After(patience):
		t.Fatalf("heard of nothing, want %v", want)
	}
}

// Range visits the names of one kind in order, from any place, and only of its prefix.
func TestRange(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	b, other := open(t, "redis://"+server.Address), open(t, "redis://"+server.Address+"?prefix=other:")
	var want []string
	for i := range 1500 {
		name := fmt.Sprintf("%%{%04d}", i)
		want = append(want, name)
		nonce := uint64(i + 1)
		ask(t, b, key(name), &cas.RecordChange{Next: record(nonce, name), Nonce: nonce, Keep: time.Minute})
	}
	event := gatehouse.Key{Kind: gatehouse.Event, Name: "event"}
	ask(t, b, event, &cas.RecordChange{Next: record(1, ""), Nonce: 1})
	ask(t, other, key("other"), &cas.RecordChange{Next: record(1, ""), Nonce: 1, Keep: time.Minute})
	server.CLI(t, "SET", "gatehouse:lock/%zz", "no name")
	for _, c := range []struct {
		after string
		most  int
		want  []string
	}{
		{"", 9999, want}, {"", 3, want[:3]}, {want[700], 450, want[701:1151]}, {want[1499], 5, nil},
	} {
		var got []string
		err := b.Range(soonest(t), gatehouse.Lock, c.after, func(name string, data []byte) bool {
			if string(data[9:]) != name {
				t.Errorf("Range visits %q with %q, want its record", name, data)
			}
			got = append(got, name)
			return len(got) < c.most
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("Range(%q), the first %d = %d names, %v, want %d: %.3q",
				c.after, c.most, len(got), err, len(c.want), got)
		}
	}
}

// Ping says what is wrong.
func TestPing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--requirepass", "right")
	if err := open(t, "redis://:right@"+server.Address).Ping(soonest(t)); err != nil {
		t.Errorf("Ping: %v", err)
	}
	for address, want := range map[string]error{
		"redis://" + server.Address: cas.ErrRefused, "redis://:wrong@" + server.Address: cas.ErrRefused,
		"redis://me:wrong@" + server.Address: cas.ErrRefused, "redis://127.0.0.1:1": cas.ErrNotSent,
		"rediss://" + server.Address: cas.ErrNotSent,
	} {
		err := open(t, address).Ping(soonest(t))
		if !errors.Is(err, want) || strings.Contains(err.Error(), ":wrong") {
			t.Errorf("Ping of %s: %v, want %v", address, err, want)
		}
	}
}
