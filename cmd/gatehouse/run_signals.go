package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"syscall"

	"github.com/gatehousehq/gatehouse/internal/supervisor"
)

// stopSignals are those that end a run that waits, and are passed on to a command that runs. One that was
// ignored when this program started is still: nohup does that, and a shell with what it starts by &. Go tells
// of SIGHUP and SIGINT alone.
func stopSignals() []os.Signal {
	all := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	return slices.DeleteFunc(all, signal.Ignored)
}

// A signalError is the signal that has ended a wait.
type signalError struct{ signal syscall.Signal }

// Error implements error.
func (e *signalError) Error() string { return e.signal.String() }

// A signalForwarder ends a wait at the first signal, and passes on signals to a command once there is one.
type signalForwarder struct {
	child chan *supervisor.Child
	done  chan struct{}
	all   chan os.Signal
}

// newSignalForwarder takes signals from a channel. stop ends the wait.
func newSignalForwarder(all chan os.Signal, stop context.CancelCauseFunc) *signalForwarder {
	f := &signalForwarder{child: make(chan *supervisor.Child), done: make(chan struct{}), all: all}
	go func() {
		var child *supervisor.Child
		var early []syscall.Signal
		for {
			select {
			case child = <-f.child:
				for _, s := range early {
					child.Signal(s)
				}
			case s := <-all:
				if number := s.(syscall.Signal); child != nil {
					child.Signal(number)
				} else {
					// The wait may have been granted at this instant. Then the
					// command begins, and has to get it.
					early = append(early, number)
					stop(&signalError{number})
				}
			case <-f.done:
				return
			}
		}
	}()
	return f
}

// passTo has signals passed on to a command from now on, and those before that too.
func (f *signalForwarder) passTo(child *supervisor.Child) { f.child <- child }

// close ends the forwarding.
func (f *signalForwarder) close() {
	signal.Stop(f.all)
	close(f.done)
}
