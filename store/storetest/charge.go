package storetest

import (
	"time"

	"github.com/gatehousehq/gatehouse"
)

// leavingLimit is a command with cost n that leaves the limit as it is.
func leavingLimit(op gatehouse.Op, n int64) gatehouse.Command {
	return gatehouse.Command{
		Op: op, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Cost: n, Holder: "k", Expires: time.Hour,
	}
}

// chargeCounts: what is charged at one server is in debt at the other, which can refund and reset it.
func chargeCounts(b *testBench) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Limiter() {
			continue
		}
		key := keyOf(kind, "charged")
		// Without a limit in force there is nothing to charge.
		b.at(0).want(key, leavingLimit(gatehouse.OpCharge, 1), gatehouse.Missing)
		// The interval is so long that nothing comes back while the test runs.
		first := acquireOne("", 3)
		first.Burst, first.Interval = 2, 100*24*time.Hour
		b.at(0).want(key, first, gatehouse.Granted)
		if d := b.at(1).want(key, leavingLimit(gatehouse.OpCharge, 10), gatehouse.Granted); d.Delay <= 0 {
			b.Errorf("%s: a charge of 10 with 2 left is repaid after %s, want some time", key, d.Delay)
		}
		b.at(0).want(key, leavingLimit(gatehouse.OpAcquire, 1), gatehouse.Refused)
		if d := b.at(0).want(key, leavingLimit(gatehouse.OpRefund, 9), gatehouse.Granted); d.Remaining != 1 {
			b.Errorf("%s: %d left after 9 of 8 in debt were refunded, want 1", key, d.Remaining)
		}
		b.at(1).want(key, leavingLimit(gatehouse.OpAcquire, 1), gatehouse.Granted)
		b.at(1).want(key, leavingLimit(gatehouse.OpCharge, 10), gatehouse.Granted)
		// A debt that cannot be repaid in time is refused whole, and leaves the earlier one.
		b.at(0).want(key, leavingLimit(gatehouse.OpCharge, 3000), gatehouse.Conflict)
		b.at(0).want(key, commandBy(gatehouse.OpReset, ""), gatehouse.Granted)
		if d := b.at(1).want(key, leavingLimit(gatehouse.OpAcquire, 1), gatehouse.Granted); d.Remaining != 2 {
			b.Errorf("%s: %d left of 3 after a reset and one, want 2", key, d.Remaining)
		}
	}
}

// maxDelayTakesNothing: a reserve that is refused for its longest delay leaves everything as it was,
// whichever server is asked.
func maxDelayTakesNothing(b *testBench) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		if !kind.Limiter() {
			continue
		}
		key := keyOf(kind, "delayed")
		b.at(0).want(key, acquireOne("", 1), gatehouse.Granted)
		refused := acquireOne("k", 1)
		refused.Op, refused.MaxDelay = gatehouse.OpReserve, time.Millisecond
		// Three refusals: if each had taken something, the reservation below would start three hours later.
		for i := range 3 {
			if d := b.at(i).want(key, refused, gatehouse.Refused); d.Delay <= refused.MaxDelay {
				b.Errorf("%s: refused for a delay of %s, want one above %s", key, d.Delay, refused.MaxDelay)
			}
		}
		b.at(1).want(key, commandBy(gatehouse.OpCancel, "k"), gatehouse.Conflict)
		// If one of the refused ones had taken something, this one would start later.
		first := refused
		first.MaxDelay = 48 * time.Hour
		d := b.at(1).want(key, first, gatehouse.Granted)
		if most := 2 * time.Hour; d.Delay <= 0 || d.Delay > most {
			b.Errorf("%s: the first that is reserved starts in %s, want at most %s", key, d.Delay, most)
		}
	}
}

// limitIsInForce: a limit or size that was given to one server judges what another is asked without. A hold
// says at each of them how long it lasts, and is extended at any.
func limitIsInForce(b *testBench) {
	for _, kind := range []gatehouse.Kind{gatehouse.GCRA, gatehouse.SlidingLog, gatehouse.Semaphore} {
		key := keyOf(kind, "in force")
		first := acquireOne("a", 5)
		first.Burst = 4
		b.at(0).want(key, first, gatehouse.Granted)
		if d := b.at(1).want(key, leavingLimit(gatehouse.OpAcquire, 2), gatehouse.Granted); d.Limit != 5 {
			b.Errorf("%s: the limit is %d at the other server, want 5", key, d.Limit)
		}
		b.at(1).want(key, leavingLimit(gatehouse.OpAcquire, 6), map[bool]gatehouse.Outcome{
			false: gatehouse.Granted, true: gatehouse.Conflict, // a key that holds is told of its hold
		}[kind.Limiter()])
	}
	lock, cmd := keyOf(gatehouse.Lock, "lasting"), acquireOne("a", 1)
	lasts := func(i int, want time.Duration) {
		d := b.at(i).want(lock, cmd, gatehouse.Granted)
		if d.ExpiresAfter > want || d.ExpiresAfter < want-time.Minute {
			b.Errorf("%s lasts for %s, want %s", lock, d.ExpiresAfter, want)
		}
	}
	lasts(0, time.Hour)
	// Acquiring again shares the hold. Without Extend that must not change its end.
	cmd.Expires = 3 * time.Hour
	lasts(1, time.Hour)
	cmd.Extend = true
	lasts(1, 3*time.Hour)
	cmd.Extend = false
	lasts(0, 3*time.Hour)
	// 0 is a hold without an end.
	cmd.Extend, cmd.Expires = true, 0
	b.at(0).want(lock, cmd, gatehouse.Granted)
	cmd.Extend = false
	if d := b.at(1).want(lock, cmd, gatehouse.Granted); d.ExpiresAfter != gatehouse.Forever {
		b.Errorf("%s lasts for %s, want for ever", lock, d.ExpiresAfter)
	}
}
