package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	root "github.com/gatehousehq/gatehouse"
	"github.com/gatehousehq/gatehouse/client"
	"github.com/gatehousehq/gatehouse/internal/await"
)

// runOn is the command line of a run on the shared server, with the words of flags in between.
func runOn(flags string, command ...string) []string {
	args := append([]string{"run", "--server", shared().address}, strings.Fields(flags)...)
	return append(append(args, "--"), command...)
}

// askShared is a client of the shared server.
func askShared(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{Addresses: []string{shared().address}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// isFree is whether a lock is free at the shared server.
func isFree(t *testing.T, lock string) bool {
	t.Helper()
	d, err := askShared(t).Do(t.Context(), root.Key{Kind: root.Lock, Name: lock},
		root.Command{Op: root.OpHolders})
	if err != nil {
		t.Fatal(err)
	}
	return d.Report == nil || d.Report.Total == 0
}

func TestRun(t *testing.T) {
	t.Parallel()
	name := fresh(t)
	in := strings.NewReplacer("{}", name)
	for _, c := range []struct {
		flags, command string
		status         int
		out, said      string
	}{
		{"--lock {}", "echo fence $GATEHOUSE_FENCE", 0, "fence 1…\n", ""},
		{"--lock {} --semaphore {}:s:2:2 --limit gcra/{}=5/1s", "exit 7", 7, "", ""},
		{"--lock {}", "kill -TERM $$", 143, "", ""},
		{"--semaphore {}:size:0 --wait 0", "echo never", 75, "",
			"gatehouse: not granted: semaphore/{}:size is …\n"},
		{"--limit gcra/{}-limit=1/1h --wait 0", "echo once", 0, "once\n", ""},
		{"--limit gcra/{}-limit=1/1h --wait 0", "echo twice", 75, "",
			"gatehouse: not granted: gcra/{}-limit allows no more; try again in …\n"},
		{"", "echo", 2, "", "gatehouse: run has nothing to hold, want --semaphore, …\n"},
		{"--lock {} --offline perhaps", "echo", 2, "", "gatehouse: --offline is \"perhaps\", want …\n"},
		{"--lock {} --expires 1ms", "echo", 2, "", "gatehouse: --expires is 1ms, want at least 200ms\n"},
		{"--limit semaphore/a=1/1s", "echo", 2, "", "gatehouse: --limit … is no limiter…\n"},
		{"--limit gcra/a=fast", "echo", 2, "", "gatehouse: --limit …\n"},
		{"--semaphore {}:cost:1:2", "echo", 2, "", "gatehouse: semaphore/{}:cost: cost 2 can never fit…\n"},
	} {
		flags, wantSaid := in.Replace(c.flags), in.Replace(c.said)
		status, out, said := gatehouse(t, nil, runOn(flags, "sh", "-c", c.command)...)
		if status != c.status || !matches(c.out, out) || !matches(wantSaid, said) {
			t.Errorf("run %s -- %s ended with %d, wrote %q and said %q, want %d, %q, %q",
				flags, c.command, status, out, said, c.status, c.out, wantSaid)
		}
	}
	if !isFree(t, name) {
		t.Error("the lock is held after all runs have ended")
	}
	status, _, said := gatehouse(t, nil, runOn("--lock "+name, "/nothing/of/this")...)
	if status != 127 || !strings.HasPrefix(said, `gatehouse: exec: "/nothing/of/this": `) {
		t.Errorf("a command that is not there: status %d and %q, want 127 and why", status, said)
	}
	if status, _, _ := gatehouse(t, nil, runOn("--lock "+name, "/etc/passwd")...); status != 126 {
		t.Errorf("a command that cannot be run: status %d, want 126", status)
	}
}

func TestRunOffline(t *testing.T) {
	t.Parallel()
	away := "127.0.0.1:" + freePort(t)
	for offline, want := range map[string]int{"fail": 69, "skip": 0, "run": 5} {
		status, _, said := gatehouse(t, nil, "run", "--server", away, "--lock", "l", "--offline", offline,
			"--", "sh", "-c", "exit 5")
		if status != want || !strings.Contains(said, "connection refused") {
			t.Errorf("--offline %s: status %d, said %q, want %d and why", offline, status, said, want)
		}
	}
}

// A waiting run prints its position and the holders.
func TestRunShowsWhoHolds(t *testing.T) {
	t.Parallel()
	first := startTool(t, runOn("--lock run-shown --owner ann --host h1 --purpose eval", "sh", "-c",
		"echo holding; read line")...)
	awaitLine(t, first.out, "holding")
	second := startTool(t, runOn("--lock run-shown --owner ben", "echo", "mine")...)
	awaitLine(t, second.said, "waiting for lock/run-shown: position 1, about ")
	awaitLine(t, second.said, "held by ann@h1 (eval) for ")
	_, _ = first.in.WriteString("\n")
	awaitLine(t, second.out, "mine")
	if status := second.end(t); status != 0 {
		t.Errorf("the second run ended with %d, want 0", status)
	}
}

func TestRunEndsAtOnceWhileItWaits(t *testing.T) {
	t.Parallel()
	holding := startTool(t, runOn("--lock run-signal", "sh", "-c", "echo holding; read line")...)
	awaitLine(t, holding.out, "holding")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT} {
		file := filepath.Join(t.TempDir(), "started")
		waiting := startTool(t, runOn("--lock run-signal", "touch", file)...)
		awaitLine(t, waiting.said, "position 1")
		if err := waiting.Signal(s); err != nil {
			t.Fatal(err)
		}
		if status := waiting.end(t); status != 128+int(s) {
			t.Errorf("%s while it waits: status %d, want %d", s, status, 128+int(s))
		}
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s while it waits: the command has run", s)
		}
	}
	_ = holding.Signal(syscall.SIGKILL)
	await.True(t, "the guard has given the lock back", func() bool { return isFree(t, "run-signal") })
}

func TestRunPassesSignalsToTheGroup(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"INT", "TERM", "HUP", "QUIT"} {
		command := `trap 'wait; exit 9' ` + name + `
			sh -c 'trap "echo child heard; exit 0" ` + name + `; echo ready; while :; do sleep 0.01; done' &
			while :; do wait; done`
		// A shell has its children in the background ignore INT and QUIT: there python's handlers are asked.
		if name == "INT" || name == "QUIT" {
			command = `exec python3 -c '
import os, signal, sys, time
def heard(number, frame):
    print("child heard", flush=True) if child == 0 else os.wait()
    os._exit(9)
child = -1
signal.signal(signal.SIG` + name + `, heard)
child = os.fork()
if child == 0: print("ready", flush=True)
while True: time.sleep(1)'`
		}
		run := startTool(t, runOn("--lock run-group-"+name, "sh", "-c", command)...)
		awaitLine(t, run.out, "ready")
		number := map[string]syscall.Signal{
			"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "HUP": syscall.SIGHUP, "QUIT": syscall.SIGQUIT,
		}[name]
		if err := run.Signal(number); err != nil {
			t.Fatal(err)
		}
		awaitLine(t, run.out, "child heard")
		if status := run.end(t); status != 9 {
			t.Errorf("%s: status %d, want that of the command, 9", name, status)
		}
	}
}

// stubbornCommand ignores what it can, has a child in its group and one in a session of its own with nothing
// in its environment, and keeps its output open in all of them.
const stubbornCommand = `trap '' TERM HUP INT
(env -i setsid sh -c 'trap "" TERM HUP INT; echo far; while :; do sleep 1000; done' &)
sh -c 'trap "" TERM HUP INT; echo near; while :; do sleep 1000; done' &
while :; do sleep 1000; done`

// startStubborn starts a run of it.
func startStubborn(t *testing.T, flags string) *process {
	t.Helper()
	run := startTool(t, runOn(flags, "sh", "-c", stubbornCommand)...)
	awaitLine(t, run.out, "far")
	awaitLine(t, run.out, "near")
	return run
}

// evictLock evicts the holder of a lock. The next renewal of the holder is refused.
func evictLock(t *testing.T, lock string) {
	t.Helper()
	key := root.Key{Kind: root.Lock, Name: lock}
	c := askShared(t)
	d, err := c.Do(t.Context(), key, root.Command{Op: root.OpHolders})
	if err != nil || d.Report.Total != 1 {
		t.Fatalf("holders of %s = %+v, %v, want one", key, d.Report, err)
	}
	_, err = c.Do(t.Context(), key, root.Command{
		Op: root.OpEvict, Fence: d.Report.Holders[0].Fence, Message: "maintenance",
		Owner: &root.Owner{Name: "ops"},
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRunEndsWhatItHasLost(t *testing.T) {
	t.Parallel()
	run := startStubborn(t, "--lock run-lost --expires 3s")
	evictLock(t, "run-lost")
	if status := run.end(t); status != 79 { // it ends only when no descendant has the output open
		t.Errorf("status %d, want 79", status)
	}
	awaitLine(t, run.said, "gatehouse: lost: lock/run-lost does not renew this hold")
	awaitLine(t, run.said, "evicted by ops: maintenance")
}

func TestRunThatIsKilledEndsAll(t *testing.T) {
	t.Parallel()
	run := startStubborn(t, "--lock run-killed --expires 30s")
	if err := run.Kill(); err != nil {
		t.Fatal(err)
	}
	run.end(t)
	await.True(t, "the guard has given the lock back", func() bool { return isFree(t, "run-killed") })
}

func TestRunThatIsStoppedEndsItsCommand(t *testing.T) {
	t.Parallel()
	run := startStubborn(t, "--lock run-stopped --expires 2s")
	if err := run.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the lock has come free", func() bool { return isFree(t, "run-stopped") })
	// What is left of the group would be running beside the next holder.
	out, err := exec.Command("pgrep", "-f", "run-stopped.*--.*sh").Output()
	if err == nil && len(strings.Fields(string(out))) > 1 {
		t.Errorf("beside the stopped run there is %s", out)
	}
	_ = run.Signal(syscall.SIGCONT)
	if status := run.end(t); status != 79 {
		t.Errorf("status %d, want 79", status)
	}
}

// A run whose server goes away ends its command before the term is over.
func TestRunWithoutServer(t *testing.T) {
	t.Parallel()
	s := start(t)
	run := startTool(t, "run", "--server", s.address, "--lock", "l", "--expires", "900ms", "--", "sh", "-c",
		stubbornCommand)
	awaitLine(t, run.out, "near")
	if err := s.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	status := run.end(t)
	_ = s.process.Signal(syscall.SIGCONT)
	if status != 79 {
		t.Errorf("status %d, want 79", status)
	}
	awaitLine(t, run.said, "lost")
}

// The watchdog is kicked while the command runs, and fires after it.
func TestRunKicksAWatchdog(t *testing.T) {
	t.Parallel()
	run := startTool(t, runOn("--watchdog run-dog:600ms", "sh", "-c", "echo running; read line")...)
	awaitLine(t, run.out, "running")
	c := askShared(t)
	key := root.Key{Kind: root.Watchdog, Name: "run-dog"}
	d, err := c.Do(t.Context(), key, root.Command{Op: root.OpWait, MaxWait: 1500 * time.Millisecond})
	if err != nil || d.Outcome != root.Refused {
		t.Errorf("while it runs the watchdog = %v, %v, want it silent", d.Outcome, err)
	}
	_, _ = run.in.WriteString("\n")
	if status := run.end(t); status != 0 {
		t.Errorf("status %d, want 0", status)
	}
	d, err = c.Do(t.Context(), key, root.Command{Op: root.OpWait, MaxWait: root.Forever})
	if err != nil || d.Outcome != root.Granted {
		t.Errorf("after it the watchdog = %v, %v, want it fired", d.Outcome, err)
	}
}

// A newer run has an older one that waits give up, and with holding ends the one that holds.
func TestRunSupersedes(t *testing.T) {
	t.Parallel()
	const flags = "--lock run-supersede --lock run-with --expires 1500ms --supersede "
	const reversed = "--lock run-with --lock run-supersede --expires 1500ms --supersede "
	holding := startTool(t, runOn(flags+"waiting", "sh", "-c", "echo holding; exec sleep 1000")...)
	awaitLine(t, holding.out, "holding")
	second := startTool(t, runOn(flags+"waiting", "echo", "second")...)
	awaitLine(t, second.said, "position 1")
	third := startTool(t, runOn(reversed+"waiting", "echo", "third")...)
	if status := second.end(t); status != 75 {
		t.Errorf("the second ended with %d, want 75", status)
	}
	awaitLine(t, second.said, "gatehouse: superseded by a newer run")
	awaitLine(t, third.said, "position 1")
	status, out, _ := gatehouse(t, nil, runOn(flags+"holding", "echo", "fourth")...)
	if status != 0 || out != "fourth\n" {
		t.Errorf("the fourth ended with %d and wrote %q, want it run", status, out)
	}
	if status := third.end(t); status != 75 {
		t.Errorf("the third ended with %d, want 75", status)
	}
	if status := holding.end(t); status != 79 {
		t.Errorf("the first ended with %d, want 79", status)
	}
	awaitLine(t, holding.said, "superseded by a newer run")
}

// Of many that supersede each other at once each runs, gives up or is ended.
func TestRunsSupersedeAtOnce(t *testing.T) {
	t.Parallel()
	var runs sync.WaitGroup
	for i := range 12 {
		runs.Go(func() {
			const flags = "--quiet --lock run-storm --expires 1s --supersede holding"
			status, _, said := gatehouse(t, nil, runOn(flags, "sh", "-c", "exec sleep 0.1")...)
			if status != 0 && status != 75 && status != 79 {
				t.Errorf("run %d ended with %d and said %q, want 0, 75 or 79", i, status, said)
			}
		})
	}
	runs.Wait()
}

// The command sees what it would see without run: its input, its umask, its limits.
func TestRunTouchesNothing(t *testing.T) {
	t.Parallel()
	const look = `cat; umask; ulimit -n; pwd`
	cmd := exec.Command("sh", "-c", `umask 027; ulimit -Sn 200; cd /; echo in | "$@"`, "sh", binary(), "run",
		"--server", shared().address, "--lock", "run-same", "--", "sh", "-c", look)
	out, err := cmd.Output()
	if want := "in\n0027\n200\n/\n"; err != nil || string(out) != want {
		t.Errorf("the command sees %q, %v, want %q", out, err, want)
	}
}
