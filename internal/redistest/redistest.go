//go:build unix

// Package redistest starts real Redis servers for tests, kills them and stops them.
package redistest

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
	"github.com/gatehousehq/gatehouse/internal/freeport"
)

// A Server is a Redis in a process of its own, with nothing on disk.
type Server struct {
	// Address is where it listens. It stays the same over a restart.
	Address string

	arguments []string
	config    string // a file, instead of the usual arguments
	process   *exec.Cmd
	exited    chan struct{}
}

// patience is how long a server may take to be ready or to end. It takes some 10 ms.
const patience = 20 * time.Second

// openAttempts is how often a free port is looked for: another process may take it first.
const openAttempts = 5

// Start starts a server that ends with the test. Arguments are those of redis-server.
func Start(tb testing.TB, arguments ...string) *Server {
	tb.Helper()
	s, err := Open(arguments...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Kill)
	return s
}

// Open starts a server outside of a test. Kill ends it.
func Open(arguments ...string) (s *Server, err error) {
	// The port is free when it is found, but another process may take it before Redis does.
	for range openAttempts {
		var address string
		address, err = freeport.Next()
		if err != nil {
			return nil, err
		}
		s = &Server{Address: address, arguments: arguments}
		err = s.startProcess()
		if err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (s *Server) startProcess() error {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	// The caller's arguments come last: of an option that is given twice, the last one counts.
	arguments := append([]string{
		"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", os.TempDir(),
	}, s.arguments...)
	// A sentinel writes into its file, and knows no options about saving.
	if s.config != "" {
		arguments = append([]string{s.config, "--bind", host, "--port", port}, s.arguments...)
	}
	s.process = exec.Command("redis-server", arguments...)
	output, err := s.process.StdoutPipe()
	if err != nil {
		return err
	}
	if err := s.process.Start(); err != nil {
		return fmt.Errorf("redis-server, of the Debian package of that name: %w", err)
	}
	ready, said := make(chan struct{}), make(chan string, 1)
	s.exited = make(chan struct{})
	go s.followOutput(output, ready, said)
	// It may end at once, as when another process has taken its port.
	select {
	case <-ready:
		return nil
	case <-s.exited:
		return fmt.Errorf("redis-server on %s ended: %s", s.Address, <-said)
	case <-time.After(patience):
		s.Kill()
		return fmt.Errorf("redis-server on %s is not ready after %v", s.Address, patience)
	}
}

// followOutput reads what the server says until it ends.
func (s *Server) followOutput(output io.Reader, ready chan<- struct{}, said chan<- string) {
	var text strings.Builder
	waiting := true
	for lines := bufio.NewScanner(output); lines.Scan(); {
		// All of it is kept, as an error shows it.
		text.WriteString(lines.Text() + "\n")
		if waiting && isReady(lines.Text()) {
			waiting = false // it says so for each kind of connection
			close(ready)
		}
	}
	_ = s.process.Wait() // that it was killed is no news
	said <- text.String()
	close(s.exited)
}

// isReady reports whether a line is the one that a server or a sentinel says last.
func isReady(line string) bool {
	return strings.Contains(line, "Ready to accept connections") || strings.Contains(line, "Sentinel ID is")
}

// Kill ends the server at once, as a crash would. What it held is gone.
func (s *Server) Kill() {
	s.sendSignal(syscall.SIGKILL)
	// Its port is free only when it is gone.
	<-s.exited
}

// Restart kills the server and starts it again, empty, at the same address.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.Kill()
	s.Begin(tb)
}

// Begin starts a server that was killed, empty, at the same address.
func (s *Server) Begin(tb testing.TB) {
	tb.Helper()
	if err := s.Again(); err != nil {
		tb.Fatal(err)
	}
}

// Again is Begin outside of a test.
func (s *Server) Again() error { return s.startProcess() }

// Freeze stops the process until Thaw: the kernel accepts connections and requests, and none is answered.
func (s *Server) Freeze() { s.sendSignal(syscall.SIGSTOP) }

// Thaw continues a frozen process.
func (s *Server) Thaw() { s.sendSignal(syscall.SIGCONT) }

func (s *Server) sendSignal(signal syscall.Signal) {
	_ = s.process.Process.Signal(signal) // it may have ended
}

// CLI runs redis-cli with these arguments and returns what it prints.
func (s *Server) CLI(tb testing.TB, arguments ...string) string {
	tb.Helper()
	_, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		tb.Fatal(err)
	}
	const tries = 10
	arguments = append([]string{"-p", port}, arguments...)
	var output []byte
	for range tries {
		output, err = exec.Command("redis-cli", arguments...).CombinedOutput()
		// A sentinel ends all connections of a replica that it makes the master.
		ended := strings.Contains(string(output), "Server closed the connection") ||
			strings.Contains(string(output), "Connection reset by peer")
		if err == nil || !ended {
			break
		}
	}
	if err != nil {
		tb.Fatalf("redis-cli %q: %v: %s", arguments, err, output)
	}
	return strings.TrimSpace(string(output))
}

// Int is CLI for a command that answers a number.
func (s *Server) Int(tb testing.TB, arguments ...string) int64 {
	tb.Helper()
	text := s.CLI(tb, arguments...)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		tb.Fatalf("redis-cli %q printed %q, want a number", arguments, text)
	}
	return n
}

// Until waits until a condition holds, and fails the test when it does not come to.
func Until(tb testing.TB, holds func() bool) {
	tb.Helper()
	await.True(tb, "the condition holds", holds)
}
