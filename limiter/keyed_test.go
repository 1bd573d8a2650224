package limiter_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/limiter"
)

// newKeyed is NewKeyed for one per second, evenly.
func newKeyed(t *testing.T, maxKeys int) *limiter.Keyed {
	t.Helper()
	k, err := limiter.NewKeyed(limiter.Rate{Size: 1, Interval: time.Second}, maxKeys)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestKeysAreApart(t *testing.T) {
	k, now := newKeyed(t, 0), time.Now()
	for _, key := range []string{"", "a", "b", "ä", "\x00", strings.Repeat("x", limiter.MaxKey)} {
		if !k.AllowAt(key, now, 1) || k.AllowAt(key, now, 1) {
			t.Errorf("key %q: want one allowed and no more", key)
		}
	}
	if got := k.Len(); got != 6 {
		t.Errorf("Len = %d, want 6", got)
	}
	k.Reset("a")
	if !k.AllowAt("a", now, 1) || k.AllowAt("b", now, 1) {
		t.Error("after a Reset of key a, want it allowed, and b as before")
	}
}

// refused fails unless nothing is let through for the key, and nothing kept about it.
func refused(t *testing.T, k *limiter.Keyed, key string, now time.Time) {
	t.Helper()
	before := k.Len()
	want := limiter.Decision{Limit: 1, RetryAfter: gatehouse.Forever, ResetAfter: gatehouse.Forever}
	if got := k.DecideAt(key, now, 1); got != want {
		t.Errorf("DecideAt(%.9q, 1) = %+v, want %+v", key, got, want)
	}
	if k.AllowAt(key, now, 1) {
		t.Errorf("AllowAt(%.9q, 1) = true, want false", key)
	}
	if _, ok := k.ReserveAt(key, now, 1); ok {
		t.Errorf("ReserveAt(%.9q, 1) = true, want false", key)
	}
	if err := k.Wait(t.Context(), key, 1); gatehouse.CodeOf(err) != gatehouse.CodeInvalid {
		t.Errorf("Wait(%.9q, 1) = %v, want invalid", key, err)
	}
	if got := k.Len(); got != before {
		t.Errorf("Len after asking for %.9q = %d, want %d", key, got, before)
	}
}

func TestMaxKey(t *testing.T) {
	refused(t, newKeyed(t, 0), strings.Repeat("x", limiter.MaxKey+1), time.Now())
}

func TestMaxKeys(t *testing.T) {
	for _, most := range []int{1, 7, 100, 5000} {
		k, now := newKeyed(t, most), time.Now()
		for i := range most {
			if !k.AllowAt(fmt.Sprint(i), now, 1) {
				t.Fatalf("key %d of %d is refused, want it allowed", i+1, most)
			}
		}
		if got := k.Len(); got != most {
			t.Errorf("Len = %d, want %d", got, most)
		}
		// All of them are worth something until then.
		for i := range 3 {
			refused(t, k, fmt.Sprint("more", i), now.Add(time.Second-1))
		}
		if k.AllowAt("0", now.Add(time.Second-1), 1) || !k.AllowAt("0", now.Add(time.Second), 1) {
			t.Errorf("with %d keys, one that is kept is not treated as ever", most)
		}
	}
}

// TestRoomForNewKeys: in a full table whose keys are all worth nothing, new ones find room: the first at
// once, and few are refused while the others are found one by one.
func TestRoomForNewKeys(t *testing.T) {
	for _, most := range []int{1, 60, 1000, 30_000} {
		k, now := newKeyed(t, most), time.Now()
		for round := range 3 {
			if !k.AllowAt(fmt.Sprint("first of ", round), now, 1) {
				t.Fatalf("with %d at most, the first new key is refused, want it allowed", most)
			}
			if refused := refusals(k, fmt.Sprint("of ", round), now, most-1); refused > most/5 {
				t.Errorf("of %d new keys %d are refused, want at most a fifth", most, refused)
			}
			now = now.Add(time.Second)
		}
		if got := k.Len(); got > most {
			t.Errorf("Len = %d, want at most %d", got, most)
		}
	}
}

// refusals is how many of so many new keys are refused.
func refusals(k *limiter.Keyed, prefix string, now time.Time, keys int) (refused int) {
	for i := range keys {
		if !k.AllowAt(fmt.Sprint(prefix, i), now, 1) {
			refused++
		}
	}
	return refused
}

// TestKeysAreDropped: of a stream of new keys, only those are kept that are worth something, and at
// most as many more.
func TestKeysAreDropped(t *testing.T) {
	const alive = 2000 // new ones in the second that each is worth something
	k, now, most := newKeyed(t, 0), time.Now(), 0
	for i := range 100 * alive {
		now = now.Add(time.Second / alive)
		k.AllowAt(fmt.Sprint(i), now, 1)
		most = max(most, k.Len())
	}
	const slack = 320 * 16 // what each part may have before it is looked at for the first time
	if most > 2*alive+slack {
		t.Errorf("most keys that were kept = %d, want at most %d", most, 2*alive+slack)
	}
}

// TestUseOfOldKeysDropsOthers: without any new key, those that are used make room of the others.
func TestUseOfOldKeysDropsOthers(t *testing.T) {
	const keys, used, times = 20_000, 4000, 60
	k, now := newKeyed(t, 0), time.Now()
	for i := range keys {
		k.AllowAt(fmt.Sprint(i), now, 1)
	}
	if got := k.Len(); got != keys {
		t.Fatalf("Len = %d, want %d", got, keys)
	}
	useAgain(k, now, used, times)
	if got := k.Len(); got > used+keys/20 {
		t.Errorf("Len after %d uses of %d = %d, want at most %d", times, used, got, used+keys/20)
	}
}

// TestMemoryComesBack: what many keys took is free when they are dropped.
func TestMemoryComesBack(t *testing.T) {
	const keys, used, times = 50_000, 4000, 100
	k, now := newKeyed(t, 0), time.Now()
	empty := heap()
	for i := range keys {
		k.AllowAt(fmt.Sprint(i), now, 1)
	}
	full := heap() - empty
	useAgain(k, now, used, times)
	if left := heap() - empty; left > full/5 {
		t.Errorf("heap for %d keys %d B, for %d of them %d B, want at most a fifth",
			keys, full, k.Len(), left)
	}
	if each := full / keys; each > 100 { // 8 of them the key's own bytes
		t.Errorf("a key takes %d B, want at most 100", each)
	}
}

// TestKeysAreCopied: a key that is cut out of something large does not keep all of that.
func TestKeysAreCopied(t *testing.T) {
	const keys, large = 200, 1 << 16
	k, now := newKeyed(t, 0), time.Now()
	before := heap()
	for i := range keys {
		header := fmt.Sprint(i, strings.Repeat(" ", large))
		k.AllowAt(header[:8], now, 1)
	}
	if grown := heap() - before; grown > keys*large/10 {
		t.Errorf("heap for %d keys cut out of %d B each = %d B, want far less", k.Len(), large, grown)
	}
}

// useAgain uses some of the keys a few times, when they are worth nothing any more.
func useAgain(k *limiter.Keyed, now time.Time, used, times int) {
	for range times {
		now = now.Add(time.Second)
		for i := range used {
			k.AllowAt(fmt.Sprint(i), now, 1)
		}
	}
}

// heap is what the heap holds after a collection.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func TestKeyedSetRate(t *testing.T) {
	k, now := newKeyed(t, 0), time.Now()
	k.AllowAt("key", now, 1)
	faster := limiter.Rate{Size: 10, Interval: time.Second, Burst: 1}
	if err := k.SetRate(faster); err != nil || k.Rate() != faster {
		t.Fatalf("SetRate = %v, rate %+v, want %+v", err, k.Rate(), faster)
	}
	want := limiter.Decision{Limit: 2, RetryAfter: 900 * time.Millisecond, ResetAfter: time.Second}
	if got := k.PeekAt("key", now, 1); got != want {
		t.Errorf("PeekAt = %+v, want %+v", got, want)
	}
	if err := k.SetRate(limiter.Rate{}); err == nil || k.Rate() != faster {
		t.Errorf("SetRate of nothing = %v, rate %+v, want an error and the rate as before", err, k.Rate())
	}
}

// TestKeyedWithoutAt uses what reads the clock.
func TestKeyedWithoutAt(t *testing.T) {
	k, err := limiter.NewKeyed(limiter.Rate{Size: 1, Interval: time.Hour, Burst: 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !k.Allow("key") || !k.AllowN("key", 1) || k.AllowN("key", 1) || k.Decide("key", 1).Allowed {
		t.Error("want two allowed and no more")
	}
	if d := k.Delay("key", 1); d <= 59*time.Minute || d > time.Hour {
		t.Errorf("Delay = %s, want nearly 1h", d)
	}
	r, ok := k.Reserve("key", 1)
	if !ok || r.Delay() <= 59*time.Minute || !r.Cancel() {
		t.Errorf("Reserve = %t, in %s, want one that lies ahead", ok, r.Delay())
	}
	k.Refund("key", 1)
	if d := k.Peek("key", 1); !d.Allowed || d.Remaining != 1 || k.Len() != 1 {
		t.Errorf("Peek after a Refund = %+v, want 1 left", d)
	}
	k.Refund("key", 1)
	if d := k.Peek("key", 1); d.Remaining != 2 || k.Len() != 0 {
		t.Errorf("Peek after another = %+v, Len %d, want 2 left and the key gone", d, k.Len())
	}
}
