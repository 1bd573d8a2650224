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

// attempts is how often a free port is looked for: another process may take it first.
const attempts = 5

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
	for range attempts {
		var address string
		if address, err = freeport.Next(); err != nil {
			return nil, err
		}
		s = &Server{Address: address, arguments: arguments}
		if err = s.start(); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func (s *Server) start() error {
	host, port, err := net.SplitHostPort(s.Address)
	if err != nil {
		return err
	}
	arguments := append([]string{
		"--bind", host, "--port", port, "--save", "", "--appendonly", "no", "--dir", os.TempDir(),
	}, s.arguments...)
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
	go s.follow(output, ready, said)
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

// follow reads what the server says until it ends.
func (s *Server) follow(output io.Reader, ready chan<- struct{}, said chan<- string) {
	var text strings.Builder
	waiting := true
	for lines := bufio.NewScanner(output); lines.Scan(); {
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
	s.signal(syscall.SIGKILL)
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
func (s *Server) Again() error { return s.start() }

// Freeze stops the server: it takes connections and requests and answers none, until Thaw.
func (s *Server) Freeze() { s.signal(syscall.SIGSTOP) }

// Thaw lets the server go on.
func (s *Server) Thaw() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
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
		if err == nil || !strings.Contains(string(output), "Server closed the connection") {
			break
		} // a sentinel ends all connections of a replica that it makes the master
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
