//go:build linux

package supervisor

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/await"
)

// role is the variable by which this program knows that it plays the guard or the wrapper of a test.
const role = "SUPERVISOR_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "guard":
		if what := RunGuard(); what != nil {
			_ = os.WriteFile(os.Getenv("RELEASED"), what, 0o600)
		}
	case "wrapper":
		runWrapper(os.Args[1:])
	default:
		os.Exit(m.Run())
	}
}

// runWrapper runs a command for a time: TERMINATE KILL ARGS... in milliseconds from now. It prints the
// guard's process and how the command ended, and passes SIGTERM on.
func runWrapper(args []string) {
	terminate, _ := strconv.Atoi(args[0])
	kill, _ := strconv.Atoi(args[1])
	now := Now()
	until := Deadline{
		now + time.Duration(terminate)*time.Millisecond, now + time.Duration(kill)*time.Millisecond,
	}
	_ = os.Setenv(role, "guard")
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	path := args[2]
	if found, err := exec.LookPath(path); err == nil {
		path = found
	}
	child, err := Start(context.Background(), []string{os.Args[0]},
		Program{Path: path, Args: args[2:], Env: os.Environ(), Release: json.RawMessage(`"grant-1"`)}, until)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		for s := range signals {
			child.Signal(s.(syscall.Signal))
		}
	}()
	fmt.Fprintf(os.Stderr, "guard %d\n", child.guard.Pid)
	exit := child.Wait()
	fmt.Fprintf(os.Stderr, "exit %d overdue %v %s\n", exit.Status, exit.Overdue, exit.Err)
}

// A wrapper is a process that runs a command. Its standard output is open in all that descends from it.
type wrapper struct {
	*exec.Cmd
	t        *testing.T
	says     *bufio.Scanner // what the wrapper says
	output   *bufio.Reader  // what the command and its descendants print
	guard    int
	released string
}

// startWrapper starts a command that may run for these milliseconds.
func startWrapper(t *testing.T, terminate, kill int, args ...string) *wrapper {
	t.Helper()
	w := &wrapper{t: t, released: t.TempDir() + "/released"}
	times := []string{strconv.Itoa(terminate), strconv.Itoa(kill)}
	w.Cmd = exec.Command(os.Args[0], append(times, args...)...)
	w.Env = append(os.Environ(), role+"=wrapper", "RELEASED="+w.released)
	stdout, err := w.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stderr, err := w.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.output, w.says = bufio.NewReader(stdout), bufio.NewScanner(stderr)
	if err := w.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Process.Kill() })
	if _, err := fmt.Sscanf(w.nextSaid(), "guard %d", &w.guard); err != nil {
		t.Fatal(err)
	}
	return w
}

// nextSaid returns the next line of the wrapper.
func (w *wrapper) nextSaid() string {
	w.t.Helper()
	if !w.says.Scan() {
		w.t.Fatalf("the wrapper says nothing more: %v", w.says.Err())
	}
	return w.says.Text()
}

// exit returns what the wrapper says about how the command ended. A shell may complain before.
func (w *wrapper) exit() string {
	w.t.Helper()
	for {
		if line := w.nextSaid(); strings.HasPrefix(line, "exit ") {
			return strings.TrimSpace(line)
		}
	}
}

// skipLine awaits the next line that the command prints.
func (w *wrapper) skipLine() {
	w.t.Helper()
	_, err := w.output.ReadString('\n')
	if err != nil {
		w.t.Fatalf("the command prints nothing more: %v", err)
	}
}

// awaitAllEnded waits until nothing that descends from the wrapper is alive, and returns what was still
// printed.
func (w *wrapper) awaitAllEnded() string {
	w.t.Helper()
	rest := make(chan string, 1)
	go func() {
		text, _ := io.ReadAll(w.output)
		rest <- string(text)
	}()
	select {
	case text := <-rest:
		return text
	case <-time.After(await.Patience):
		w.t.Fatal("something outlives its deadline")
		return ""
	}
}

func TestStatusIsPassedThrough(t *testing.T) {
	t.Parallel()
	for command, want := range map[string]string{
		"exit 0":               "exit 0 overdue false",
		"exit 7":               "exit 7 overdue false",
		"kill -KILL $$":        "exit 137 overdue false",
		"exec nothing-of-this": "exit 127 overdue false",
	} {
		w := startWrapper(t, 10000, 20000, "sh", "-c", command)
		if got := w.exit(); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
		w.awaitAllEnded()
	}
	w := startWrapper(t, 10000, 20000, "/nothing/of/this")
	if got := w.exit(); !strings.HasPrefix(got, "exit 127 overdue false fork/exec /nothing/of/this: ") {
		t.Errorf("no such program: %q, want status 127 and why", got)
	}
	w = startWrapper(t, 10000, 20000, "/etc/passwd")
	if got := w.exit(); !strings.HasPrefix(got, "exit 126 ") {
		t.Errorf("no program: %q, want status 126", got)
	}
}

// stubborn is a command that ignores SIGTERM and starts two more of its kind, one in a session of its own
// that its parent does not live to see, with nothing in its environment.
const stubborn = `trap "" TERM HUP INT
(env -i setsid sh -c 'trap "" TERM HUP; echo far; while :; do sleep 1000; done' &)
sh -c 'trap "" TERM; while :; do sleep 1000; done' &
read line < /dev/null; echo near; while :; do sleep 1000; done`

// startStubborn starts it and waits until all of it runs.
func startStubborn(t *testing.T, terminate, kill int) *wrapper {
	t.Helper()
	w := startWrapper(t, terminate, kill, "sh", "-c", stubborn)
	w.skipLine()
	w.skipLine()
	return w
}

func TestNothingOutlivesTheDeadline(t *testing.T) {
	t.Parallel()
	w := startStubborn(t, 300, 600)
	w.awaitAllEnded()
	if got, want := w.exit(), "exit 137 overdue true"; got != want {
		t.Errorf("the wrapper says %q, want %q", got, want)
	}
}

func TestGuardKeepsTheDeadlineOfAStoppedWrapper(t *testing.T) {
	t.Parallel()
	w := startStubborn(t, 400, 800)
	if err := w.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The stopped wrapper has the output open; the guard has gone when its report has been sent.
	awaitEnd(t, w.guard)
	if err := w.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	w.awaitAllEnded()
	if got, want := w.exit(), "exit 137 overdue true"; got != want {
		t.Errorf("the wrapper says %q, want %q", got, want)
	}
}

func TestAllEndsWithTheWrapper(t *testing.T) {
	t.Parallel()
	w := startStubborn(t, 60000, 90000)
	if err := w.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.awaitAllEnded()
	awaitEnd(t, w.guard)
	released, err := os.ReadFile(w.released)
	if err != nil || string(released) != `"grant-1"` {
		t.Errorf("released %q, %v, want the grant", released, err)
	}
}

func TestAllEndsWithTheGuard(t *testing.T) {
	t.Parallel()
	w := startStubborn(t, 60000, 90000)
	if err := syscall.Kill(w.guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	w.awaitAllEnded()
	if got := w.exit(); !strings.HasPrefix(got, "exit 137 overdue false the guard") {
		t.Errorf("the wrapper says %q, want status 137 and that the guard was killed", got)
	}
}

func TestWrapperKeepsTheDeadlineOfAStoppedGuard(t *testing.T) {
	t.Parallel()
	w := startStubborn(t, 400, 800)
	if err := syscall.Kill(w.guard, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	w.awaitAllEnded()
}

func TestLeftoversEndWithTheCommand(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, 60000, 90000, "sh", "-c", "(setsid sleep 1000 &) ; sleep 1000 & exit 3")
	w.awaitAllEnded()
	if got, want := w.exit(), "exit 3 overdue false"; got != want {
		t.Errorf("the wrapper says %q, want %q", got, want)
	}
}

func TestSignalReachesTheGroup(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, 60000, 90000, "sh", "-c", `trap 'echo parent; wait; exit 5' TERM
		sh -c 'trap "echo child; exit 0" TERM; echo ready; while :; do sleep 0.01; done' &
		wait`)
	w.skipLine()
	if err := w.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest := w.awaitAllEnded()
	if !strings.Contains(rest, "parent") || !strings.Contains(rest, "child") {
		t.Errorf("printed %q, want child and parent", rest)
	}
	if got, want := w.exit(), "exit 5 overdue false"; got != want {
		t.Errorf("the wrapper says %q, want %q", got, want)
	}
}

func TestNothingStartsAfterTheEnd(t *testing.T) {
	t.Setenv(role, "guard")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	file := t.TempDir() + "/started"
	_, err := Start(ctx, []string{os.Args[0]}, Program{Path: "/bin/touch", Args: []string{"touch", file},
		Env: os.Environ()}, Deadline{Now() + time.Minute, Now() + time.Minute})
	if err == nil {
		t.Fatal("a command started though its context had ended")
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command has run")
	}
}

func TestNothingStartsAfterTheDeadline(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/started"
	w := startWrapper(t, 0, 60000, "touch", file)
	if got, want := w.exit(), "exit 143 overdue true"; got != want {
		t.Errorf("the wrapper says %q, want %q", got, want)
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("the command has run though its deadline had come before")
	}
}

// A name of a file need not be UTF-8.
func TestArgumentsAreBytes(t *testing.T) {
	t.Parallel()
	w := startWrapper(t, 60000, 90000, "sh", "-c", `test "$1" = "$(printf 'caf\351<')"`, "sh", "caf\xe9<")
	if got, want := w.exit(), "exit 0 overdue false"; got != want {
		t.Errorf("the wrapper says %q, want %q: the argument was changed", got, want)
	}
	t.Run("environment", func(t *testing.T) {
		w := startWrapper(t, 60000, 90000, "env", "A=\xff", "sh", "-c",
			`test "$A" = "$(printf '\377')" && test -n "$RELEASED"`)
		if got, want := w.exit(), "exit 0 overdue false"; got != want {
			t.Errorf("the wrapper says %q, want %q: the environment was changed", got, want)
		}
	})
}

// nohup ignores a signal, and what it starts does as well.
func TestIgnoredSignalStaysIgnored(t *testing.T) {
	t.Parallel()
	w := exec.Command("sh", "-c", `trap "" HUP; exec "$0" 60000 90000 sh -c 'kill -HUP $$; exit 4'`,
		os.Args[0])
	w.Env = append(os.Environ(), role+"=wrapper")
	text, err := w.CombinedOutput()
	if err != nil || !strings.Contains(string(text), "exit 4 overdue false") {
		t.Errorf("%v, %q: want status 4, as SIGHUP is ignored", err, text)
	}
}

// awaitEnd waits until a process of another parent has ended.
func awaitEnd(t *testing.T, pid int) {
	t.Helper()
	await.True(t, "the process has ended", func() bool {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, state, _ := strings.Cut(string(text), ") ")
		return err != nil || strings.HasPrefix(state, "Z")
	})
}
