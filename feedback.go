package gatehouse

import (
	"time"
)

// DefaultMaxPause is the longest pause that reports lead to where nothing else is set.
const DefaultMaxPause = 5 * time.Minute

// The statuses that pause a limiter. StatusUnavailable does so only together with a RetryAfter.
const (
	StatusTooMany     = 429
	StatusUnavailable = 503
)

// A Feedback is what a third party answered to a call that a limiter had let through. All times are counted
// from when the command is decided.
type Feedback struct {
	// Status is the HTTP status of the answer, 100 to 599. StatusTooMany pauses the limiter, and so does
	// StatusUnavailable with a RetryAfter. Any other below 500 says that the third party has let the call
	// through.
	Status int

	// RetryAfter is how long the third party wants no call; 0 when it did not say.
	RetryAfter time.Duration

	// Remaining is how many calls the third party lets through until Reset, and Reset is when that counts no
	// more. A Reset of 0 says that neither was told.
	Remaining int64
	Reset     time.Duration

	// MaxPause is the longest pause; 0 means DefaultMaxPause. A gate puts its own in here.
	MaxPause time.Duration

	// Seed is what the jitter of the pause is drawn from, together with the instant; 0 means that there is
	// none. A gate makes it of the key.
	Seed uint64
}

// Pauses reports whether such an answer pauses the limiter.
func (f *Feedback) Pauses() bool {
	return f.Status == StatusTooMany || f.Status == StatusUnavailable && f.RetryAfter > 0
}

// Succeeds reports whether such an answer says that the third party has let the call through.
func (f *Feedback) Succeeds() bool { return f.Status < 500 && f.Status != StatusTooMany }

// check returns an error of CodeInvalid when a feedback makes no sense. f may be nil.
func (f *Feedback) check(key Key) error {
	if f == nil {
		return Errorf(CodeInvalid, "%s: Feedback is missing", key)
	}
	const least, most = 100, 599
	// Any status of HTTP may be reported, also one that changes nothing here.
	if f.Status < least || f.Status > most {
		return outOfRange(key, "Status", f.Status, "100 to 599")
	}
	if f.Remaining < 0 || f.Remaining > MaxSize {
		return outOfRange(key, "Remaining", f.Remaining, "0 to 999999999999999")
	}
	for _, one := range [...]struct {
		name  string
		value time.Duration
	}{{"RetryAfter", f.RetryAfter}, {"Reset", f.Reset}, {"MaxPause", f.MaxPause}} {
		if one.value < 0 || one.value > MaxDuration {
			return outOfRange(key, one.name, one.value, "0 to 100 years")
		}
	}
	return nil
}

// A Reported is what third parties have reported to a limiter, as far as it holds back requests at present.
type Reported struct {
	// Status is the one that the limiter was paused with; 0 when no pause or ramp is in force.
	Status int
	// By is the name of the owner that the report of the pause came with; empty if it had none.
	By string
	// PausedFor is the time until the pause ends, 0 when it has; RampFor is the time until the ramp behind it
	// does.
	PausedFor, RampFor time.Duration
	// Adopted is how many the third party still lets through for AdoptedFor, as far as that was told, of the
	// limit with the least; AdoptedFor is 0 when nothing of that kind is in force.
	Adopted    int64
	AdoptedFor time.Duration
}
