//go:build !linux

package main

import "syscall"

// setOptions does nothing: the options are those of Linux.
func setOptions(_, _ string, _ syscall.RawConn) error { return nil }
