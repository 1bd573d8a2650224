package etcdtest

import (
	"errors"
	"syscall"
)

// endWithParent does nothing here: there is no such thing.
func endWithParent() *syscall.SysProcAttr { return nil }

// awaitStop waits until all threads of a process stand still, or it has ended.
func awaitStop(process int) {
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(process, &status, syscall.WUNTRACED, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
