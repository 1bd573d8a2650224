// Package guard makes a program that was started as the guard of a run that guard, before anything else.
//
// A guard needs little of the program that it is part of. Go initializes packages in the order of their paths
// as far as their imports allow it, so this one, which imports little, comes before the libraries of the
// server. Their initialization would take longer than all that the guard does.
package guard

import (
	"encoding/json"
	"os"

	"github.com/gatehousehq/gatehouse/internal/supervisor"
)

// Command is the only argument of a program that is to be a guard.
const Command = "guard-of-run"

// orphan is what a guard has to give back whose run has died.
var orphan json.RawMessage

func init() {
	if len(os.Args) != 2 || os.Args[1] != Command {
		return
	}
	orphan = supervisor.RunGuard()
	if orphan == nil {
		os.Exit(0)
	}
}

// Orphan returns what is left to give back after a run that has died, as [supervisor.Program] had it in
// Release. It is nil in a program that is no guard. A guard with nothing to give back does not reach main.
func Orphan() json.RawMessage { return orphan }
