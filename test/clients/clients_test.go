// Package clients runs the tests of the clients in other languages, each against a real server: those that
// are in clients/, which need python3 and node.
//
// GATEHOUSE_ROUNDS and GATEHOUSE_FAULTS make their rounds longer, and GATEHOUSE_PYTHONS names other
// interpreters to run all of it with, separated by spaces.
package clients

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gatehousehq/gatehouse/internal/servertest"
)

// patience is how long all tests of one client may take; long rounds take as long as they do.
const patience = 4 * time.Minute

// capacityFile is what the server shares, for the tests of leases.
const capacityFile = `resources:
  - identifier_glob: "*"
    capacity: 100
    safe_capacity: 2
    algorithm: {kind: FAIR_SHARE, lease_length: 60, refresh_interval: 5, learning_mode_duration: 0}
`

// More tests run in parallel than there are processors: most of them only wait.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "16")
	}
	os.Exit(m.Run())
}

func TestPython(t *testing.T) {
	t.Parallel()
	environment := startServer(t)
	interpreters := strings.Fields(os.Getenv("GATEHOUSE_PYTHONS"))
	if len(interpreters) == 0 {
		interpreters = []string{"python3"}
	}
	for _, python := range interpreters {
		for _, tests := range pythonTests(t) {
			t.Run(python+"/"+tests, func(t *testing.T) {
				t.Parallel()
				// Warnings are errors, so that nothing is left open.
				command := []string{python, "-W", "error", "-m", "unittest", "tests." + tests}
				runTests(t, environment, "../../clients/python", command)
			})
		}
	}
}

// pythonTests are the modules with tests of the Python client.
func pythonTests(t *testing.T) (names []string) {
	t.Helper()
	paths, err := filepath.Glob("../../clients/python/tests/test_*.py")
	if err != nil || len(paths) == 0 {
		t.Fatalf("tests of the Python client: %v (%v), want some", paths, err)
	}
	for _, path := range paths {
		names = append(names, strings.TrimSuffix(filepath.Base(path), ".py"))
	}
	return names
}

func TestJavaScript(t *testing.T) {
	t.Parallel()
	environment := startServer(t)
	files, err := filepath.Glob("../../clients/js/test/*.test.mjs")
	if err != nil || len(files) == 0 {
		t.Fatalf("tests of the JavaScript client: %v (%v), want some", files, err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			command := []string{"node", "--test", "test/" + filepath.Base(file)}
			runTests(t, environment, "../../clients/js", command)
		})
	}
}

// A lock goes between three processes of each client while they, their server and the roads between them
// fail: see clients/python/tests/rounds.py.
func TestRounds(t *testing.T) {
	t.Parallel()
	environment := startServer(t)
	for name, worker := range map[string][]string{
		"blocking":   {"python3", "-m", "tests.worker", "blocking"},
		"asyncio":    {"python3", "-m", "tests.worker", "awaiting"},
		"javascript": {"node", "../js/test/worker.mjs"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := []string{"python3", "-m", "tests.rounds"}
			command = append(command, roundsOf("ROUNDS", "15"), roundsOf("FAULTS", "1"))
			command = append(command, worker...)
			runTests(t, environment, "../../clients/python", command)
		})
	}
}

// roundsOf is how many rounds or faults there are, unless the environment says otherwise.
func roundsOf(what, otherwise string) string {
	if told := os.Getenv("GATEHOUSE_" + what); told != "" {
		return told
	}
	return otherwise
}

// runTests runs the tests of one client and shows what they say if they fail.
func runTests(t *testing.T, environment []string, folder string, command []string) {
	t.Helper()
	ctx := t.Context()
	if os.Getenv("GATEHOUSE_ROUNDS") == "" {
		limited, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		ctx = limited
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = folder
	cmd.Env = append(slices.Clip(environment), "PYTHONDONTWRITEBYTECODE=1")
	text, err := cmd.CombinedOutput()
	t.Logf("%s", text)
	if err != nil {
		t.Errorf("%s in %s: %v", strings.Join(command, " "), folder, err)
	}
}

// startServer starts a server that the tests of one language share, and returns the environment that tells
// them of it.
func startServer(t *testing.T, flags ...string) []string {
	t.Helper()
	folder := t.TempDir()
	binary, err := servertest.Build(t.Context(), folder)
	if err != nil {
		t.Fatal(err)
	}
	if binary, err = filepath.Abs(binary); err != nil {
		t.Fatal(err)
	}
	capacity := filepath.Join(folder, "capacity.yaml")
	if err := os.WriteFile(capacity, []byte(capacityFile), 0o600); err != nil {
		t.Fatal(err)
	}
	// Tests that follow from this one run beside it and end before its cleanup.
	const anywhere = "127.0.0.1:0"
	args := append([]string{"serve", "--http", anywhere, "--resp", anywhere, "--grpc", anywhere,
		"--capacity-config", capacity}, flags...)
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), binary, args...)
	address, err := awaitAddress(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server ended with %v", err)
		}
	})
	return append(os.Environ(), "GATEHOUSE_ADDRESS=http://"+address, "GATEHOUSE_BINARY="+binary)
}

// servedAddress is where a server says that it listens.
var servedAddress = regexp.MustCompile(`serving HTTP.*?"?address"?[=:]"?([^\s",]+)`)

// awaitAddress starts a server and waits until it says where it listens.
func awaitAddress(cmd *exec.Cmd) (address string, err error) {
	pipe, err := cmd.StderrPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	found := make(chan string, 1)
	go func() {
		scanner := bufio.NewScanner(pipe)
		for scanner.Scan() { // to its end, so that the server can always write
			if match := servedAddress.FindStringSubmatch(scanner.Text()); match != nil {
				found <- match[1]
			}
		}
		close(found)
	}()
	address, ok := <-found
	if !ok {
		return "", fmt.Errorf("%s does not serve", strings.Join(cmd.Args, " "))
	}
	return address, nil
}
