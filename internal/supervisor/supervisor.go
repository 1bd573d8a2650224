// Package supervisor runs a command that must have ended by a deadline, which is moved again and again while
// the caller may go on. The caller holds a lease: a command that outlives it would run beside the next
// holder.
//
// Three processes take part:
//
//	wrapper ──starts──▶ guard ──starts──▶ command ──▶ its descendants
//	   │  ◀──reports────  │
//	   └──orders, and the deadline──▶
//
//	wrapper   the caller. It renews the lease, passes signals on, and moves the deadline.
//	guard     a process in a session of its own, the parent of the command. It signals the command at the
//	          deadline, even if the wrapper is stopped, and at once when the wrapper has died.
//	command   in a process group of its own, in the session of the wrapper: it keeps the terminal. As
//	          its parent is in another session, the key ^Z does not stop it: it would keep a lease and
//	          do nothing.
//
// On Linux wrapper and guard are subreapers: a descendant whose parent has died becomes a child of the guard,
// and of the wrapper if the guard has died too. So all descendants are found, in whatever session they are.
// Elsewhere the process group is all that is signalled.
package supervisor

import (
	"encoding/json"
	"os"
	"time"
)

// A Deadline says how long a command may run. Both are instants of [Now].
type Deadline struct {
	// Terminate is when the command and its descendants get SIGTERM.
	Terminate time.Duration `json:"terminate"`
	// Kill is when what is left of them gets SIGKILL.
	Kill time.Duration `json:"kill"`
}

// Never is the deadline of a command that may run for as long as it likes.
func Never() Deadline {
	const never = 100 * 365 * 24 * time.Hour
	return Deadline{Terminate: never, Kill: never}
}

// A Program is the command that runs.
type Program struct {
	// Path is the file of the program.
	Path string `json:"-"`
	// Args are the name of the program and its arguments.
	Args []string `json:"-"`
	// Env is the whole environment of the command.
	Env []string `json:"-"`
	// Release is what [RunGuard] returns if the wrapper dies.
	Release json.RawMessage `json:"release,omitempty"`
	// Output is what the command has as its standard output and error; nil are those of this process.
	Output *os.File `json:"-"`
}

// An Exit is how a command ended.
type Exit struct {
	// Status is the exit status of the command, or 128 and the signal that ended it, as in a shell. It is 127
	// if there is no such program, and 126 if the program cannot be run.
	Status int `json:"status"`
	// Err says why the command was not started, or "".
	Err string `json:"err,omitempty"`
	// Overdue is set if the command was told to end because its deadline had come.
	Overdue bool `json:"overdue,omitempty"`
}

// LeftoverGrace is how long descendants that outlive the command, and all of them when the wrapper has died,
// have between SIGTERM and SIGKILL. A deadline that comes earlier counts.
const LeftoverGrace = 2 * time.Second

// An order is what the wrapper tells the guard, one JSON value a line.
type order struct {
	Start    *Program  `json:"start,omitempty"`
	Path     []byte    `json:"path,omitempty"` // of Start, as bytes: JSON would replace what is not UTF-8
	Args     [][]byte  `json:"args,omitempty"`
	Env      [][]byte  `json:"env,omitempty"`
	Deadline *Deadline `json:"deadline,omitempty"`
	Signal   int       `json:"signal,omitempty"` // for the process group of the command
	Stop     bool      `json:"stop,omitempty"`   // terminate now, kill at the deadline
}

// A report is what the guard tells the wrapper, one JSON value a line.
type report struct {
	Ready   bool  `json:"ready,omitempty"`   // to start the command
	Started int   `json:"started,omitempty"` // the process group of the command
	Exit    *Exit `json:"exit,omitempty"`    // the last one: nothing runs any more
}
