package cas

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/control"
)

// drawRecord makes up a record.
func drawRecord(rng *rand.Rand) storedRecord {
	r := storedRecord{
		asOf: rng.Int64() - rng.Int64(), deletedAt: rng.Int64N(1 << 40), fence: rng.Uint64() >> rng.IntN(64),
	}
	for range 1 + rng.IntN(2*maxNonces) {
		r = r.nextRecord(rng.Uint64())
	}
	for range rng.IntN(4) {
		r.heads = append(r.heads, lineHead{
			server: rng.Uint32(), ticket: control.Ticket(rng.Uint64()),
			since: rng.Int64(), until: rng.Int64(),
			nonBlocking: rng.IntN(2) > 0, waiting: rng.Int32N(maxTold + 1),
		})
	}
	for range rng.IntN(2 * maxDoneUndos) {
		(&undo{id: rng.Uint64()}).markDone(&r)
	}
	if rng.IntN(4) > 0 {
		r.encodedState = make([]byte, rng.IntN(40))
		for i := range r.encodedState {
			r.encodedState[i] = byte(rng.Uint32())
		}
	}
	return r
}

// What was encoded is decoded the same, and its nonce is where backends look for it.
func TestRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		want := drawRecord(rng)
		data := want.encodeRecord()
		got, err := decodeRecord(data)
		if err != nil || !reflect.DeepEqual(got.nonces(), want.nonces()) || got.asOf != want.asOf ||
			got.deletedAt != want.deletedAt || got.fence != want.fence ||
			!slices.Equal(got.heads, want.heads) ||
			(got.encodedState == nil) != (want.encodedState == nil) ||
			!bytes.Equal(got.encodeRecord(), data) {
			t.Fatalf("decoded as\n%+v, %v\nwant\n%+v", got, err, want)
		}
		if nonce := binary.BigEndian.Uint64(data[NonceAt:]); nonce != want.recentNonces[0] {
			t.Fatalf("the nonce at %d is %x, want %x", NonceAt, nonce, want.recentNonces[0])
		}
	}
}

// A record that was cut, or in which a bit has changed, is not taken for one.
func TestDamagedRecord(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 20 {
		r := drawRecord(rng)
		data := r.encodeRecord()
		for i := range 8 * len(data) {
			bad := bytes.Clone(data)
			bad[i/8] ^= 1 << (i % 8)
			if _, err := decodeRecord(bad); err == nil {
				t.Fatalf("%x: bit %d can be flipped", data, i)
			}
			if _, err := decodeRecord(data[:i/8]); err == nil {
				t.Fatalf("%x: the first %d bytes pass", data, i/8)
			}
		}
	}
}

// seal gives bytes the right checksum, so that what is behind it is reached.
func seal(body []byte) []byte {
	return binary.BigEndian.AppendUint32(bytes.Clone(body), checksum(body))
}

func FuzzRecord(f *testing.F) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 20 {
		r := drawRecord(rng)
		data := r.encodeRecord()
		f.Add(data)
		f.Add(data[:len(data)-4])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, form := range [][]byte{data, seal(data)} {
			r, err := decodeRecord(form)
			if err != nil {
				continue
			}
			again, err := decodeRecord(r.encodeRecord())
			if err != nil || !reflect.DeepEqual(again.heads, r.heads) ||
				!bytes.Equal(again.encodedState, r.encodedState) {
				t.Fatalf("%x is %+v, and %+v, %v when encoded again", form, r, again, err)
			}
		}
	})
}

// The time of a record rises by every change, stands nearly still while the store's is a little behind, and
// is given up when that is far behind.
func TestTimeOfARecord(t *testing.T) {
	r := storedRecord{asOf: int64(time.Hour)}
	for _, c := range []struct{ now, want time.Duration }{
		{time.Hour + time.Second, time.Hour + time.Second},
		{time.Hour, time.Hour + 1},
		{time.Hour - time.Second, time.Hour + 1},
		{time.Hour - maxBackwards, time.Hour + 1},
		{time.Hour - maxBackwards - 1, time.Hour - maxBackwards - 1},
		{0, 0},
	} {
		if got := r.decisionTime(int64(c.now)); got != int64(c.want) {
			t.Errorf("at %s: %s, want %s", c.now, time.Duration(got), c.want)
		}
	}
}

// Heads bar the way of those who came later, at other servers, until their lease is over.
func TestHeads(t *testing.T) {
	now := int64(time.Hour)
	r := storedRecord{heads: []lineHead{
		{server: 1, since: now - 100, until: now + 50}, {server: 2, since: now - 200, until: now + 20},
		{server: 3, since: now - 300, until: now},                           // dead
		{server: 4, since: now - 400, until: now + int64(headLifetime) + 1}, // by a time that was set back
	}}
	if !r.dropEndedHeads(now) || len(r.heads) != 2 || r.dropEndedHeads(now) {
		t.Fatalf("heads %+v, want those of 1 and 2", r.heads)
	}
	for _, c := range []struct {
		since  int64
		server uint32
		until  int64
	}{
		{now, 3, now + 50}, {now - 150, 3, now + 20}, {now - 250, 3, 0}, {now, 1, now + 20},
		{now - 100, 3, now + 50}, {now - 100, 1, now + 20}, {now - 200, 1, 0}, {now - 200, 3, now + 20},
	} {
		if until := r.barredUntil(c.since, c.server, nil); until != c.until {
			t.Errorf("who came to %d %d ago is barred until %d, want %d",
				c.server, now-c.since, until, c.until)
		}
	}
	gone := r.waitsNoMore(1)
	for server, want := range map[uint32]bool{1: false, 2: false, 3: true} {
		if got := gone(FirstTicket(server) + 5); got != want {
			t.Errorf("server %d is gone: %t, want %t", server, got, want)
		}
	}
}

// A server that has gone left the heads behind that it had written by then, and none by a later time or by
// one to which the clock was set back.
func TestHeadsLeftBehind(t *testing.T) {
	now, life := int64(time.Hour), int64(headLifetime)
	gone := absences{1: now}
	for _, c := range []struct {
		head lineHead
		left bool
	}{
		{lineHead{server: 1, until: now + life}, true}, {lineHead{server: 1, until: now + 1}, true},
		{lineHead{server: 1, until: now + life + 1}, false}, {lineHead{server: 1, until: now}, false},
		{lineHead{server: 2, until: now + 1}, false},
	} {
		if left := gone.left(&c.head); left != c.left {
			t.Errorf("head %+v is left behind: %t, want %t", c.head, left, c.left)
		}
	}
	// After the clock was set back, the time at which a server was absent says nothing.
	pause := int64(absencePause)
	for at, want := range map[int64]bool{
		now - 1: false, now: true, now + pause - 1: true, now + pause: false,
	} {
		if lately := gone.lately(1, at); lately != want {
			t.Errorf("%s later it was absent lately: %t, want %t", time.Duration(at-now), lately, want)
		}
	}
}
