package main

import (
	"context"
	"os"
	"syscall"
	"testing"
)

// A SIGHUP that comes before the listeners are open is not lost, and does not end the process.
func TestEarlyHangup(t *testing.T) {
	proc := new(serverProcess)
	var got []os.Signal
	proc.addReload(func(_ context.Context, again <-chan os.Signal) error {
		got = append(got, <-again)
		return nil
	})
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	if err := proc.background[0](t.Context()); err != nil || len(got) != 1 || got[0] != syscall.SIGHUP {
		t.Errorf("the background function ended with %v and got %v, want one hangup", err, got)
	}
}
