// Package freeport finds ports for programs that tests start and that need to be given theirs.
package freeport

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
)

// lowest and highest enclose ports that no system gives away by itself: those begin at 32768 on Linux and
// at 49152 elsewhere. A port asked for by ":0" is one of the others, and until the program that was meant
// to listen there does, it may become the near end of any connection on the machine.
const lowest, highest = 10_000, 32_000

// step spreads the ports of one process; with a prime that does not divide the range, none comes again
// before all have been tried.
const step = 7919

var (
	tried   atomic.Int64 // counts the ports that were
	claimed sync.Map     // port to the net.Listener that claims it, until this process ends
)

// claim claims a port among the processes of tests: two that look at the same time would both find it free. A
// name of Linux for a socket without a file goes with its process; other systems do without.
func claim(port int64) bool {
	if runtime.GOOS != "linux" {
		return true
	}
	claim, err := net.Listen("unix", "@gatehouse-test-port-"+strconv.FormatInt(port, 10))
	if err != nil {
		return false
	}
	claimed.Store(port, claim)
	return true
}

// Next returns "127.0.0.1:" and a port at which no process listens, another one each time.
func Next() (string, error) {
	for range highest - lowest {
		// Each process begins elsewhere, for tests run in several at once.
		port := lowest + (int64(os.Getpid())*1009+tried.Add(1)*step)%(highest-lowest)
		if !claim(port) {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.FormatInt(port, 10))
		listener, err := net.Listen("tcp", address)
		if err == nil {
			return address, listener.Close()
		}
	}
	return "", errors.New("no port from 10000 to 32000 is free at 127.0.0.1, want one")
}
