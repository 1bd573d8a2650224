package redisstore_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/redistest"
	sw "github.com/gatehousehq/gatehouse/slidingwindow"
	"github.com/gatehousehq/gatehouse/slidingwindow/redisstore"
	"github.com/redis/rueidis"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newStore returns a store at a server, by a client of its own.
func newStore(t *testing.T, server *redistest.Server) *redisstore.Store {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{server.Address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return redisstore.New(client, time.Minute)
}

// exchange carries out pushes, and fails the test when one fails.
func exchange(t *testing.T, store *redisstore.Store, pushes ...sw.Push) (totals []int64) {
	t.Helper()
	store.Exchange(t.Context(), pushes)
	for _, p := range pushes {
		if p.Err != nil {
			t.Fatalf("Exchange(%+v): %v", p, p.Err)
		}
		totals = append(totals, p.Total)
	}
	return totals
}

func wantTotals(t *testing.T, got []int64, want ...int64) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("totals = %v, want %v", got, want)
	}
}

// The count of key "user 1" from 2 s on is "user 1@2000000000", and expires with its window.
func TestLayout(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, server)
	total, err := store.Add("user 1", 2e9, 5)
	if err != nil || total != 5 {
		t.Errorf("Add = %d, %v, want 5", total, err)
	}
	if ttl := server.Int(t, "PTTL", "user 1@2000000000"); ttl <= 50_000 || ttl > 60_000 {
		t.Errorf("PTTL = %d, want 60000 and less what has passed", ttl)
	}
	server.CLI(t, "INCRBY", "user 1@2000000000", "2")
	if total, err = store.Get("user 1", 2e9); err != nil || total != 7 {
		t.Errorf("Get = %d, %v, want 7", total, err)
	}
	if total, err = store.Get("user 2", 2e9); err != nil || total != 0 {
		t.Errorf("Get = %d, %v, want 0", total, err)
	}
	wantTotals(t, exchange(t, store,
		sw.Push{Key: "user 1", Start: 2e9, Source: 9, Sum: 3, Delta: 3, Keep: 90 * time.Second},
		sw.Push{Key: "user 3", Start: 2e9},
	), 10, 0)
	wantTotals(t, exchange(t, store, sw.Push{Key: "user 1", Start: 2e9}), 10)
	for _, key := range []string{"user 1@2000000000", "{user 1@2000000000}/sums"} {
		if ttl := server.Int(t, "PTTL", key); ttl <= 80_000 || ttl > 90_000 {
			t.Errorf("PTTL %q = %d, want 90000 and less what has passed", key, ttl)
		}
	}
	if text := server.CLI(t, "GET", "user 1@2000000000"); text != "10" {
		t.Errorf("GET = %q, want 10", text)
	}
}

// What is pushed again counts once, and what comes late counts not at all.
func TestPushAgain(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, server)
	push := func(source uint64, sum int64) sw.Push {
		return sw.Push{Key: "a", Start: 1, Source: source, Sum: sum, Delta: sum}
	}
	wantTotals(t, exchange(t, store, push(1, 3)), 3)
	wantTotals(t, exchange(t, store, push(1, 3)), 3)
	wantTotals(t, exchange(t, store, push(2, 4)), 7)
	wantTotals(t, exchange(t, store, push(1, 12)), 16)
	wantTotals(t, exchange(t, store, push(1, 3), push(1, 9), push(2, 4)), 16, 16, 16)
	server.CLI(t, "DEL", "a@1")
	wantTotals(t, exchange(t, store, push(2, 4), push(1, 13)), 4, 17)
}

// Counts are exact to the last of 63 bits, and stay at the largest.
func TestHugeCounts(t *testing.T) {
	store := newStore(t, redistest.Start(t))
	const odd = 1<<53 + 1 // a number of Lua is not
	push := func(sum int64) sw.Push { return sw.Push{Key: "a", Source: 1, Sum: sum, Delta: 1} }
	wantTotals(t, exchange(t, store, push(odd), push(odd+2)), odd, odd+2)
	wantTotals(t, exchange(t, store, push(math.MaxInt64)), math.MaxInt64)
	wantTotals(t, exchange(t, store, sw.Push{Key: "a", Source: 2, Sum: 1, Delta: 1}), math.MaxInt64)
	if total, err := store.Add("a", 0, 1); err != nil || total != math.MaxInt64 {
		t.Errorf("Add = %d, %v, want the largest", total, err)
	}
	if total, err := store.Add("a", 0, -1); err != nil || total != math.MaxInt64-1 {
		t.Errorf("Add = %d, %v, want one less than the largest", total, err)
	}
}

// A key that is something else fails alone.
func TestForeignKey(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, server)
	server.CLI(t, "SET", "words@0", "many")
	server.CLI(t, "LPUSH", "list@0", "1")
	pushes := []sw.Push{
		{Key: "words", Source: 1, Sum: 1, Delta: 1}, {Key: "list", Source: 1, Sum: 1, Delta: 1},
		{Key: "words"}, {Key: "list"}, {Key: "count", Source: 1, Sum: 1, Delta: 1},
	}
	store.Exchange(t.Context(), pushes)
	for i, p := range pushes {
		if failed := p.Err != nil; failed != (p.Key != "count") {
			t.Errorf("push %d of %s: %v", i, p.Key, p.Err)
		}
	}
	if _, err := store.Add("words", 0, 1); err == nil {
		t.Error("Add to a word succeeds, want an error")
	}
}

// In a cluster the sums lie where their count does, whatever its name.
func TestCluster(t *testing.T) {
	nodes := t.TempDir() + "/nodes"
	server := redistest.Start(t, "--cluster-enabled", "yes", "--cluster-config-file", nodes)
	server.CLI(t, "CLUSTER", "ADDSLOTSRANGE", "0", "16383")
	redistest.Until(t, func() bool {
		return strings.HasPrefix(server.CLI(t, "CLUSTER", "INFO"), "cluster_state:ok")
	})
	store := newStore(t, server)
	keys := []string{"a", "{user}:1", "{", "}", "{}", "a{}b", "a}b", "a{b", "{}{x}", "{{x}}", ""}
	for _, key := range keys {
		push := sw.Push{Key: key, Start: 5, Source: 1, Sum: 2, Delta: 2}
		wantTotals(t, exchange(t, store, push), 2)
		wantTotals(t, exchange(t, store, sw.Push{Key: key, Start: 5}), 2)
	}
}

// A server that comes back empty does not know the scripts any more.
func TestRestart(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, server)
	push := sw.Push{Key: "a", Source: 1, Sum: 2, Delta: 2}
	wantTotals(t, exchange(t, store, push), 2)
	server.Restart(t)
	for range 2 { // the first finds its script unknown, the second known
		pushes := []sw.Push{push}
		redistest.Until(t, func() bool { // each of the client's connections to the one before ends first
			store.Exchange(t.Context(), pushes)
			return pushes[0].Err == nil
		})
		wantTotals(t, []int64{pushes[0].Total}, 2)
	}
}

// A server that does not answer is given up on.
func TestFrozen(t *testing.T) {
	server := redistest.Start(t)
	store := newStore(t, server)
	server.Freeze()
	defer server.Thaw()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	pushes := []sw.Push{{Key: "a", Source: 1, Sum: 2, Delta: 2}, {Key: "b"}}
	store.Exchange(ctx, pushes)
	if pushes[0].Err == nil || pushes[1].Err == nil {
		t.Errorf("errors = %v and %v, want two", pushes[0].Err, pushes[1].Err)
	}
	if _, err := store.Get("a", 0); err == nil {
		t.Error("Get succeeds, want an error")
	}
}

func TestExpiresIsChecked(t *testing.T) {
	defer func() {
		if got, want := recover(), "redisstore: expires is 0s, want at least 1ms"; got != want {
			t.Errorf("New panics with %v, want %q", got, want)
		}
	}()
	redisstore.New(nil, 0)
}
