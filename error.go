package gatehouse

import (
	"errors"
	"fmt"
)

// A Code is the kind of an error. Codes survive every wire: each front has one table from code to
// its own way of failing.
type Code uint8

// The codes. A plain error counts as CodeInternal.
const (
	// CodeInternal is a failure of ours.
	CodeInternal Code = iota
	// CodeInvalid is a command that makes no sense, now or later.
	CodeInvalid
	// CodeExhausted is a limit of the server's own; come back later.
	CodeExhausted
	// CodeUnavailable is a server or store that cannot answer at present.
	CodeUnavailable
	// CodeTimeout is a caller whose time was up before an answer.
	CodeTimeout
	// CodeUnauthenticated is a caller that a server does not know, and asks who it is.
	CodeUnauthenticated
	// CodeForbidden is a caller who may not do this.
	CodeForbidden
	// CodeQuota is a caller who has as much as it may have, or asks more often than it may.
	CodeQuota
)

var codeNames = [...]string{"internal", "invalid", "exhausted", "unavailable", "timeout", "unauthenticated",
	"forbidden", "quota"}

// String returns the code in lower case.
func (c Code) String() string { return nameAt(codeNames[:], int(c), "none") }

// An Error is a failure with its code. Its text is one sentence that starts with the subject.
type Error struct {
	Code Code
	text string
	err  error
}

// Error returns the sentence.
func (e *Error) Error() string { return e.text }

// Unwrap returns the cause, nil when there is none.
func (e *Error) Unwrap() error { return e.err }

// Errorf makes an [Error]. The format is that of fmt.Errorf, %w included.
func Errorf(code Code, format string, args ...any) error {
	// fmt keeps the cause of %w, so that errors.Is sees through this error.
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, text: err.Error(), err: errors.Unwrap(err)}
}

// CodeOf returns the code of the first [Error] in err's chain, and CodeInternal when there is none.
func CodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return CodeInternal
}
