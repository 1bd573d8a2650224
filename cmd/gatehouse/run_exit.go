package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"

	"github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/internal/supervisor"
)

// This file has how a run ends: its errors and its statuses.

// notGranted is the error about a grant that was decided against.
func notGranted(d *gatehouse.GrantDecision) error {
	text := d.Message
	if d.Binding >= 0 && d.Binding < len(d.Want) {
		text = cmp.Or(d.Want[d.Binding].Message, d.Want[d.Binding].Key.String()+" allows no more")
	}
	err := fmt.Errorf("not granted: %s", text)
	// Status 75 says that another try may succeed, which only a refusal does.
	if d.Outcome != gatehouse.Refused {
		return err
	}
	if d.RetryAfter > 0 {
		err = fmt.Errorf("%w; try again in %s", err, showDuration(d.RetryAfter))
	}
	return &statusError{statusNotGranted, err}
}

// stoppedError is how a run ends whose wait was ended by a signal or a newer run; nil if it was by neither.
func stoppedError(waiting context.Context) error {
	if stopped, ok := errors.AsType[*signalError](context.Cause(waiting)); ok {
		return &statusError{status: 128 + int(stopped.signal)}
	}
	if errors.Is(context.Cause(waiting), errSuperseded) {
		return &statusError{statusNotGranted, errSuperseded}
	}
	return nil
}

// notFound is how a command ends for which there is no program, with the status that a shell has for it.
func notFound(err error) *supervisor.Exit {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return &supervisor.Exit{Status: 127, Err: err.Error()}
	}
	return &supervisor.Exit{Status: 126, Err: err.Error()}
}

// exitError is how the run ends, after how its command ended.
func exitError(exit *supervisor.Exit, lost string) error {
	switch {
	case lost != "":
		return &statusError{status: statusLost} // it was said when it was found
	case exit.Overdue:
		return &statusError{statusLost, errors.New("lost: no server has renewed the grant in time")}
	case exit.Err != "":
		return &statusError{exit.Status, errors.New(exit.Err)}
	case exit.Status != 0:
		return &statusError{status: exit.Status}
	}
	return nil
}
