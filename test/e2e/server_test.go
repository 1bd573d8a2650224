package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience is how long anything may take that has no time of its own, on a busy machine.
const patience = time.Minute

// A server is one running gatehouse.
type server struct {
	address string
	process *os.Process
	journal *journal      // its standard error
	ended   chan struct{} // closed when the process is gone
	state   *os.ProcessState
	told    bool // to stop
}

// settings are how a server is started, beside what it needs anyway.
type settings struct {
	flags []string
	env   []string // "NAME=value"
}

// shared returns the server that all tests may use who do not end it, limit it or count its names.
func shared() *server { return &server{address: os.Getenv(sharedVariable)} }

// start starts a server of the test's own. At the end of the test it must stop without complaint.
func start(t *testing.T, flags ...string) *server {
	t.Helper()
	return startWith(t, settings{flags: append([]string{"--http", "localhost:0"}, flags...)})
}

func startWith(t *testing.T, how settings) *server {
	t.Helper()
	return startCommand(t, how.command(context.WithoutCancel(t.Context())))
}

// startCommand is startWith, by a command that may set limits first.
func startCommand(t *testing.T, cmd *exec.Cmd) *server {
	t.Helper()
	s, err := launchCommand(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// launch starts a server and waits until it says where it listens.
func launch(ctx context.Context, how settings) (*server, error) {
	return launchCommand(how.command(ctx))
}

// command is what starts a server.
func (s settings) command(ctx context.Context) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary(), append([]string{"serve"}, s.flags...)...)
	cmd.Env = append(os.Environ(), s.env...)
	return cmd
}

// launchCommand is launch, by a command.
func launchCommand(cmd *exec.Cmd) (*server, error) {
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{process: cmd.Process, journal: newJournal(), ended: make(chan struct{})}
	go func() {
		s.journal.copy(pipe)
		_ = cmd.Wait() // the state says the same
		s.state = cmd.ProcessState
		close(s.ended)
		s.journal.close()
	}()
	line, err := s.journal.await(func(line string) bool { return strings.Contains(line, "serving HTTP") })
	if err != nil {
		_ = s.process.Kill()
		return nil, fmt.Errorf("gatehouse %s does not serve: %w", strings.Join(cmd.Args[1:], " "), err)
	}
	s.address = loggedAddress(line)
	return s, nil
}

// loggedAddress is where a server listens, by its log line in either format.
func loggedAddress(line string) string {
	var entry struct{ Address string }
	if json.Unmarshal([]byte(line), &entry) == nil {
		return entry.Address
	}
	_, rest, _ := strings.Cut(line, "address=")
	address, _, _ := strings.Cut(rest, " ")
	return address
}

// signal tells the server to stop. Once only: the second signal would be the last.
func (s *server) signal(signal os.Signal) {
	if !s.told {
		_ = s.process.Signal(signal) // it may have ended by itself, which exit tells
	}
	s.told = true
}

// stop ends the server, unless it has ended, and says what was wrong with its life.
func (s *server) stop() error {
	s.signal(syscall.SIGTERM)
	status, err := s.exit()
	if err != nil {
		_ = s.process.Kill()
		return err
	}
	if status != 0 {
		return fmt.Errorf("exit status of the server = %d, want 0; it said\n%s", status, s.journal)
	}
	return nil
}

// exit waits for the end of the process. The race detector's findings make the status 66.
func (s *server) exit() (status int, err error) {
	select {
	case <-s.ended:
		return s.state.ExitCode(), nil
	case <-time.After(patience):
		return 0, fmt.Errorf("the server still runs %s after it should have ended; it said\n%s",
			patience, s.journal)
	}
}

// A journal is what a process writes, line by line.
type journal struct {
	mu    sync.Mutex
	lines []string
	ended bool
	grown chan struct{} // closed with the next line, or the end
}

func newJournal() *journal { return &journal{grown: make(chan struct{})} }

func (j *journal) copy(from io.Reader) {
	scanner := bufio.NewScanner(from)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		j.mu.Lock()
		j.lines = append(j.lines, scanner.Text())
		close(j.grown)
		j.grown = make(chan struct{})
		j.mu.Unlock()
	}
}

func (j *journal) close() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.ended = true
	close(j.grown)
}

// all returns the lines so far.
func (j *journal) all() (lines []string, ended bool, grown <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]string(nil), j.lines...), j.ended, j.grown
}

// String is all of it.
func (j *journal) String() string {
	lines, _, _ := j.all()
	return strings.Join(lines, "\n")
}

// await waits for a line.
func (j *journal) await(wanted func(line string) bool) (string, error) {
	limit := time.After(patience)
	for {
		lines, ended, grown := j.all()
		for _, line := range lines {
			if wanted(line) {
				return line, nil
			}
		}
		if ended {
			return "", errors.New("it ended and said: " + j.String())
		}
		select {
		case <-grown:
		case <-limit:
			return "", fmt.Errorf("after %s it has only said: %s", patience, j)
		}
	}
}

// awaitLine waits for a line with a text, and returns it.
func awaitLine(tb testing.TB, j *journal, text string) string {
	tb.Helper()
	line, err := j.await(func(line string) bool { return strings.Contains(line, text) })
	if err != nil {
		tb.Fatalf("want a line with %q: %v", text, err)
	}
	return line
}
