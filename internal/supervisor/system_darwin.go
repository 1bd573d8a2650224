package supervisor

import "syscall"

// becomeSubreaper does nothing: only Linux gives orphans to another process than the first.
func becomeSubreaper() {}

// dieWithParent does nothing: here a command does not learn that the guard died.
func dieWithParent(*syscall.SysProcAttr) {}

// dup makes file mean the same as from.
func dup(from, file int) error { return syscall.Dup2(from, file) }

// A process is a descendant that has not ended.
type process struct{ pid, group int }

// descendants returns none: here the process group is all that is signalled.
func descendants() []process { return nil }
