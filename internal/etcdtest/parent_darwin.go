package etcdtest

import "syscall"

// endWithParent does nothing here: there is no such thing.
func endWithParent() *syscall.SysProcAttr { return nil }
