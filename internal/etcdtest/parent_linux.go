package etcdtest

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// endWithParent lets the kernel kill the process when the thread that started it ends, so that none is left
// over when a test is killed or runs out of time.
func endWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitStop waits until all threads of a process stand still, or it has ended.
func awaitStop(process int) {
	for errors.Is(unix.Waitid(unix.P_PID, process, nil, unix.WSTOPPED, nil), unix.EINTR) {
		continue
	}
}
