package cas

import (
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/control"
)

// The first to come goes first, at whatever server it is; each server notes the first of its line.
func TestDecideLines(t *testing.T) {
	const ms = time.Millisecond
	held := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	halfHeld := held[:1]
	own := lineHead{
		server: 1, ticket: FirstTicket(1) + 7, since: fromStart(0), until: fromStart(3500 * ms), waiting: 1,
	}
	ofMany := own
	ofMany.waiting = 5
	younger := headOf(2, 900*ms, 3*time.Second)
	heads := func(heads ...lineHead) storedRecord { return storedRecord{heads: heads} }
	runDecideCases(t, []decideCase{{
		name: "the first to wait gets a head", kind: gatehouse.Semaphore, before: held, now: time.Second,
		queue: []control.Turn{arriving(1, acquireBy("c")), arriving(2, acquireBy("d"))},
		want:  "refused for 9s, refused for 9s; write; heads [1:1 until 4s]",
	}, {
		name: "its head is not renewed at each look", kind: gatehouse.Semaphore, before: held,
		record: heads(own), now: time.Second, queue: []control.Turn{waiting(7, 0, acquireBy("c"))},
		want: "refused for 9s",
	}, {
		name: "its head tells soon that fewer wait", kind: gatehouse.Semaphore, before: held,
		record: heads(ofMany), now: time.Second, queue: []control.Turn{waiting(7, 0, acquireBy("c"))},
		want: "refused for 9s; write; heads [1:7 until 4s]",
	}, {
		name: "but not at each look", kind: gatehouse.Semaphore, before: held,
		record: heads(ofMany), now: 900 * ms, queue: []control.Turn{waiting(7, 0, acquireBy("c"))},
		want: "refused for 9.1s",
	}, {
		name: "its head is renewed after a third", kind: gatehouse.Semaphore, before: held,
		record: heads(own), now: 1500 * ms, queue: []control.Turn{waiting(7, 0, acquireBy("c"))},
		want: "refused for 8.5s; write; heads [1:7 until 4.5s]",
	}, {
		name: "its head goes with it", kind: gatehouse.Semaphore, before: halfHeld,
		record: heads(own, younger), now: time.Second, queue: []control.Turn{waiting(7, 0, acquireBy("c"))},
		want: "granted 100; write; fence 100; heads [2:7 until 3s]; wake [2]",
	}, {
		name: "the next in the line takes its place", kind: gatehouse.Semaphore, before: halfHeld,
		record: heads(own), now: time.Second, queue: []control.Turn{waiting(7, 0, acquireBy("c"))},
		change: func(in *decideInput) {
			first := waiter{since: fromStart(1), ticket: FirstTicket(1) + 8}
			in.rest = lineRest{known: true, nonEmpty: true, first: first}
		},
		want: "granted 100; write; fence 100; heads [1:8 until 4s]",
	}, {
		name: "a head of which nothing is known stays", kind: gatehouse.Semaphore, before: held,
		record: heads(own), now: time.Second, queue: []control.Turn{one(only(gatehouse.OpStats))},
		want: "granted",
	}, {
		name: "a head goes when its line is known to be empty", kind: gatehouse.Semaphore, before: held,
		record: heads(own), now: time.Second, queue: []control.Turn{one(only(gatehouse.OpStats))},
		change: func(in *decideInput) { in.rest.known = true },
		want:   "granted; write; heads []",
	}})
}

// Who came later than a head of another server waits for that, as long as its server looks.
func TestDecideHeadsOfOthers(t *testing.T) {
	const ms = time.Millisecond
	halfHeld := []control.Turn{one(acquireBy("a"))}
	older := headOf(2, 0, 3*time.Second)
	younger := headOf(2, 900*ms, 3*time.Second)
	heads := func(heads ...lineHead) storedRecord { return storedRecord{heads: heads} }
	runDecideCases(t, []decideCase{{
		name: "who came later than a head of another server waits", kind: gatehouse.Semaphore,
		before: halfHeld, record: heads(older), now: time.Second,
		queue: []control.Turn{waiting(1, 500*ms, acquireBy("c"))},
		want:  "refused for 9s; write; heads [2:7 until 3s 1:1 until 4s]",
	}, {
		name: "who does not wait is refused too", kind: gatehouse.Semaphore, before: halfHeld,
		record: heads(older), now: time.Second, queue: []control.Turn{one(acquireBy("c"))},
		want: "refused for 9s; refusals 1",
	}, {
		name: "who came before a head of another server goes", kind: gatehouse.Semaphore, before: halfHeld,
		record: heads(younger), now: time.Second, queue: []control.Turn{waiting(1, 500*ms, acquireBy("c"))},
		want: "granted 100; write; fence 100",
	}, {
		name: "of two that came at once the lower server goes", kind: gatehouse.Semaphore, before: halfHeld,
		record: heads(headOf(2, 500*ms, 3*time.Second)), now: time.Second,
		queue: []control.Turn{waiting(1, 500*ms, acquireBy("c"))},
		want:  "granted 100; write; fence 100",
	}, {
		name: "who is behind an older one of its line ranks as that", kind: gatehouse.Semaphore,
		before: halfHeld, record: heads(younger), now: time.Second,
		queue: []control.Turn{arriving(2, acquireBy("c")), waiting(1, 500*ms, acquireBy("d"))},
		want:  "granted 100, refused for 9s; write; fence 100; heads [2:7 until 3s 1:1 until 4s]",
	}, {
		name: "a head of a server that has not looked is dropped", kind: gatehouse.Semaphore,
		before: halfHeld, record: heads(headOf(2, 0, time.Second), younger), now: time.Second,
		queue: []control.Turn{waiting(1, 500*ms, acquireBy("c"))},
		want:  "granted 100; write; fence 100; heads [2:7 until 3s]; wake [2]",
	}, {
		name: "a head from before the clock was set back is dropped", kind: gatehouse.Semaphore,
		before: halfHeld, record: heads(headOf(2, 0, 5*time.Second)), now: time.Second,
		queue: []control.Turn{waiting(1, 500*ms, acquireBy("c"))},
		want:  "granted 100; write; fence 100; heads []",
	}, {
		name: "a newcomer waits behind those that are not in this queue", kind: gatehouse.Semaphore,
		before: halfHeld, now: time.Second, queue: []control.Turn{one(acquireBy("c"))},
		change: func(in *decideInput) {
			first := waiter{since: fromStart(1), ticket: FirstTicket(1) + 8}
			in.rest = lineRest{known: true, nonEmpty: true, first: first}
		},
		want: "refused for 9s; write; heads [1:8 until 4s]; refusals 1",
	}, {
		name: "a head bars nobody who takes nothing", kind: gatehouse.Semaphore, before: halfHeld,
		record: heads(older), now: time.Second,
		queue: []control.Turn{one(commandBy(gatehouse.OpRenew, "a")), one(only(gatehouse.OpStats))},
		want:  "granted 50, granted; write; wake [2]",
	}})
}

// Other servers are told of what may let somebody of theirs go.
func TestDecideWakes(t *testing.T) {
	heads := storedRecord{heads: []lineHead{
		headOf(3, 0, 3*time.Second), headOf(1, 0, 3*time.Second), headOf(2, 0, 3*time.Second),
	}}
	held := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	send := gatehouse.Command{Op: gatehouse.OpSend, Message: "m"}
	waits := one(gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 2}})
	runDecideCases(t, []decideCase{{
		name: "of a release", kind: gatehouse.Semaphore, before: held, record: heads, now: time.Second,
		queue: []control.Turn{one(commandBy(gatehouse.OpRelease, "a"))},
		want:  "granted; write; wake [3 2]",
	}, {
		name: "not of one at which nobody waits", kind: gatehouse.Semaphore, before: held, now: time.Second,
		queue: []control.Turn{one(commandBy(gatehouse.OpRelease, "a"))},
		want:  "granted; write",
	}, {
		name: "not of a release that was none", kind: gatehouse.Semaphore, before: held, record: heads,
		now: time.Second, queue: []control.Turn{one(commandBy(gatehouse.OpRelease, "c"))},
		want: "conflict",
	}, {
		name: "not of a take", kind: gatehouse.FixedWindow, record: heads, now: time.Second,
		before: []control.Turn{one(ofWindow(gatehouse.OpAcquire, 1))},
		queue:  []control.Turn{one(ofWindow(gatehouse.OpCharge, 1))},
		want:   "granted; write",
	}, {
		name: "of an event", kind: gatehouse.Event, record: heads, now: time.Second,
		queue: []control.Turn{one(send)},
		want:  "granted; write; wake [3 2]",
	}, {
		name: "not of a wait in vain", kind: gatehouse.Event, record: heads, before: []control.Turn{waits},
		now: time.Second, queue: []control.Turn{waits},
		want: "refused for now; refusals 1",
	}, {
		name: "of a delete", kind: gatehouse.Semaphore, before: held, record: heads, now: time.Second,
		queue: []control.Turn{one(only(gatehouse.OpDelete))},
		want:  "granted; write; no state; deleted at 999.999999ms; wake [3 2]",
	}, {
		name: "of a head that has ended", kind: gatehouse.Semaphore, before: held, now: time.Second,
		record: storedRecord{heads: []lineHead{headOf(2, 0, time.Second), headOf(3, 0, 3*time.Second)}},
		queue:  []control.Turn{one(only(gatehouse.OpStats))},
		want:   "granted; write; heads [3:7 until 3s]; wake [3]",
	}})
}

// A barrier counts those who have arrived, until they or their servers are gone.
func TestDecideBarriers(t *testing.T) {
	wait := gatehouse.Command{Op: gatehouse.OpWait, Rule: gatehouse.Rule{Size: 3}}
	ofServer := func(server uint32) control.Turn {
		turn := arriving(0, wait)
		turn.Ticket = FirstTicket(server) + 7
		return turn
	}
	arrived := []control.Turn{ofServer(1), ofServer(2)}
	lastLook := waiting(7, 0, wait)
	lastLook.MaxWait = 0
	heads := storedRecord{heads: []lineHead{headOf(1, 0, 3*time.Second), headOf(2, 0, 3*time.Second)}}
	runDecideCases(t, []decideCase{{
		name: "the last to arrive opens it", kind: gatehouse.Barrier, before: arrived, record: heads,
		now: time.Second, queue: []control.Turn{waiting(7, 0, wait), one(wait)},
		want: "granted, granted; write; heads [2:7 until 3s]; wake [2]",
	}, {
		name: "who is of a server without a head does not count", kind: gatehouse.Barrier, before: arrived,
		record: storedRecord{heads: heads.heads[:1]}, now: time.Second,
		queue: []control.Turn{waiting(7, 0, wait), one(wait)},
		want:  "refused for now, refused for now; write; heads [1:7 until 4s]; refusals 1",
	}, {
		name: "who looks last is taken off", kind: gatehouse.Barrier, before: arrived, record: heads,
		now: time.Second, queue: []control.Turn{lastLook},
		want: "refused for now; write; heads [2:7 until 3s]; wake [2]; refusals 1",
	}})
}

// Who waited when a controller was deleted hears so, and does not make it again; who came later does.
func TestDecideTombstones(t *testing.T) {
	held := []control.Turn{one(acquireBy("a")), one(acquireBy("b"))}
	tombstone := storedRecord{deletedAt: fromStart(time.Second), asOf: fromStart(time.Second), fence: 200}
	undo := waiting(1, 0, acquireBy("c"))
	undo.Op, undo.MaxWait = gatehouse.OpUndo, 0
	runDecideCases(t, []decideCase{{
		name: "a delete between others", kind: gatehouse.Semaphore, before: held, now: time.Second,
		queue: []control.Turn{
			waiting(1, 0, acquireBy("c")), one(only(gatehouse.OpDelete)), one(acquireBy("d")),
		},
		want: "deleted, granted, granted 100; write; fence 100; deleted at 999.999999ms",
	}, {
		name: "a delete of none", kind: gatehouse.Semaphore,
		queue: []control.Turn{one(only(gatehouse.OpDelete))},
		want:  "missing; no state",
	}, {
		name: "who came before it", kind: gatehouse.Semaphore, record: tombstone, now: 2 * time.Second,
		queue: []control.Turn{waiting(1, 999*time.Millisecond, acquireBy("c"))},
		want:  "deleted; no state",
	}, {
		name: "who came at the same time", kind: gatehouse.Semaphore, record: tombstone, now: 2 * time.Second,
		queue: []control.Turn{waiting(1, time.Second, acquireBy("c"))},
		want:  "deleted; no state",
	}, {
		name: "who came after it", kind: gatehouse.Semaphore, record: tombstone, now: 2 * time.Second,
		queue: []control.Turn{waiting(1, time.Second+1, acquireBy("c"))},
		want:  "granted 201; write; fence 201",
	}, {
		name: "who comes now", kind: gatehouse.Semaphore, record: tombstone, now: 2 * time.Second,
		queue: []control.Turn{arriving(1, acquireBy("c"))},
		want:  "granted 201; write; fence 201",
	}, {
		name: "an undo of who waited", kind: gatehouse.Semaphore, record: tombstone, now: 2 * time.Second,
		queue: []control.Turn{undo},
		want:  "granted; write; no state",
	}, {
		name: "statistics", kind: gatehouse.Semaphore, record: tombstone, now: 2 * time.Second,
		queue: []control.Turn{one(only(gatehouse.OpStats))},
		want:  "missing; no state",
	}})
}
