package storetest

import (
	"strings"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// reporting is a report that leaves the limit as it is.
func reporting(f gatehouse.Feedback) gatehouse.Command {
	return gatehouse.Command{
		Op: gatehouse.OpFeedback, Rule: gatehouse.Rule{Size: gatehouse.InForce}, Feedback: &f,
	}
}

// feedbackHoldsEverywhere: what is reported at one server holds back everybody at the others, whether they
// wait or not, until its time is over.
func feedbackHoldsEverywhere(b *testBench) {
	for kind := gatehouse.TokenBucket; int(kind) < gatehouse.Kinds; kind++ {
		if kind.Limiter() {
			reportedElsewhere(b, keyOf(kind, "reported"))
		}
	}
}

func reportedElsewhere(b *testBench, key gatehouse.Key) {
	pause := gatehouse.Feedback{Status: gatehouse.StatusTooMany, RetryAfter: time.Minute}
	b.at(0).want(key, reporting(pause), gatehouse.Missing)
	// So many in so long that the ramp is over before it lets the first one through.
	first := acquireOne("", 9)
	first.Burst = 8
	b.at(0).want(key, first, gatehouse.Granted)
	short := pause
	short.RetryAfter = 50 * time.Millisecond
	began := b.at(0).want(key, reporting(short), gatehouse.Granted)
	waiting := leavingLimit(gatehouse.OpAcquire, 1)
	waiting.MaxWait = gatehouse.Forever
	answered, _ := b.at(1).startWaiting(key, waiting)
	d := b.waitReply(key.String(), answered, gatehouse.Granted).Decision
	if waited := d.At.Sub(began.At); waited < 100*time.Millisecond-clockStep {
		b.Errorf("%s: whoever waited was let through after %s, want a pause of 50ms and a ramp", key, waited)
	}
	// What one server is told counts at all of them.
	adopted := gatehouse.Feedback{Status: 200, Remaining: 1, Reset: time.Hour}
	b.at(1).want(key, reporting(adopted), gatehouse.Granted)
	b.at(0).want(key, leavingLimit(gatehouse.OpAcquire, 2), gatehouse.Refused)
	b.at(0).want(key, leavingLimit(gatehouse.OpAcquire, 1), gatehouse.Granted)
	b.at(1).want(key, leavingLimit(gatehouse.OpAcquire, 1), gatehouse.Refused)
	b.at(1).want(key, reporting(pause), gatehouse.Granted)
	d = b.at(0).want(key, leavingLimit(gatehouse.OpAcquire, 1), gatehouse.Refused)
	if r := d.Reported; r == nil || r.Status != gatehouse.StatusTooMany || r.PausedFor < 50*time.Second ||
		r.PausedFor > 67*time.Second || !strings.HasPrefix(d.Message, "is paused until ") {
		b.Errorf("%s: in a pause of a minute a refusal is %+v with %+v, want it to say so", key, d, r)
	}
}
