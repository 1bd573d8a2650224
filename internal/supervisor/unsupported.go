//go:build !linux && !darwin

package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"runtime"
	"syscall"
	"time"
)

// errUnsupported is why no command runs here.
var errUnsupported = errors.New("a command cannot be run under a guard on " + runtime.GOOS +
	": there are no process groups that end together; run it on Linux or macOS")

// A Child is a command that runs under a guard. Here there is none.
type Child struct{}

// Now returns 0: there are no deadlines here.
func Now() time.Duration { return 0 }

// RunGuard does nothing: there are no guards here.
func RunGuard() json.RawMessage { return nil }

// Start refuses.
func Start(context.Context, []string, Program, Deadline) (*Child, error) { return nil, errUnsupported }

// MoveDeadline does nothing.
func (*Child) MoveDeadline(Deadline) {}

// Signal does nothing.
func (*Child) Signal(syscall.Signal) {}

// Stop does nothing.
func (*Child) Stop() {}

// Wait returns at once.
func (*Child) Wait() Exit { return Exit{} }
