// Package control holds the controllers as plain values and the rule by which a queue of commands
// is applied to one of them. Nothing in it reads a clock, locks, waits or does I/O: time and
// commands come in, decisions go out. Only the table of time zones is read, once for each zone. That is
// why the same controllers work in memory, in a file and in a shared store, and why their tests run in
// virtual time.
package control

import (
	"cmp"
	"time"

	"github.com/gatehousehq/gatehouse"
)

// A State is one controller. It is not safe for concurrent use: its owner applies one
// command at a time.
type State interface {
	// Step applies the command of a turn at one instant, in place, and writes the decision into the turn. The
	// instants of successive calls must not go backwards.
	Step(now time.Time, turn *Turn)

	// Undo takes back what a turn was granted (turn.Granted), as far as that is not used up, or, when
	// turn.Granted is nil, what it left behind while it waited.
	Undo(now time.Time, turn *Turn)

	// Expiry is when this state is, or was, worth nothing any more: from then on a new one in its
	// place decides the same.
	// It changes nothing that Weight depends on.
	Expiry() time.Time

	// Weight is about how many bytes of memory the state takes.
	Weight() int
}

// neverExpires is the Expiry of a state that must not be forgotten.
func neverExpires() time.Time { return time.Unix(0, 1<<63-1) }

// New returns the state of an unused controller.
func New(kind gatehouse.Kind) State {
	switch kind {
	case gatehouse.TokenBucket:
		return new(limiterState[tokenBucketMeter, *tokenBucketMeter])
	case gatehouse.Semaphore:
		return new(Semaphore)
	// The size of a lock is always 1; that of a semaphore is set by its first acquire.
	case gatehouse.Lock:
		return &Semaphore{lock: true}
	case gatehouse.Event:
		return new(Event)
	case gatehouse.Watchdog:
		return new(Watchdog)
	case gatehouse.Counter:
		return new(Counter)
	case gatehouse.Barrier:
		return new(Barrier)
	case gatehouse.GCRA:
		return new(limiterState[gcraMeter, *gcraMeter])
	case gatehouse.FixedWindow:
		return new(limiterState[fixedWindowMeter, *fixedWindowMeter])
	case gatehouse.SlidingWindow:
		return new(limiterState[slidingWindowMeter, *slidingWindowMeter])
	case gatehouse.SlidingLog:
		return new(limiterState[slidingLogMeter, *slidingLogMeter])
	case gatehouse.Pace:
		return new(limiterState[paceMeter, *paceMeter])
	case gatehouse.Grant:
		return new(GrantRecord)
	default:
		panic("control: no controller of kind " + kind.String())
	}
}

// refusedFor is the answer to a command that must wait or give up.
func refusedFor(now time.Time, retry time.Duration) gatehouse.Decision {
	return gatehouse.Decision{Outcome: gatehouse.Refused, At: now, RetryAfter: retry}
}

// grantedAt is the answer to a command that took effect.
func grantedAt(now time.Time) gatehouse.Decision {
	return gatehouse.Decision{Outcome: gatehouse.Granted, At: now}
}

// failedWith answers a command with an outcome that is neither, and the sentence that says why.
func failedWith(now time.Time, outcome gatehouse.Outcome, why string) gatehouse.Decision {
	return gatehouse.Decision{Outcome: outcome, At: now, Message: why}
}

// keepTime is how long a settled state is remembered on behalf of cmd.
func keepTime(cmd *gatehouse.Command) time.Duration { return cmp.Or(cmd.Keep, gatehouse.DefaultKeep) }

// Stopped reports whether a state is a limiter that lets nothing through, because a limit in force is 0, and
// how many commands it has refused.
func Stopped(s State) (refused int64, ok bool) {
	l, is := s.(anyLimiter)
	if !is {
		return 0, false
	}
	step := l.stepAt(0, nil)
	for _, m := range step.activeMeters() {
		ok = ok || m.currentLimit().Size == 0
	}
	return step.waitCounts().timedOut, ok
}

// HasLimit reports whether a state has a limit or a size that later commands may leave as it is.
func HasLimit(s State) bool {
	// A lock has a size too, but it is always 1 and no command names it.
	if semaphore, ok := s.(*Semaphore); ok {
		return !semaphore.lock
	}
	return limiterOf(s) != nil
}
