package control

import (
	"fmt"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// This file is how a limiter answers with what third parties have reported.

// refusesChunk refuses a chunk while anything that was reported holds back: what a server has in a chunk it
// lets through without asking again. Its server goes by the report in the answer, and not by its RetryAfter.
func (l *limiterStep) refusesChunk() bool {
	t := l.reports()
	if t == nil || t.heldUntil() <= l.now {
		return false
	}
	l.fillRefused()
	return true
}

// fillRefusedReports fills in a refusal what was reported, and why that refuses. latest is when the limits
// let n through that start no earlier than from; it returns when what was reported does so too.
func (l *limiterStep) fillRefusedReports(from, latest, n int64) int64 {
	t := l.reports()
	byLimits, at := int64(0), max(latest, l.rampFit(t, from, n))
	for _, m := range l.projectedMeters() {
		byLimits = max(byLimits, m.earliestFit(l.earliestUnpaused(), n))
	}
	l.fillReported()
	// A request that goes on waiting needs no reason, and is looked at often. If a limit refuses for as long
	// as the ramp, the answer names the limit. A pause is always named.
	if r := l.d.Reported; r != nil && (r.PausedFor > 0 || at > byLimits) && !l.turn.keepsWaiting() {
		l.d.Message = l.reasonReported(r)
	}
	return at
}

// fillReported fills in what was reported, as far as it holds back.
func (l *limiterStep) fillReported() {
	t := l.reports()
	if t == nil || t.heldUntil() <= l.now {
		return
	}
	r := new(gatehouse.Reported)
	// A pause and its ramp are told as one. After the pause PausedFor is 0.
	if t.rampEnd() > l.now {
		r.Status, r.By = int(t.status), t.by
		r.PausedFor = time.Duration(max(0, t.until-l.now))
		r.RampFor = time.Duration(t.rampEnd() - l.now)
	}
	for _, m := range l.activeMeters() {
		// With several limits, the answer shows the one that leaves least.
		if a := l.adoptedOf(m); a != nil && (r.AdoptedFor == 0 || a.remaining < r.Adopted) {
			r.Adopted, r.AdoptedFor = a.remaining, time.Duration(a.until-l.now)
		}
	}
	l.d.Reported = r
}

// reasonReported says why something is refused because of what was reported. The limiter is its subject.
func (l *limiterStep) reasonReported(r *gatehouse.Reported) string {
	at := func(after time.Duration) string {
		return l.d.At.Add(after).UTC().Format("2006-01-02T15:04:05.000Z")
	}
	// A pause holds back everything, and what was adopted only what is more than that.
	switch {
	case r.PausedFor > 0:
		return fmt.Sprintf("is paused until %s, reported with %d", at(r.PausedFor), r.Status)
	case r.RampFor > 0:
		return fmt.Sprintf("starts again slowly until %s, after a pause reported with %d",
			at(r.RampFor), r.Status)
	}
	return fmt.Sprintf("has %d left until %s, as was reported", r.Adopted, at(r.AdoptedFor))
}

// reportedStats are the figures about what was reported, as far as it holds back.
func (l *limiterStep) reportedStats() (figures []gatehouse.Stat) {
	r := l.d.Reported
	if r == nil {
		return nil
	}
	// What does not hold back has no figures, instead of some that are 0.
	if r.Status != 0 {
		figures = append(figures, gatehouse.Stat{Name: "paused_with", Value: int64(r.Status)})
		if r.By != "" {
			figures = append(figures, gatehouse.Stat{Name: "paused_by", Value: r.By})
		}
		figures = append(figures,
			gatehouse.Stat{Name: "paused_for", Value: r.PausedFor},
			gatehouse.Stat{Name: "ramp_for", Value: r.RampFor})
	}
	if r.AdoptedFor > 0 {
		figures = append(figures,
			gatehouse.Stat{Name: "adopted", Value: r.Adopted},
			gatehouse.Stat{Name: "adopted_for", Value: r.AdoptedFor})
	}
	return figures
}
