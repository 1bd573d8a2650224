// Package e2e tries the built server from outside: with raw sockets, curl and a browser, and by its
// flags, its environment and signals. It needs Linux, go, curl and chromium; what is missing fails.
//
// Most tests share one server and use names of their own. Tests that end a server, limit it or read
// its log start one.
package e2e

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gatehousehq/gatehouse/internal/servertest"
)

// How TestMain tells the tests of the binary and the shared server: there are no variables for it.
const (
	binaryVariable = servertest.Variable
	sharedVariable = "TESTED_ADDRESS"
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if setup := os.Getenv(callersVariable); setup != "" {
		return runCallers(setup)
	}
	if name := os.Getenv(overlapVariable); name != "" {
		return holdFile(name)
	}
	flag.Parse()
	manyAtOnce()
	cleanEnvironment()
	hearHangups()
	folder, err := os.MkdirTemp("", "gatehouse")
	if err != nil {
		return fail(err)
	}
	defer func() { _ = os.RemoveAll(folder) }()
	binary, err := servertest.Build(context.Background(), folder)
	if err != nil {
		return fail(err)
	}
	if err := os.Setenv(binaryVariable, binary); err != nil {
		return fail(err)
	}
	s, err := launch(context.Background(), settings{flags: []string{"--http", "localhost:0"}})
	if err != nil {
		return fail(err)
	}
	code := 1
	if err = os.Setenv(sharedVariable, s.address); err == nil {
		code = m.Run()
	}
	if err = errors.Join(err, s.stop()); err != nil {
		return max(code, fail(fmt.Errorf("the shared server: %w", err)))
	}
	return code
}

func fail(err error) int {
	fmt.Fprintf(os.Stderr, "FAIL: %v\n", err)
	return 1
}

// manyAtOnce lets more tests run in parallel than there are processors: most of them only wait.
func manyAtOnce() {
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "24")
	}
}

// hearHangups has what tests start hear SIGHUP, also where nohup has the tests ignore it: a signal that is
// caught here is not ignored by what is started here. go test does the same about SIGINT and SIGQUIT.
func hearHangups() {
	if signal.Ignored(syscall.SIGHUP) {
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
}

// cleanEnvironment keeps the settings of whoever runs the tests away from the servers.
func cleanEnvironment() {
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, "GATEHOUSE_") || strings.HasPrefix(name, "BOUNCER_") {
			_ = os.Unsetenv(name)
		}
	}
	for _, name := range []string{"GATEHOUSE_RESP", "GATEHOUSE_GRPC"} {
		_ = os.Setenv(name, "localhost:0") // servers run side by side
	}
}
