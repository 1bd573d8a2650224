package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gatehousehq/gatehouse/store/cas"
	"github.com/redis/rueidis"
)

// temporaryAnswers are the first words of answers that say that nothing was done, and that it may be later:
// while a server starts, fails over or moves keys. Everything else that Redis answers as an error it will
// answer again.
var temporaryAnswers = map[string]bool{
	"LOADING": true, "CLUSTERDOWN": true, "TRYAGAIN": true, "MASTERDOWN": true, "READONLY": true,
	"BUSY": true, "MOVED": true, "ASK": true, "NOREPLICAS": true, "NOSCRIPT": true,
}

// A dialError says that there is no connection, and so that nothing was sent by it.
type dialError struct{ cause error }

func (e *dialError) Error() string { return e.cause.Error() }
func (e *dialError) Unwrap() error { return e.cause }

// classifyError says of an error whether the change can have been made: not if it is cas.ErrRefused or
// cas.ErrNotSent.
func (a *address) classifyError(err error) error {
	var notDialled *dialError
	answer, answered := rueidis.IsRedisErr(err)
	text := a.redactText(err.Error())
	switch {
	// An answer that passes: nothing was done, and the same call may succeed soon.
	case answered && answer.IsNil():
		return errors.New("redis: it answered nothing, want the time")
	case answered &&
		(temporaryAnswers[firstWord(err.Error())] || strings.HasPrefix(text, "max number of clients")):
		return fmt.Errorf("redis: %w: %s", cas.ErrNotSent, text)
	case answered && isWrongType(text):
		return fmt.Errorf("redis: %w: %w: %s", cas.ErrRefused, cas.ErrNoRecord, text)
	case answered:
		return fmt.Errorf("redis: %w: %s", cas.ErrRefused, text)
	// Redis was not reached at all.
	case errors.As(err, &notDialled), errors.Is(err, rueidis.ErrNoSlot), errors.Is(err, rueidis.ErrNoAddr):
		return fmt.Errorf("redis: %w: %s", cas.ErrNotSent, text)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errTimeoutSent
	}
	// Anything else may have happened on the way there or on the way back.
	return fmt.Errorf("redis: the connection failed and the outcome is not known: %w", redacted{err, text})
}

// isWrongType reports whether an answer says that a key has another type than a record. Before Redis 7 the
// answer of a script begins with other words.
func isWrongType(text string) bool { return strings.Contains(text, "WRONGTYPE ") }

// A redacted error shows no password.
type redacted struct {
	cause error
	text  string
}

func (e redacted) Error() string { return e.text }
func (e redacted) Unwrap() error { return e.cause }

// firstWord is the first word of an answer.
func firstWord(text string) string {
	first, _, _ := strings.Cut(text, " ")
	return first
}
