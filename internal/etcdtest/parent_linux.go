package etcdtest

import "syscall"

// endWithParent lets the kernel kill the process when the thread that started it ends, so that none is left
// over when a test is killed or runs out of time.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
