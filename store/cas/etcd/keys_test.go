package etcd

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// No two names share a key, the holds of one are not among those of another, each key says whose it is, and
// records stand in the order of names.
func TestKeys(t *testing.T) {
	t.Parallel()
	name := rapid.OneOf(
		rapid.StringOfN(rapid.SampledFrom([]rune("%2F5/ab")), 1, 8, -1),
		rapid.StringN(1, 12, gatehouse.MaxName),
		rapid.StringOfN(rapid.SampledFrom([]rune("a/")), 60, 140, -1),
	)
	kind := rapid.SampledFrom([]gatehouse.Kind{gatehouse.Lock, gatehouse.Semaphore, gatehouse.SlidingLog})
	k := keys("/a/")
	rapid.Check(t, func(t *rapid.T) {
		one := gatehouse.Key{Kind: kind.Draw(t, "kind"), Name: name.Draw(t, "name")}
		two := gatehouse.Key{Kind: kind.Draw(t, "kind"), Name: name.Draw(t, "name")}
		if one != two && (k.recordKey(one) == k.recordKey(two) ||
			strings.HasPrefix(k.holdKey(two, 1), k.holdPrefix(one))) {
			t.Errorf("%q and %q share a key", one, two)
		}
		if one.Kind == two.Kind && (one.Name < two.Name) != (k.recordKey(one) < k.recordKey(two)) {
			t.Errorf("%q and %q have keys in another order", one.Name, two.Name)
		}
		if got, isHold, ok := k.parseKey(k.recordKey(one)); got != one || isHold || !ok {
			t.Errorf("the record of %q is of %q, a hold %t, ours %t", one, got, isHold, ok)
		}
		fence := rapid.Uint64Min(1).Draw(t, "fence")
		hold := k.holdKey(one, fence)
		got, isHold, ok := k.parseKey(hold)
		want := one
		if strings.Contains(hold, digestMark) {
			want = gatehouse.Key{}
		}
		if got != want || !isHold || !ok || fenceOf([]byte(hold)) != fence {
			t.Errorf("hold %d of %q is of %q, a hold %t, ours %t", fence, one, got, isHold, ok)
		}
	})
	for _, foreign := range []string{"", "/a/", "/b/records/lock/x", "/a/records/lock/", "/a/records/none/x",
		"/a/holds/lock/x", "/a/other/lock/x"} {
		if key, _, ok := k.parseKey(foreign); ok {
			t.Errorf("%q is taken for a key of %q", foreign, key)
		}
	}
}

// What is stored says which servers it concerns.
func TestSeal(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		change := cas.RecordChange{
			Next: rapid.SliceOf(rapid.Byte()).Draw(t, "record"),
			Wake: rapid.SliceOf(rapid.Uint32Range(1, 9)).Draw(t, "wake"),
		}
		stored := []byte(sealRecord(&change))
		if got := unsealRecord(stored); !bytes.Equal(got, change.Next) {
			t.Errorf("record %x became %x", change.Next, got)
		}
		for server := range uint32(10) {
			named := strings.ContainsRune(string(runes(change.Wake)), rune(server))
			if wakesServer(stored, server) != named {
				t.Errorf("wakes server %d = %t, want %t", server, !named, named)
			}
		}
		cut := stored[:rapid.IntRange(0, len(stored)).Draw(t, "cut")]
		unsealRecord(cut) // must not panic
		wakesServer(cut, 1)
	})
	crowd := cas.RecordChange{Next: []byte("x"), Wake: make([]uint32, allServers)}
	if stored := []byte(sealRecord(&crowd)); !wakesServer(stored, 7) || string(unsealRecord(stored)) != "x" {
		t.Error("a change that concerns more than can be counted does not wake everyone")
	}
}

func runes(servers []uint32) (all []rune) {
	for _, s := range servers {
		all = append(all, rune(s)) // at most 9
	}
	return all
}

// Addresses without a path have one. What is wrong is told without the password.
func TestOpen(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"etcd://h": "/gatehouse/", "etcd://h:2379,i:2379/": "/gatehouse/", "etcd://h/a/b": "/a/b/",
		"etcd://h/a/": "/a/", "etcd://h/a%20b": "/a b/", "etcd://h?": "/gatehouse/",
	} {
		b, err := Open(address)
		if err != nil {
			t.Errorf("Open(%q) = %v", address, err)
			continue
		}
		if string(b.keys) != want {
			t.Errorf("Open(%q) has keys below %q, want %q", address, b.keys, want)
		}
		if err := b.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	wrong := []string{"", "h", "redis://h", "etcd://", "etcd://h/a?ttl=1s", "etcd://u:secret@/a"}
	for _, address := range wrong {
		_, err := Open(address)
		if err == nil || strings.Contains(err.Error(), "secret") || Check(address) == nil {
			t.Errorf("Open(%q) = %v, want an error without the password", address, err)
		}
	}
	if path := withPath("etcd://u:p%2F@h?x=1"); path != "etcd://u:p%2F@h/gatehouse/?x=1" {
		t.Errorf("with the default path it is %q", path)
	}
}

// Lengths are rounded up to whole seconds, and records get more than they are worth.
func TestLengths(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]int64{
		0: 0, 1: 1, time.Second: 1, time.Second + 1: 2, gatehouse.MaxDuration: 100 * 365 * 24 * 3600,
	} {
		if got := ttl(d); got != want {
			t.Errorf("ttl(%v) = %d s, want %d s", d, got, want)
		}
	}
}
