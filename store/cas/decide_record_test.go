package cas

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// A backend that ends holds is told which begin and which end; it tells which have ended.
func TestDecideHolds(t *testing.T) {
	held := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	extend := acquireBy("b")
	extend.Extend = true
	ended := func(holder string, fence uint64) func(*decideInput) {
		return func(in *decideInput) {
			in.endedHolds = []control.Hold{{Holder: holder, Fence: fence}}
		}
	}
	heads := storedRecord{heads: []lineHead{headOf(2, 0, 3*time.Second)}}
	runDecideCases(t, []decideCase{{
		name: "new ones", kind: gatehouse.Semaphore, leased: true,
		queue: []control.Turn{one(acquireBy("a")), one(acquireBy("b")), one(acquireBy("c"))},
		want:  "granted 100, granted 101, refused for now; write; fence 101; begin [a 100 b 101]; refusals 1",
	}, {
		name: "one that is held already", kind: gatehouse.Semaphore, before: held, leased: true,
		now: time.Second, queue: []control.Turn{one(acquireBy("a"))},
		want: "granted 50; write",
	}, {
		name: "a renewed one", kind: gatehouse.Semaphore, before: held, leased: true, now: time.Second,
		queue: []control.Turn{one(commandBy(gatehouse.OpRenew, "b"))},
		want:  "granted 51; write; begin [b 51]",
	}, {
		name: "one that is extended", kind: gatehouse.Semaphore, before: held, leased: true,
		now: time.Second, queue: []control.Turn{one(extend)},
		want: "granted 51; write; begin [b 51]",
	}, {
		name: "a released one, and who takes its place", kind: gatehouse.Semaphore, before: held,
		leased: true, now: time.Second,
		queue: []control.Turn{one(commandBy(gatehouse.OpRelease, "a")), one(acquireBy("c"))},
		want:  "granted, granted 100; write; fence 100; begin [c 100]; end [a 50]",
	}, {
		name: "one that comes and goes", kind: gatehouse.Lock, leased: true,
		queue: []control.Turn{one(acquireBy("a")), one(commandBy(gatehouse.OpRelease, "a"))},
		want:  "granted 100, granted; write; fence 100",
	}, {
		name: "all, by a delete", kind: gatehouse.Semaphore, before: held, leased: true,
		now: time.Second, queue: []control.Turn{one(only(gatehouse.OpDelete))},
		want: "granted; write; no state; deleted at 999.999999ms; end [a 50 b 51]",
	}, {
		name: "one that the backend has ended", kind: gatehouse.Semaphore, before: held, record: heads,
		leased: true, change: ended("a", 50), now: time.Second,
		queue: []control.Turn{one(only(gatehouse.OpStats))},
		want:  "granted; write; wake [2]",
	}, {
		name: "one that the backend has ended, and who takes its place", kind: gatehouse.Semaphore,
		before: held, leased: true, change: ended("a", 50), now: time.Second,
		queue: []control.Turn{one(acquireBy("c"))},
		want:  "granted 100; write; fence 100; begin [c 100]",
	}, {
		name: "one that has ended, and whose holder has another", kind: gatehouse.Semaphore, before: held,
		leased: true, change: ended("a", 49), now: time.Second,
		queue: []control.Turn{one(only(gatehouse.OpStats))},
		want:  "granted",
	}, {
		name: "one whose time is over, which the backend knows better", kind: gatehouse.Semaphore,
		before: held, now: time.Hour, leased: true, queue: []control.Turn{one(acquireBy("c"))},
		want: "refused for now; refusals 1",
	}})
}

// Fencing tokens rise, by the backend's number or the time, and never fall below what was given.
func TestDecideFences(t *testing.T) {
	byTime := func(in *decideInput) { in.minFence = 0 }
	first := []control.Turn{one(acquireBy("a"))}
	runDecideCases(t, []decideCase{{
		name: "by the backend", kind: gatehouse.Lock, queue: first,
		want: "granted 100; write; fence 100",
	}, {
		name: "by the time, in µs", kind: gatehouse.Lock, change: byTime, now: 3 * time.Microsecond,
		queue: first,
		want:  "granted 1000000000003; write; fence 1000000000003",
	}, {
		name: "above the last", kind: gatehouse.Lock, record: storedRecord{fence: 300}, queue: first,
		want: "granted 301; write; fence 301",
	}, {
		name: "above the last, when the clock was set back", kind: gatehouse.Lock, change: byTime,
		record: storedRecord{fence: 2_000_000_000_000}, queue: first,
		want: "granted 2000000000001; write; fence 2000000000001",
	}})
}

// Within a change the time of a record stands still while the store's is a little behind. Beyond that it is
// given up, and with it a delete in what is now the future.
func TestDecideClockSteps(t *testing.T) {
	held := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	ahead := storedRecord{
		asOf: fromStart(5 * time.Second), deletedAt: fromStart(4 * time.Second),
	}
	runDecideCases(t, []decideCase{{
		name: "a little behind", kind: gatehouse.Semaphore, before: held, record: ahead,
		now: 2 * time.Second, queue: []control.Turn{one(acquireBy("c"))},
		want: "refused for 8s; at 5.000000001s; refusals 1",
	}, {
		name: "a little behind, of who waited for what was deleted", kind: gatehouse.Semaphore, before: held,
		record: ahead, now: 2 * time.Second, queue: []control.Turn{waiting(1, 0, acquireBy("c"))},
		want: "deleted; at 5.000000001s",
	}, {
		name: "far behind", kind: gatehouse.Semaphore, before: held, record: ahead, now: -6 * time.Second,
		queue: []control.Turn{one(acquireBy("c"))},
		want:  "refused for 16s; deleted never; refusals 1",
	}, {
		name: "far behind, of who waited for what was deleted", kind: gatehouse.Semaphore, record: ahead,
		now: -6 * time.Second, queue: []control.Turn{waiting(1, -10*time.Second, acquireBy("c"))},
		want: "granted 100; write; fence 100; deleted never",
	}, {
		name: "far ahead", kind: gatehouse.Semaphore, before: held, record: ahead, now: time.Hour,
		queue: []control.Turn{one(acquireBy("c"))},
		want:  "granted 100; write; fence 100",
	}})
}

// What takes something back does so once, if what it takes back was granted; the record says so.
func TestDecideUndos(t *testing.T) {
	taken := []control.Turn{one(ofWindow(gatehouse.OpAcquire, 3))}
	peek := one(ofWindow(gatehouse.OpPeek, 0))
	undoing := func(undos ...*undo) func(*decideInput) {
		return func(in *decideInput) { in.undos = undos }
	}
	takeBack := undoOfTake(0, 0)
	reset := one(gatehouse.Command{Op: gatehouse.OpReset})
	of5 := &attempt{nonce: 5}
	madeBy5 := storedRecord{recentNonces: [maxNonces]uint64{5}, nonceCount: 1}
	runDecideCases(t, []decideCase{{
		name: "one", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		change: undoing(&undo{id: 9}), queue: []control.Turn{takeBack, peek},
		want: "granted, granted 1 left; write; done [9]",
	}, {
		name: "one that was done", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		record: storedRecord{doneUndos: []uint64{8, 9}}, change: undoing(&undo{id: 9}),
		queue: []control.Turn{takeBack, peek},
		want:  "granted, granted 0 left; write",
	}, {
		name: "of a change that was not made", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		change: undoing(&undo{id: 9, onlyIf: of5}), queue: []control.Turn{takeBack, peek},
		want: "granted, granted 0 left; write",
	}, {
		name: "of a change that was made", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		record: madeBy5, change: undoing(&undo{id: 9, onlyIf: of5}), queue: []control.Turn{takeBack, peek},
		want: "granted, granted 1 left; write; done [9]",
	}, {
		name: "two, of which one was done", kind: gatehouse.FixedWindow, before: taken, now: time.Second,
		record: storedRecord{doneUndos: []uint64{8}},
		change: undoing(&undo{id: 8, turn: 1}, &undo{id: 9, turn: 2}),
		queue:  []control.Turn{peek, takeBack, takeBack, peek},
		want:   "granted 0 left, granted, granted, granted 1 left; write; done [8 9]",
	}, {
		name: "of a take before a reset", kind: gatehouse.FixedWindow, now: time.Second,
		before: []control.Turn{taken[0], reset, taken[0]}, change: undoing(&undo{id: 9}),
		queue: []control.Turn{takeBack, peek},
		want:  "granted, granted 0 left; write; done [9]",
	}, {
		name: "of a take after a reset", kind: gatehouse.FixedWindow, now: time.Second,
		before: []control.Turn{taken[0], reset, taken[0]}, change: undoing(&undo{id: 9}),
		queue: []control.Turn{undoOfTake(0, 1), peek},
		want:  "granted, granted 1 left; write; done [9]",
	}, {
		name: "at a name that is gone", kind: gatehouse.FixedWindow, now: time.Second,
		change: undoing(&undo{id: 9}), queue: []control.Turn{takeBack},
		want: "granted; write; no state; done [9]",
	}})
}

// A record that is full takes nothing that makes it larger, and all that makes it smaller.
func TestDecideFull(t *testing.T) {
	full := func(in *decideInput) { in.recordFull = true }
	held := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	runDecideCases(t, []decideCase{{
		name: "an acquire and a release", kind: gatehouse.Semaphore, before: held, change: full,
		now: time.Second,
		queue: []control.Turn{
			one(commandBy(gatehouse.OpRelease, "a")), one(acquireBy("c")), arriving(1, acquireBy("d")),
		},
		want: "granted, exhausted, exhausted; write",
	}, {
		name: "an event", kind: gatehouse.Event, change: full,
		queue: []control.Turn{one(only(gatehouse.OpSend)), one(only(gatehouse.OpStats))},
		want:  "exhausted, missing; no state",
	}, {
		name: "a delete", kind: gatehouse.Semaphore, before: held, change: full, now: time.Second,
		queue: []control.Turn{one(only(gatehouse.OpDelete)), one(acquireBy("c"))},
		want:  "granted, exhausted; write; no state; deleted at 999.999999ms",
	}})
}

// A record that the store has lost is one that is not there: who held something there holds it no more, and
// those who waited begin again.
func TestDecideVanishedRecords(t *testing.T) {
	runDecideCases(t, []decideCase{{
		name: "a renew and a release", kind: gatehouse.Lock, now: time.Second,
		queue: []control.Turn{
			one(commandBy(gatehouse.OpRenew, "a")), one(commandBy(gatehouse.OpRelease, "a")),
		},
		want: "conflict, conflict",
	}, {
		name: "two who waited", kind: gatehouse.Lock, now: time.Second,
		queue: []control.Turn{waiting(1, 0, acquireBy("a")), waiting(2, 0, acquireBy("b"))},
		want:  "granted 100, refused for 10s; write; fence 100; heads [1:2 until 4s]",
	}, {
		name: "the limit that is in force", kind: gatehouse.FixedWindow, now: time.Second,
		queue: []control.Turn{one(gatehouse.Command{
			Op: gatehouse.OpAcquire, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: 1,
		})},
		want: "granted; write",
	}})
}
