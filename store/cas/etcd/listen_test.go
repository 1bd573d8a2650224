//go:build linux || darwin

package etcd

import (
	"fmt"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/etcdtest"
	"github.com/gatehousehq/gatehouse/store/cas"
)

// listen collects what a server hears. The first it hears is that it listens.
func listen(t *testing.T, b *Backend, number uint32) <-chan gatehouse.Key {
	t.Helper()
	heard := make(chan gatehouse.Key, 100)
	stop := b.Listen(number, func(key gatehouse.Key) {
		select {
		case heard <- key:
		default:
			t.Error("a server hears far too much")
		}
	})
	t.Cleanup(stop)
	hears(t, heard, gatehouse.Key{})
	return heard
}

// hears waits for the next that is heard.
func hears(t *testing.T, heard <-chan gatehouse.Key, want gatehouse.Key) {
	t.Helper()
	select {
	case got := <-heard:
		if got != want {
			t.Fatalf("heard of %q, want %q", got, want)
		}
	case <-time.After(patience):
		t.Fatalf("heard nothing, want to hear of %q", want)
	}
}

// A server hears of the changes that name it, of records that go, of holds that end by themselves, and of
// nothing else.
func TestListen(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	b, client := backend(t, cluster.URL("")), cluster.Client(t)
	heard := listen(t, backend(t, cluster.URL("")), 7)
	key, other := named(gatehouse.Lock, "a/b"), named(gatehouse.Lock, "end")
	hold := control.Hold{Holder: "h", Fence: 5, Expires: time.Second}
	r := put(t, b, key, &cas.RecordChange{Next: []byte("1"), Begin: []control.Hold{hold}})
	r = put(t, b, key, &cas.RecordChange{If: r.Version, Next: []byte("2"), Wake: []uint32{6, 8}})
	put(t, b, other, &cas.RecordChange{Next: []byte("2"), Wake: []uint32{7}})
	hears(t, heard, other) // and none before
	hears(t, heard, key)   // by the end of the hold
	hold.Fence, hold.Expires = 6, 0
	r = put(t, b, key, &cas.RecordChange{If: r.Version, Next: []byte("3"), Begin: []control.Hold{hold}})
	r = put(t, b, key, &cas.RecordChange{If: r.Version, Next: []byte("4"), End: []control.Hold{hold}})
	put(t, b, key, &cas.RecordChange{If: r.Version})
	hears(t, heard, key) // by its delete
	foreign := []string{"/gatehouse/foreign", "/gatehouse/records/foreign/x", "/gatehouse/records/lock/"}
	for _, text := range foreign {
		if _, err := client.Put(t.Context(), text, "\xff\xff"); err != nil {
			t.Fatal(err)
		}
	}
	put(t, b, key, &cas.RecordChange{Next: []byte("5"), Wake: []uint32{7}})
	hears(t, heard, key)
}

// A server that could not hear for a while is told that it may have missed something: after a broken
// connection, after one that was silent, and when etcd does not know any more what has been.
func TestListenerIsCutOff(t *testing.T) {
	t.Parallel()
	cluster := etcdtest.Start(t, 1)
	b, client := backend(t, cluster.URL("")), cluster.Client(t)
	link := etcdtest.NewLink(t, cluster)
	heard := listen(t, backend(t, link.URL("")), 7)
	key := named(gatehouse.Lock, "a")
	link.Hang()
	r := put(t, b, key, &cas.RecordChange{Next: []byte("1"), Wake: []uint32{7}})
	link.Mend()
	hearsEither(t, b, heard, key)

	link.Hang()
	r = put(t, b, key, &cas.RecordChange{If: r.Version, Next: []byte("2"), Wake: []uint32{7}})
	r = put(t, b, key, &cas.RecordChange{If: r.Version, Next: []byte("3"), Wake: []uint32{7}})
	if _, err := client.Compact(t.Context(), int64(r.Version)); err != nil { // it is small
		t.Fatal(err)
	}
	link.Mend()
	hearsEither(t, b, heard, key)

	cluster.Pause(0)
	taken := link.Taken()
	await.True(t, "it gives up and connects again", func() bool { return link.Taken() > taken })
	cluster.Resume(0)
	hearsEither(t, b, heard, key)
	put(t, b, key, &cas.RecordChange{If: r.Version, Next: []byte("4"), Wake: []uint32{7}})
	hears(t, heard, key)
}

// hearsEither waits until it hears of a key or that anything may have changed, and then of a mark that is
// made behind it. A mark made before it listens again is not heard, but something else is, and the next mark.
func hearsEither(t *testing.T, b *Backend, heard <-chan gatehouse.Key, want gatehouse.Key) {
	t.Helper()
	var mark gatehouse.Key
	for marks := 0; ; {
		select {
		case got := <-heard:
			if marks > 0 && got == mark {
				return
			}
			if marks > 0 && got.Kind == gatehouse.Event {
				continue // an earlier mark: if the last one is missed, everything is heard of again
			}
			if got != want && got != (gatehouse.Key{}) && got.Kind != gatehouse.Event {
				t.Fatalf("heard of %q, want %q or of everything", got, want)
			}
			marks++
			mark = named(gatehouse.Event, fmt.Sprintf("mark of %d %d", time.Now().UnixNano(), marks))
			put(t, b, mark, &cas.RecordChange{Next: []byte("1"), Wake: []uint32{7}})
		case <-time.After(patience):
			t.Fatalf("heard nothing, want to hear of %q", want)
		}
	}
}
