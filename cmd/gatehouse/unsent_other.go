//go:build !linux

package main

import "syscall"

// boundUnsent does nothing: the limit is an option of Linux.
func boundUnsent(_, _ string, _ syscall.RawConn) error { return nil }
