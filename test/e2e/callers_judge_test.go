package e2e

import (
	"cmp"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/test/oracle"
)

// A judgedCall is a call as its client and the third party have seen it.
type judgedCall struct {
	callRecord
	arrival
	// The limiters decided between these.
	low, high time.Duration
}

// judged are the calls of an account that have been carried through, by when they were granted.
func (p *party) judged(calls []callRecord, account string) (all []judgedCall) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range calls {
		if c.Account != account {
			continue
		}
		// What is left of a grant says when it began. It was rounded down, to milliseconds.
		begun := c.ExpiresIn - grantLength
		all = append(all, judgedCall{
			callRecord: c, arrival: p.arrivals[c.ID],
			low:  max(c.Asked, c.SettleSent+begun),
			high: min(c.Answered, c.SettleReceived+begun+time.Millisecond),
		})
	}
	slices.SortFunc(all, func(a, b judgedCall) int { return cmp.Compare(a.high, b.high) })
	return all
}

// lateness is the longest that it can have been from the grant to the call.
func (c *judgedCall) lateness() time.Duration { return c.at - c.low }

// A callJudge judges what clients did by what was recorded at the instants at which it happened. How fast the
// machine is and what else it does is no excuse, but for what was recorded of that: a call that was made
// later after its grant than the guard is for, and the time that servers waited for a processor.
type callJudge struct {
	t       *testing.T
	party   *party
	guard   time.Duration
	reports []reportRecord
	marks   []callMark

	calls  []judgedCall
	late   int
	paused time.Duration // the earliest instant at which the pause can have ended
	ramp   time.Duration // the length of the ramp
}

// The marks of the parts.
const (
	markHeavy = iota
	markHeavyEnd
	markLight
	markRefused
	markEnd
)

// cycle is the window in which the limiters count.
func (j *callJudge) cycle() time.Duration { return callWindow + j.guard }

// judge begins to judge an account, with the windows of the third party.
func (j *callJudge) judge(calls []callRecord, account string) {
	j.t.Helper()
	j.calls, j.late = j.party.judged(calls, account), 0
	j.judgeWindows()
}

// judgeWindows judges all windows of the third party. Tokens may be above its limit by what was estimated too
// low, and no more.
func (j *callJudge) judgeWindows() {
	j.t.Helper()
	var requests, tokens, overrun []oracle.Span
	for i := range j.calls {
		c := &j.calls[i]
		if c.lateness() > j.guard {
			j.late++
			continue
		}
		requests = append(requests, oracle.Span{From: c.at, To: c.at, N: 1})
		tokens = append(tokens, oracle.Span{From: c.at, To: c.at, N: min(c.tokens, c.Estimate)})
		overrun = append(overrun, oracle.Span{From: c.at, To: c.at, N: max(c.tokens, c.Estimate)})
	}
	mostRequests, mostTokens := oracle.MostWithin(requests, callWindow), oracle.MostWithin(tokens, callWindow)
	j.t.Logf("guard %v; %d calls, %d later; most in a window: %d requests, %d tokens, with errors %d",
		j.guard, len(j.calls), j.late, mostRequests, mostTokens, oracle.MostWithin(overrun, callWindow))
	if mostRequests > callRequests || mostTokens > callTokens {
		j.t.Errorf("in one window the third party saw %d requests and %d tokens, want at most %d and %d",
			mostRequests, mostTokens, callRequests, callTokens)
	}
}

// judgeRequestRate judges whether as many were let through as the limit of requests allows.
func (j *callJudge) judgeRequestRate() {
	j.t.Helper()
	from, to := j.marks[markLight], j.marks[markRefused]
	// Each is granted a window after the one that is as many before it as the limit lets through.
	first, _ := slices.BinarySearchFunc(j.calls, from.at, byGrant)
	last, _ := slices.BinarySearchFunc(j.calls, to.at, byGrant)
	cycles := (last - first) / callRequests
	if cycles == 0 {
		j.t.Fatalf("%d calls between %v and %v, want more", last-first, from.at, to.at)
	}
	took := j.calls[first+cycles*callRequests-1].high - j.calls[first-1].high
	waited := to.servers - from.servers
	rate := float64(time.Duration(cycles)*j.cycle()) / float64(took)
	j.t.Logf("requests: %d windows in %v, %.1f %% of the allowed; servers waited %v", cycles, took, 100*rate,
		waited)
	if took := took - waited; float64(took)*0.95 > float64(time.Duration(cycles)*j.cycle()) {
		j.t.Errorf("requests: %.1f %% of the allowed, and servers waited %v of %v, want at least 95 %%",
			100*rate, waited, took)
	}
}

func byGrant(c judgedCall, at time.Duration) int { return cmp.Compare(c.high, at) }

// judgeTokenRate is judgeRequestRate for tokens: it judges how much lay idle that whoever was let through
// next could have had.
func (j *callJudge) judgeTokenRate() {
	j.t.Helper()
	from, to := &j.marks[markHeavy], &j.marks[markHeavyEnd]
	idle := 0.0
	counted, changes := int64(0), j.tokenChanges()
	for i, c := range changes[:len(changes)-1] {
		counted += c.counted
		next := &changes[i+1]
		if length := min(next.at, to.at) - max(c.at, from.at); length > 0 {
			idle += float64(max(0, callTokens-counted-next.waiting)) * float64(length)
		}
	}
	length, waited := to.at-from.at, to.servers-from.servers
	idle /= callTokens
	j.t.Logf("tokens: %.1f %% of %v idle; servers waited %v", 100*idle/float64(length), length, waited)
	if idle > 0.05*float64(length)+float64(waited) {
		j.t.Errorf("tokens: idle for %v of %v, and servers waited %v, want 95 %% used", time.Duration(idle),
			length, waited)
	}
}

// A tokenChange is when more tokens count, or fewer.
type tokenChange struct {
	at      time.Duration
	counted int64
	granted bool
	waiting int64 // what the grant takes that is the next from here on, this one included
}

// tokenChanges are all of them, in order of time.
func (j *callJudge) tokenChanges() (changes []tokenChange) {
	for i := range j.calls {
		c := &j.calls[i]
		// What is beyond the estimate counts from the settle on, the rest from the grant on.
		changes = append(changes,
			tokenChange{at: c.high, counted: c.Estimate, granted: true, waiting: c.Estimate},
			tokenChange{at: c.SettleReceived, counted: c.Cost - c.Estimate},
			tokenChange{at: max(c.high+j.cycle(), c.SettleReceived), counted: -min(c.Estimate, c.Cost)},
			tokenChange{at: c.SettleReceived + j.cycle(), counted: -max(0, c.Cost-c.Estimate)})
	}
	slices.SortStableFunc(changes, func(a, b tokenChange) int { return cmp.Compare(a.at, b.at) })
	waiting := int64(0)
	for i := range slices.Backward(changes) {
		if changes[i].granted {
			waiting = changes[i].waiting
		}
		changes[i].waiting = waiting
	}
	return changes
}

// stopsWithin is how long after a report was answered calls may still come that were granted before.
const stopsWithin = 100 * time.Millisecond

// judgePause judges that nobody is let through from the first report of a 429 on.
func (j *callJudge) judgePause() {
	j.t.Helper()
	if len(j.reports) == 0 {
		j.t.Fatal("nobody reported a 429")
	}
	reported := j.reports[0].Received
	for _, r := range j.reports {
		reported = min(reported, r.Received)
		// What is left was rounded up.
		end := r.Sent + r.PausedFor - time.Millisecond
		if end > j.paused {
			j.paused, j.ramp = end, r.RampFor-r.PausedFor
		}
	}
	refused, latest := 0, time.Duration(0)
	for i := range j.calls {
		c := &j.calls[i]
		if c.Status == http.StatusTooManyRequests {
			refused++
		}
		if c.low > reported && c.high < j.paused {
			j.t.Errorf("%s was granted %v after the report was answered, in the pause", c.ID, c.low-reported)
		}
		if c.high < j.paused {
			latest = max(latest, c.at-reported)
		}
	}
	from, to := &j.marks[markRefused], &j.marks[markEnd]
	// The time of a thread that has ended is not in the later sum, which may be the smaller one then.
	waited := max(0, to.servers-from.servers+to.others(from))
	j.t.Logf("pause: %v, %d refused; the last call came %v after the first report; all waited %v for a "+
		"processor", j.paused-reported, refused, latest, waited)
	if latest > stopsWithin+waited {
		j.t.Errorf("a call came %v after the report was answered, when servers and clients had waited %v "+
			"for a processor, want it within %v", latest, waited, stopsWithin)
	}
}

// judgeRamp judges that behind the pause no more are let through than a rate which rises from a tenth.
func (j *callJudge) judgeRamp() {
	j.t.Helper()
	begin, _ := slices.BinarySearchFunc(j.calls, j.paused, byGrant)
	each, ramp := float64(callWindow)/callRequests, float64(j.ramp-2*time.Millisecond)
	sum := func(x float64) float64 { return (x/10 + 9*x*x/(20*ramp)) / each }
	n, above := 0, false
	for i := range j.calls[begin:] {
		c := &j.calls[begin+i]
		after := c.high - j.paused
		if after >= j.ramp {
			break
		}
		n++
		if allowed := sum(float64(after)); float64(n) > allowed && !above {
			above = true // the next are too
			j.t.Errorf("%v after the pause %d were granted, want at most %.1f", after, n, allowed)
		}
	}
	// What it leaves unused for long is not kept for later.
	waited := j.marks[markEnd].servers - j.marks[markRefused].servers
	j.t.Logf("ramp: %d calls in %v of %.1f allowed; servers waited %v", n, j.ramp, sum(ramp), waited)
	if float64(n) < 0.95*sum(ramp)-float64(waited)/each-1 {
		j.t.Errorf("in a ramp of %v %d were granted, want most of %.1f", j.ramp, n, sum(ramp))
	}
}

// judgeTotal judges all tokens together: what is above the limit is still a debt.
func (j *callJudge) judgeTotal(debt int64) {
	j.t.Helper()
	sum := int64(0)
	for i := range j.calls {
		sum += j.calls[i].tokens
	}
	windows := int64((machineTime()-j.calls[0].low)/j.cycle()) + 1
	j.t.Logf("all tokens: %d, debt %d, allowed %d", sum, debt, windows*callTokens)
	if sum > windows*callTokens+debt {
		j.t.Errorf("%d tokens in %d windows, with a debt of %d, want at most %d", sum, windows, debt,
			windows*callTokens+debt)
	}
}
