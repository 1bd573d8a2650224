package cas

import (
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// standardRetention is the one of a store without a configuration.
func standardRetention() retention {
	return retention{linger: DefaultLinger, limitLinger: defaultLimitLinger, keep: defaultKeep}
}

// storedAt is the record of a queue that was served at the start.
func storedAt(kind gatehouse.Kind, queue ...control.Turn) knownRecord {
	k := knownRecord{kind: kind, version: 5, seen: fromStart(0)}
	k.record.asOf = fromStart(0)
	if queue != nil {
		k.record.encodedState = control.Encode(nil, control.Serve(atStart(), kind, nil, queue))
	}
	return k
}

// A record that is not there was lost if this server saw it lately, and it was to stay.
func TestHasVanished(t *testing.T) {
	lock := storedAt(gatehouse.Lock, one(acquireBy("a"))) // for 10 s
	forEver := acquireBy("a")
	forEver.Expires = 0
	held := storedAt(gatehouse.Lock, one(forEver))
	tombstone := storedAt(gatehouse.Lock)
	unseen := held
	unseen.seen = 0
	none := held
	none.version = 0
	seenLater := lock
	seenLater.seen = fromStart(20 * time.Minute)
	for _, c := range []struct {
		name   string
		known  knownRecord
		after  time.Duration
		record []byte
		want   bool
	}{
		{"a second later", lock, time.Second, nil, true},
		{"it is there", lock, time.Second, []byte{1}, false},
		{"just before it may be forgotten", lock, 50*time.Second - 1, nil, true},
		{"when it may be forgotten", lock, 50 * time.Second, nil, false},
		{"held for ever, a second later", held, time.Second, nil, true},
		{"held for ever, not seen for long", held, time.Minute, nil, false},
		{"never seen", unseen, time.Second, nil, false},
		{"there was none", none, time.Second, nil, false},
		{"a tombstone", tombstone, 49 * time.Second, nil, true},
		{"seen lately, and its time is over", seenLater, 20*time.Minute + time.Second, nil, false},
	} {
		r, reply := standardRetention(), Reply{Record: c.record, Now: atStart().Add(c.after)}
		if got := c.known.hasVanished(&reply, &r); got != c.want {
			t.Errorf("%s: vanished %t, want %t", c.name, got, c.want)
		}
	}
}

// A record stays as long as its state or a head is worth something, and somewhat longer.
func TestRetention(t *testing.T) {
	forEver := acquireBy("a")
	forEver.Expires = 0
	serve := func(kind gatehouse.Kind, queue ...control.Turn) control.State {
		return control.Serve(atStart(), kind, nil, queue)
	}
	leased := one(acquireBy("a"))
	leased.Leased = true
	leasedForEver := one(forEver)
	leasedForEver.Leased = true
	for _, c := range []struct {
		name  string
		state control.State
		ends  bool // by the backend
		heads []lineHead
		after time.Duration
		want  time.Duration
	}{
		{"a tombstone", nil, false, nil, 0, tombstoneLife},
		{"a tombstone with a head", nil, false, []lineHead{headOf(2, 0, 2*time.Minute)}, 0, 2 * time.Minute},
		{"a new lock", serve(gatehouse.Lock, one(acquireBy("a"))), false, nil, 0, defaultKeep},
		{"an old lock", serve(gatehouse.Lock, one(acquireBy("a"))), false, nil, time.Hour, DefaultLinger},
		{"an old limiter", serve(gatehouse.FixedWindow, one(ofWindow(gatehouse.OpAcquire, 1))), false, nil,
			time.Hour, defaultLimitLinger},
		{"held for ever", serve(gatehouse.Lock, one(forEver)), false, nil, 0, gatehouse.Forever},
		{"held by a lease", serve(gatehouse.Lock, leased), true, nil, time.Hour,
			10*time.Second + DefaultLinger},
		{"held for ever, by a lease", serve(gatehouse.Lock, leasedForEver), true, nil, 0, gatehouse.Forever},
	} {
		r := standardRetention()
		r.expiresHolds = c.ends
		if got := r.keepFor(fromStart(c.after), c.state, c.heads); got != c.want {
			t.Errorf("%s is kept for %s, want %s", c.name, got, c.want)
		}
	}
}

// What is known follows the answers: a record that was read, confirmed, changed, or cannot be read.
func TestKnownRecord(t *testing.T) {
	queue := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	stored := storedAt(gatehouse.Semaphore, queue...)
	stored.record.nonceCount = 1
	a, b := queue[0].Decision.Fence, queue[1].Decision.Fence
	k := knownRecord{kind: gatehouse.Semaphore}
	reply := Reply{
		Record: stored.record.encodeRecord(), Version: 9, MinFence: 70, Now: atStart(),
		Live: map[uint64]bool{a: true},
	}
	if err := k.loadReply(&reply); err != nil || !k.current || k.version != 9 || k.state == nil {
		t.Fatalf("after it was read: %+v, %v", k, err)
	}
	if len(k.endedHolds) != 1 || k.endedHolds[0].Fence != b {
		t.Errorf("the backend has a alone, and %+v have ended, want b", k.endedHolds)
	}
	if fences := k.holdFences(); len(fences) != 2 || !fences[a] || !fences[b] {
		t.Errorf("the record has the holds %v, want %d and %d", fences, a, b)
	}
	before := k.state
	if err := k.confirm(&Reply{Now: atStart().Add(time.Second)}); err != nil || k.state == before ||
		k.minFence != 70 || k.endedHolds != nil || k.seen != fromStart(time.Second) {
		t.Errorf("after it was confirmed: %+v, %v, want its state anew and no hold ended", k, err)
	}
	update := recordUpdate{state: before, next: storedRecord{asOf: 8}}
	k.adoptUpdate(&update, &Reply{Version: 10, MinFence: 80, Now: atStart()})
	if k.version != 10 || k.state != before || k.record.asOf != 8 || k.minFence != 80 {
		t.Errorf("after a change: %+v, want what it made", k)
	}
	damaged := slices.Clone(reply.Record)
	damaged[1]++
	if err := k.loadReply(&Reply{Record: damaged, Version: 11}); err == nil || k.current || k.state != nil {
		t.Errorf("a damaged record is %+v, %v, want it to be read again", k, err)
	}
	if err := k.loadReply(&Reply{Version: 0}); err != nil || !k.current || k.record.encodedState != nil {
		t.Errorf("a record that is not there is %+v, %v", k, err)
	}
}
